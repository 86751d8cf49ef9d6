"""`export`: writes loaded models as a model repository for a server, into a folder or an archive.

Each model is written with its files and the configuration with which it was loaded.

Guarantees: if a model cannot run on a server, nothing is written. The folder is written completely or not at all.
The same models give the same bytes, also after loading them from an export.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bls_notebook.checking.checked_model import CheckedModel, read_model
from bls_notebook.checking.environments import IMAGE_PYTHON, python_of
from bls_notebook.checking.release_checks import release_findings
from bls_notebook.checking.shared_memory import shared_memory
from bls_notebook.engine import BLSError, LoadedModel, ModelLoadError, ModelSpec
from bls_notebook.extending import Host, host_of, operation
from bls_notebook.progress import progress
from bls_notebook.repository import ModelRepository, callees
from bls_notebook.repository.config import environment_parameter, model_spec, to_pbtxt
from bls_notebook.repository.source import ModelSource, imported_modules, shown_path, syntax_tree, version_folders
from bls_notebook.shipping.exports.deployment import TARGETS, files_for, guide, refuse_target
from bls_notebook.shipping.exports.environment_archive import is_packable, modules_of, packed_environment
from bls_notebook.shipping.exports.folder_writer import Content, write_archive, write_folder
from bls_notebook.shipping.exports.model_files import ModelFiles, folder_files, python_files, read_code
from bls_notebook.shipping.exports.model_needs import parameter_needs
from bls_notebook.shipping.proof.proof_files import proof_files
from bls_notebook.shipping.records import Exported, ExportedModel

_CONFIG = "config.pbtxt"
_ARCHIVE = "environment.tar.gz"
KEEP = ".gitkeep"  # in a version folder without files, such as an ensemble's, which git and zip would drop
_PACKAGE = "bls_notebook"


@dataclass(frozen=True)
class ModelToExport:
    """One model to export."""

    source: ModelSource
    checked: CheckedModel
    spec: ModelSpec
    loaded: LoadedModel | None  # the newest version; None if only `pb_utils.load_model` names the model
    content: ModelFiles  # config.pbtxt included
    calls: tuple[str, ...]  # models that it has called or names in its code, and ensemble steps


@operation
def export(
    place: str | Path, *names: str, target: str = "", replicas: int = 1, completed: bool = False,
    requests: Any = None, secrets: bool = False, keep_going: bool = False, repo: ModelRepository | None = None,
) -> Exported:  # fmt: skip
    """Write models and their loaded callees as a model repository for a server.

    The record and the README name needs of the models that the export lacks: files elsewhere, environment variables,
    callees with computed names, state of this process.

    Parameters
    ----------
    place : str or Path
        A folder (replaced if an export wrote it), or a file whose name ends with ``.zip``.
    *names : str
        Names of loaded models; by default all.
    target : str
        Deployment target: ``docker``, ``compose``, ``kubernetes``, ``kserve`` or ``dynamo``. Default: none.
    replicas : int
        Servers behind HAProxy; more than one only for ``compose``, and not for models that batch sequences.
    completed : bool
        Write the completed config.pbtxt files; by default as the user wrote them.
    requests : mapping of str to sequence of mapping, or recording, optional
        Requests by model name. The export then has their answers, to compare and measure on another machine.
    secrets : bool
        Include files such as ``.env``, private keys and ``.git``, which are left out by default.
    keep_going : bool
        Leave out models that are not loaded or cannot run on a server, and name them, instead of raising an error.
    repo : ModelRepository, optional
        Default: `current_repository`.

    Returns
    -------
    Exported

    Raises
    ------
    BLSError
        A model could not be loaded, or cannot run on a server, or the folder has files that no export wrote. Nothing is
        written then.
    """
    host = host_of(repo)
    if target and target not in TARGETS:
        raise BLSError(f"export: target: got {target!r}, expected one of {', '.join(TARGETS)}")
    missing = _not_loaded(host, names)
    failed = missing if keep_going else {}
    for name in set(names) - failed.keys():
        if missing.get(name, "").startswith("model "):  # the error of its load
            raise ModelLoadError(missing[name], name)
        host.ready(name)  # or ModelNotFoundError
    loaded = filter(None, map(host.find, host.names()))
    remote = {model.name: model.seen.remote for model in loaded if model.seen.remote}
    if refused := [f"'{name}' ({remote[name]})" for name in names if name in remote]:
        raise BLSError(
            f"export: {', '.join(refused)}: the files of a remote model are on its server; export the other "
            "models, and deploy them on that server or add the remote model to theirs"
        )
    selected = [name for name in names or host.names() if name not in failed and name not in remote]
    if not selected:
        problems = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise BLSError(f"export: {problems or 'no model is loaded; load or define one first'}")
    if not isinstance(place, (str, Path)) or not str(place).strip():
        raise BLSError(f"export: got {place!r}, expected the path of a folder or of a .zip file")
    folder = Path(place).expanduser()
    with progress(f"exporting to {shown_path(folder)}"):
        models = collect(host, selected, completed, secrets)
        obstacles = {name: reasons for name, model in models.items() if (reasons := list(obstacles_of(model)))}
        if obstacles and (not keep_going or obstacles.keys() >= models.keys()):
            lines = "\n  ".join(reason for reasons in obstacles.values() for reason in reasons)
            raise BLSError(f"export: nothing was written, because this would fail on a server:\n  {lines}")
        failed |= {name: reasons[0] for name, reasons in obstacles.items()}
        models = {name: model for name, model in models.items() if name not in failed}
        record = _describe(models, folder, remote, failed)
        refuse_target(target, replicas, record)
        texts = files_for(target, record, replicas) if target else {}
        if requests is not None:
            specs = {name: models[name].spec for name in selected if name in models}
            texts |= proof_files(specs, requests, host.repository)
        record = replace(record, target=target, files=tuple(texts), replicas=replicas)
        files: dict[str, Content] = {
            f"{name}/{path}": content for name, model in models.items() for path, content in model.content.files.items()
        }
        texts = {"README.md": guide(record), **_requirements_file(record), **texts}
        files |= {name: text.encode() for name, text in texts.items()}
        (write_archive if folder.suffix == ".zip" else write_folder)(folder, files)
    return record


def _not_loaded(host: Host, names: Sequence[str]) -> dict[str, str]:
    """Return why models are not loaded: of these names, by default of all that could not be loaded."""
    reasons = {record.name: record.reason for record in host.repository.index() if record.state != "READY"}
    if not names:
        return {name: reason for name, reason in reasons.items() if reason != "not loaded" and host.find(name) is None}
    return {name: reasons.get(name) or "not loaded" for name in names if host.find(name) is None}


def collect(host: Host, names: Iterable[str], completed: bool, secrets: bool) -> dict[str, ModelToExport]:
    """Return these models and the models that they call or load, directly or not, if they exist here."""
    known = frozenset(host.names())
    exists = frozenset(record.name for record in host.repository.index())
    models: dict[str, ModelToExport] = {}
    todo = [(name, False) for name in names]
    while todo:
        name, is_on_disk = todo.pop()
        loaded = host.find(name)
        if name in models or (loaded is None and not (is_on_disk and name in exists)):
            continue
        source = host.source(name, loaded=loaded is not None)
        if source.remote is not None:
            continue
        checked = read_model(source, loaded)
        spec = model_spec(checked.config) if loaded is None else loaded.spec
        content = _content(source, checked, completed and loaded is not None, secrets)
        called = {
            *(loaded.calls if loaded else ()),
            *(step.model_name for step in checked.config.ensemble_scheduling.step),
        }
        needs, texts = content.needs, [text for _, text in python_files(content.files)]
        if any("InferenceRequest" in text for text in texts):
            # Code often computes a callee's name or reads it from a parameter, so every mention of a model counts.
            requested, mentioned = callees(texts, known)
            called |= requested | needs.requested | mentioned | (known & set(spec.parameters.values()))
        if needs.controls:
            needs.loads |= callees(texts, exists)[1]
        needs.loads -= {name}
        models[name] = ModelToExport(source, checked, spec, loaded, content, tuple(sorted(called - {name})))
        todo += [(callee, False) for callee in called]
        todo += [(callee, True) for callee in (*needs.loads, *(called if loaded is None else ()))]
    return dict(sorted(models.items()))


def _content(source: ModelSource, checked: CheckedModel, completed: bool, secrets: bool) -> ModelFiles:
    config = to_pbtxt(checked.config)
    if isinstance(source.config, str) and not source.config_is_json and not completed:
        config = source.config
    files, left_out = folder_files(source.folder, secrets)
    found = ModelFiles(files, left_out)
    parameters = dict(checked.config.parameters)
    environment = environment_parameter(checked.config)
    packs = is_packable(environment)
    if packs:
        del parameters["EXECUTION_ENV_PATH"]
        config = _with_environment(found, config, checked, Path(environment))
    found.files[_CONFIG] = config.encode()
    for number in version_folders(source.folder):
        if not any(path.startswith(f"{number}/") for path in files):
            found.files[f"{number}/{KEEP}"] = b""
    read_code(found, source.folder, secrets)
    if packs:  # the packages of this process are not the model's
        found.packages.clear()
        own = modules_of(Path(environment))
        found.missing = [item for item in found.missing if item[1] not in own]
    found.needs.lines += parameter_needs(source.folder, parameters)
    return found


def _with_environment(found: ModelFiles, config: str, checked: CheckedModel, folder: Path) -> str:
    """Add the archive of an environment to a model's files; return the configuration that names it."""
    name = _ARCHIVE if _ARCHIVE not in found.files else f"environment-{folder.name}.tar.gz"
    found.files[name] = packed_environment(folder)
    python, path = python_of(folder), f"$$TRITON_MODEL_DIRECTORY/{name}"
    if python != IMAGE_PYTHON:
        found.needs.lines.append(
            f"{_CONFIG}: `{name}` is for Python {python}, and the stub of the server's image for {IMAGE_PYTHON}: put a "
            f"`triton_python_backend_stub` for Python {python}, built for the server's release, into the model's folder"
        )
    if sys.platform != "linux":
        found.needs.lines.append(f"{_CONFIG}: `{name}` has programs for {sys.platform}: export it on Linux")
    if str(folder) not in config and "EXECUTION_ENV_PATH" in config:
        config = to_pbtxt(checked.config)
    if str(folder) in config:
        return config.replace(str(folder), path)
    return f'{config}\nparameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}\n'


