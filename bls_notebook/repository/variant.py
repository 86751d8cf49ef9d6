"""`Variant`: load changed models beside the serving ones.

Example: run a model with another source, and again with fresh state::

    with Variant(repo, {"front": VariantChange(source=text)}) as changed:
        with changed.serving():
            repo.infer("front", inputs)   # the changed model answers
        repo.infer("front", inputs)       # the model as it is loaded

`with_instances` and `with_fields` serve variants with another number of instances or other fields of the configuration.

Guarantees: entering loads all variants or none. The model in service stays loaded with its state and serves again after
`serving`, also on an error and on Ctrl-C. Exiting closes the variants once their requests are answered. Models that
other threads load in the meantime stay. No file is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.operations import Scope
from bls_notebook.repository.catalog import Catalog
from bls_notebook.repository.loading.loader import load_versions
from bls_notebook.repository.modules.module_home import SourcePlace
from bls_notebook.repository.source.model_source import ModelSource


@dataclass(frozen=True)
class VariantChange:
    """The differences of a variant from the model in service; by default none: the same model with fresh state.

    ``source`` is the text of model.py, ``label`` its name in tracebacks and messages, and ``config`` the complete
    configuration in its JSON form.
    """

    source: str | None = None
    label: str = "model.py"
    config: Mapping[str, Any] | None = None


class Variant(Scope):
    """A context manager that loads changed copies of models' newest versions beside those in service.

    Of a model without a change, it loads all versions. If entering raises ModelNotFoundError, ConfigError or
    ModelLoadError, no variant is loaded.
    """

    def __init__(self, catalog: Catalog, changes: Mapping[str, VariantChange]) -> None:
        self._catalog = catalog
        self._changes = dict(changes)
        self._loaded: dict[str, dict[int, LoadedModel]] = {}

    def models(self, name: str) -> dict[int, LoadedModel]:
        return dict(self._loaded[name])

    def _enter(self) -> None:
        for name, change in self._changes.items():
            self._catalog._ready_model(name)
            with self._catalog._service.lock_of(name), self._catalog.metrics.apart():
                self._loaded[name] = load_versions(self._catalog._server, self._source(name, change))

    def _leave(self) -> None:
        while self._loaded:
            self._catalog._server.close_all(self._loaded.popitem()[1].values())

    def _source(self, name: str, change: VariantChange) -> ModelSource:
        service = self._catalog._service
        source = service.sources[name]
        if source.remote is not None:
            raise BLSError(
                f"variant of {name!r}: the model is remote and cannot be changed here; change it on its server"
            )
        if change == VariantChange():
            return replace(source, stub=None)
        own = service.server.own(name)
        newest = own[max(own)]
        config = dict(_config_of(newest) if change.config is None else change.config)
        config["version_policy"] = {"specific": {"versions": [newest.version]}}
        place = source.place
        if change.source is not None:
            file = str(Path(newest.directory) / "changed_model.py")
            place = SourcePlace(file, f"{change.label}, changed", 1, change.source)
        folder = Path(newest.directory).parent
        return replace(source, folder=folder, config=config, config_is_json=True, place=place, stub=None)

    def serving(self) -> Serving:
        """Return a context manager in which the variants answer in place of the models."""
        return Serving(self._catalog, self._loaded)


class Serving(Scope):
    """Variants in service inside a ``with`` block."""

    def __init__(self, catalog: Catalog, loaded: Mapping[str, dict[int, LoadedModel]]) -> None:
        self._catalog = catalog
        self._routes = {name: _Route(versions) for name, versions in loaded.items()}

    def _enter(self) -> None:
        for name, route in self._routes.items():
            with self._catalog._service.lock_of(name):
                self._catalog._server.substitute(name, route)

    def _leave(self) -> None:
        for name, route in self._routes.items():
            with self._catalog._service.lock_of(name):
                self._catalog._server.restore(name, route)


class _Route:
    """Puts a variant into service in place of a model; a `Substitute` of the server."""

    def __init__(self, loaded: dict[int, LoadedModel]) -> None:
        self._loaded = loaded

    def serve_for(self, own: dict[int, LoadedModel]) -> dict[int, LoadedModel]:
        """Return the real versions, with the variant in place of the version that it changes."""
        return {**own, **self._loaded}

    def close_replaced(self) -> None:
        """Do nothing: the variant closes its models."""


def _config_of(model: LoadedModel) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict  # slow to import

    config: dict[str, Any] = MessageToDict(model.spec.config, preserving_proto_field_name=True)
    return config


@contextmanager
def with_instances(repo: Catalog, models: Iterable[str], count: int) -> Iterator[None]:
    """Serve these models with another instance count; only the first instance group is kept."""
    with with_fields(repo, {name: with_count(repo, name, count) for name in models}):
        yield


def with_count(repo: Catalog, name: str, count: int) -> dict[str, Any]:
    """Return the `instance_group` field with another count, for `with_fields`."""
    group = _config_of(repo._ready_model(name)).get("instance_group") or [{}]
    return {"instance_group": [{**group[0], "count": count}]}


@contextmanager
def with_fields(repo: Catalog, changes: Mapping[str, Mapping[str, Any]]) -> Iterator[Variant]:
    """Serve models with changed fields in their configurations; None removes a field."""
    variants = {}
    for name, fields in changes.items():
        config = {**_config_of(repo._ready_model(name)), **fields}
        variants[name] = VariantChange(config={key: value for key, value in config.items() if value is not None})
    with Variant(repo, variants) as changed, changed.serving():
        yield changed
