"""`Index`: records of the state of every known version of every model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.model_spec import TensorSpec
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.errors import BLSError
from bls_notebook.records.models import ModelRecord, TensorSpecRecord

from .config.field_effects import idle_fields
from .source.model_folders import shown_path, version_folders
from .source.model_source import ModelSource
from .source.namespaces import Namespaces, identified, model_of

_UNLOADED = "unloaded"  # the reason that `Service` gives
STUBBED = "by `stub`, for the time being"


def _specs(tensors: Iterable[TensorSpec]) -> tuple[TensorSpecRecord, ...]:
    return tuple(TensorSpecRecord(t.name, t.datatype, tuple(t.dims), bool(t.optional)) for t in tensors)


def _config_warnings(model: LoadedModel) -> tuple[str, ...]:
    """Return a line for each field of the configuration without effect; () if a server or a stub reads it instead."""
    idle = () if model.seen.remote or model.seen.stub else idle_fields(model.spec.config, model.options)
    return tuple(f"config.pbtxt: {path} has no effect{' here' if here else ''}. {why}" for path, why, here in idle)


def model_record(model: LoadedModel, source: ModelSource, load_seconds: float | None) -> ModelRecord:
    spec = model.spec
    return ModelRecord(
        name=model.name,
        version=model.version,
        state="READY",
        reason="",
        backend=spec.backend,
        source=source.origin,
        load_seconds=load_seconds,
        max_batch_size=spec.max_batch_size,
        decoupled=spec.decoupled,
        instances=len(model.instances) + len(model.passive),
        instance_kind=f"KIND_{spec.instance_kind}" if spec.instance_kind else "",
        inputs=_specs(spec.inputs.values()),
        outputs=_specs(spec.outputs.values()),
        warnings=source.warnings + _config_warnings(model) + (model.maker.warnings if model.maker else ()),
        stub="" if source.stub is None else source.stub.reason or "it is asked for",
        remote=model.seen.remote,
        config_source="" if source.replaced is None else source.replaced.origin,
        processes=any(getattr(instance.backend, "process", None) is not None for instance in model.instances),
    )


class Index:
    """Records of versions, by name and version. Records are immutable; each change replaces one."""

    def __init__(self, server: Server, namespaces: Namespaces) -> None:
        self._server = server
        self._namespaces = namespaces
        self._records: dict[str, dict[int, ModelRecord]] = {}
        self._unloaded: set[str] = set()  # keys of models that were unloaded on request, and not loaded since

    def record(self, name: str, version: int) -> ModelRecord:
        return self._with_stub_mark(self._records[name][version])

    def _with_stub_mark(self, record: ModelRecord) -> ModelRecord:
        """Return the record, marked as stubbed while a substitution answers for the version."""
        model = self._server.find_key(record.name, record.version) if record.state == "READY" else None
        stubbed = model is not None and model.seen.stub and not record.stub
        return replace(record, stub=STUBBED) if stubbed else record

    def newest(self, name: str) -> ModelRecord | None:
        """Return the record of the newest version in service; None if no version serves."""
        model = self._server.find(name)
        record = None if model is None else self._records.get(name, {}).get(model.version)
        return None if record is None else self._with_stub_mark(record)

    def rows(self, folders: bool = True) -> list[ModelRecord]:
        """Return all records by name and version, plus a record "not loaded" for each other model in the folders."""
        twice = {name for name in self._namespaces.duplicates() if folders and not self._server.serving(name)}
        rows = {name: dict(records) for name, records in list(self._records.items()) if name not in twice}
        for key, folder in self._namespaces.folders() if folders else ():
            newest = max(version_folders(folder) or (1,))
            reason = "model appears in two or more repositories" if key in twice else "not loaded"
            rows.setdefault(key, {newest: _unavailable(key, newest, shown_path(folder), reason)})
        marked = [self._with_stub_mark(r) for key in sorted(rows) for _, r in sorted(rows[key].items())]
        return sorted((replace(r, name=model_of(r.name)) for r in marked), key=lambda record: record.name)

    def keys(self, name: str) -> list[str]:
        """Return the keys of the models with this name that were ever loaded, or tried."""
        return [key for key in list(self._records) if model_of(key) == name]

    def identifiers(self, name: str) -> list[str] | None:
        """Return the identifiers of the models with this name that were not unloaded; None if none was ever known."""
        keys = self.keys(name)
        folders = {key: (str(folder.parent), shown_path(folder)) for key, folder in self._namespaces.folders(name)}
        out = []
        for key in keys:
            namespace, origin = folders.get(key, ("", ""))
            record = next(iter(self._records.get(key, {}).values()), None)
            if record is not None and key not in self._unloaded:
                out.append(identified(namespace if record.source == origin else "", model_of(key)))
        return out if keys else None

    def loading(self, source: ModelSource, versions: Iterable[int]) -> None:
        """Record that versions are being loaded, except versions already in service."""
        serving = self._server.serving(source.name)
        for version in versions:
            if version not in serving:
                self._set(_unavailable(source.name, version, source.origin, "", "LOADING"))

    def failed(self, source: ModelSource, error: BLSError | str) -> None:
        """Record why versions could not be loaded; versions in service keep their records."""
        reason, server_reason = str(error), str(getattr(error, "reason", ""))
        records = self._records.get(source.name, {})
        versions = [version for version, record in list(records.items()) if record.state == "LOADING"]
        if not versions and not self._server.serving(source.name):
            versions = [next(iter(source.versions), 1)]
        for version in versions:
            record = _unavailable(source.name, version, source.origin, reason)
            self._set(replace(record, server_reason="" if server_reason == reason else server_reason))

    def unloaded(self, key: str) -> None:
        """Record that a model was unloaded on request, even if no version served."""
        self._unloaded.add(key)

    def loaded(self, name: str, records: dict[int, ModelRecord]) -> None:
        self._records.setdefault(name, {}).update(records)

    def leaving(self, name: str, versions: Iterable[int], reason: str) -> None:
        """Record that versions are leaving service; `has_left` records the end."""
        records = self._records.get(name, {})
        for version in versions:
            if version in records:
                records[version] = replace(records[version], state="UNLOADING", reason=reason)

    def has_left(self, model: LoadedModel) -> None:
        """Record that a version has been finalized."""
        record = self._records.get(model.name, {}).get(model.version)
        if record is not None and record.state == "UNLOADING":
            self._set(_unavailable(model.name, model.version, record.source, record.reason or "unloaded"))

    def tried(self, name: str) -> list[int]:
        """Return the versions of a model that were ever loaded, or tried."""
        return list(self._records.get(name, ()))

    def remote_is(self, name: str, lost: str) -> None:
        """Record why the server of a remote model is lost, or with an empty `lost` that it answers again."""
        serving = self._server.serving(name)
        for version, record in list(self._records.get(name, {}).items()):
            if record.remote and version in serving:
                self._set(replace(record, state="UNAVAILABLE" if lost else "READY", reason=lost))

    def forget(self, name: str) -> None:
        """Forget a model unless it serves."""
        if not self._server.serving(name):
            self._records.pop(name, None)

    def was_unloaded(self, name: str) -> bool:
        """Return whether a version of the model was unloaded on request."""
        return any(record.reason == _UNLOADED for record in list(self._records.get(name, {}).values()))

    def forget_unloaded(self) -> None:
        for name in [name for name in list(self._records) if self.was_unloaded(name)]:
            del self._records[name]

    def clear(self) -> None:
        self._records.clear()

    def _set(self, record: ModelRecord) -> None:
        self._records.setdefault(record.name, {})[record.version] = record
        if record.state == "LOADING":
            self._unloaded.discard(record.name)


def _unavailable(name: str, version: int, origin: str, reason: str, state: str = "UNAVAILABLE") -> ModelRecord:
    return ModelRecord(name=name, version=version, state=state, reason=reason, source=origin, instances=0)