def obstacles_of(model: ModelToExport) -> Iterator[str]:
    """Yield each reason why a model would not run on a server as it runs here."""
    if model.source.origin == "cell":
        copied = [f"module '{name}' exists only" for name in model.content.copied]  # `stray_import_warnings`
        yield from (line for line in model.source.warnings if not any(words in line for words in copied))
    if model.loaded is not None and model.loaded.seen.stub:
        yield f"model '{model.source.name}' is a stub, which cannot run on a server; unload it, or load a real model"
    for path, text in python_files(model.content.files):
        tree = syntax_tree(text)
        line = (imported_modules(tree) if tree is not None else {}).get(_PACKAGE)
        if line is not None:
            yield (
                f"model '{model.source.name}', {path}, line {line}: it imports {_PACKAGE}, which servers "
                "do not have; use only triton_python_backend_utils, and move the other code to the notebook"
            )


def _describe(
    models: Mapping[str, ModelToExport], place: Path, remote: Mapping[str, str], failed: Mapping[str, str]
) -> Exported:  # fmt: skip
    """Return the record of an export that is about to be written."""
    packages = {name: remark for model in models.values() for name, remark in model.content.packages.items()}
    called = {name for model in models.values() for name in model.calls}
    late = {name for name, model in models.items() if model.content.needs.late}
    checked = {name: model.checked for name, model in models.items()}
    needs = [f"model '{name}', {line}" for name, model in models.items() for line in model.content.needs.lines]
    needs += (f"model '{each.model}': {each.what}: {each.why}" for name in checked
              for each in release_findings(checked[name], checked))  # fmt: skip
    late |= {name for name, model in models.items() if model.spec.scheduler == "ensemble" and late & {*model.calls}}
    return Exported(
        place=shown_path(place),
        models=tuple(_record(model, models, name in late) for name, model in models.items()),
        requirements=tuple(sorted(packages, key=str.lower)),
        remarks=tuple(sorted(filter(None, packages.values()))),
        needs=tuple(needs),
        unknown=tuple((name, *module) for name, model in models.items() for module in model.content.missing),
        secrets=tuple(f"{name}/{path}" for name, model in models.items() for path in model.content.secrets),
        copied=tuple((name, *pair) for name, model in models.items() for pair in model.content.copied.items()),
        failed=tuple(failed.items()),
        shm_bytes=sum(need.bytes for need in shared_memory(checked)),
        python=".".join(map(str, sys.version_info[:2])),
        elsewhere=tuple((name, remote[name]) for name in sorted(called.intersection(remote))),
        options=next((model.loaded.server.command_line for model in models.values() if model.loaded is not None), ()),
    )


def _record(model: ModelToExport, models: Mapping[str, ModelToExport], late: bool) -> ExportedModel:
    spec, content = model.spec, model.content
    sizes = (len(c) if isinstance(c, bytes) else c.stat().st_size for c in content.files.values())
    shapes = (
        f"{each.name}:{','.join(str(1 if length < 0 else length) for length in each.dims)}"
        for each in spec.config.input
        if any(length < 0 for length in each.dims) and not each.optional
    )
    return ExportedModel(
        name=model.source.name, versions=tuple(model.source.versions), calls=model.calls,
        backend="" if spec.scheduler == "ensemble" else spec.backend, source=model.source.origin,
        files=len(content.files), bytes=sum(sizes), loads=tuple(sorted(content.needs.loads)),
        absent=tuple(sorted({*model.calls, *content.needs.loads} - models.keys())), controls=content.needs.controls,
        late=late, at_start=model.loaded is not None and not late, sequences=spec.scheduler == "sequence",
        on_gpu=any(group.kind == group.KIND_GPU for group in spec.config.instance_group),
        decoupled=spec.decoupled, cached=spec.response_cache, shapes=tuple(shapes),
    )  # fmt: skip


def _requirements_file(record: Exported) -> dict[str, str]:
    if not record.requirements:
        return {}
    pinned = f", pinned to the versions installed where they were exported (Python {record.python})"
    pins = any("==" in each for each in record.requirements)
    remarks = [f"Packages that the models import{pinned * pins}", *record.remarks]
    lines = [*(f"# {remark}." for remark in remarks), *record.requirements]
    return {"requirements.txt": "\n".join(lines) + "\n"}
