"""`export`: writes loaded models as a model repository for a server, into a folder or an archive.

Each model is written with its files and the configuration with which it was loaded.

Guarantees: if a model cannot run on a server, nothing is written. The folder is written completely or not at all.
The same models give the same bytes, also after loading them from an export.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from bls_notebook.checking.checked_model import read_model
from bls_notebook.checking.shared_memory import shared_memory
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host, host_of
from bls_notebook.progress import progress
from bls_notebook.repository.call_order import callees
from bls_notebook.repository.config import to_pbtxt
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.source.layout import files_below, shown_path, version_folders
from bls_notebook.repository.source.model_source import ModelSource
from bls_notebook.repository.source.syntax import imported_modules, syntax_tree
from bls_notebook.shipping.records import Exported, ExportedModel

from .deployment import TARGETS, files_for, guide, refuse_replicas
from .folder_writer import Content, is_cache, write_archive, write_folder
from .proof_files import proof_files

_CONFIG = "config.pbtxt"
_KEEP = ".gitkeep"  # in a version folder without files, such as an ensemble's, which git and zip would drop
_PACKAGE = "bls_notebook"
_OF_TRITON = frozenset({"triton_python_backend_utils", "c_python_backend_utils"})


@dataclass(frozen=True)
class Model:
    """One model to export: its files by path in its folder, config.pbtxt included."""

    loaded: LoadedModel  # the newest version
    source: ModelSource
    files: Mapping[str, Content]
    calls: tuple[str, ...]  # models that it has called or names in its code, and ensemble steps

    def imported(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield the path of each Python file, and the line of each top-level module that it imports."""
        for path, text in _python_files(self.files):
            tree = syntax_tree(text)
            yield path, {} if tree is None else imported_modules(tree)


def export(
    place: str | Path,
    *names: str,
    target: str = "",
    replicas: int = 1,
    completed: bool = False,
    requests: Any = None,
    repo: ModelRepository | None = None,
) -> Exported:
    """Write models and their loaded callees as a model repository for a server.

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
    repo : ModelRepository, optional
        Default: `current_repository`.

    Returns
    -------
    Exported

    Raises
    ------
    BLSError
        A model cannot run on a server, or the folder has files that no export wrote. Nothing is written then.
    """
    host = host_of(repo)
    if target and target not in TARGETS:
        raise BLSError(f"export: target: got {target!r}, expected one of {', '.join(TARGETS)}")
    for name in names:
        host.ready(name)  # or ModelNotFoundError
    loaded = filter(None, map(host.find, host.names()))
    remote = {model.name: model.seen.remote for model in loaded if model.seen.remote}
    if refused := [f"'{name}' ({remote[name]})" for name in names if name in remote]:
        raise BLSError(
            f"export: {', '.join(refused)}: the files of a remote model are on its server; export the other "
            "models, and deploy them on that server or add the remote model to theirs"
        )
    selected = list(names) or [name for name in host.names() if name not in remote]
    if not selected:
        raise BLSError("export: no model is loaded; load or define one first")
    if not isinstance(place, (str, Path)) or not str(place).strip():
        raise BLSError(f"export: got {place!r}, expected the path of a folder or of a .zip file")
    folder = Path(place).expanduser()
    with progress(f"exporting to {shown_path(folder)}"):
        models = _collect(host, selected, completed)
        if reasons := [reason for model in models.values() for reason in _obstacles(model)]:
            lines = "\n  ".join(reasons)
            raise BLSError(f"export: nothing was written, because this would fail on a server:\n  {lines}")
        record = _describe(models, selected, folder, remote)
        refuse_replicas(target, replicas, record)
        texts = files_for(target, record, replicas) if target else {}
        if requests is not None:
            specs = {name: models[name].loaded.spec for name in selected if name in models}
            texts |= proof_files(specs, requests, host.repository)
        record = replace(record, target=target, files=tuple(texts), replicas=replicas)
        files: dict[str, Content] = {
            f"{name}/{path}": content for name, model in models.items() for path, content in model.files.items()
        }
        texts = {"README.md": guide(record), **_requirements_file(record), **texts}
        files |= {name: text.encode() for name, text in texts.items()}
        (write_archive if folder.suffix == ".zip" else write_folder)(folder, files)
    return record


def _collect(host: Host, names: Iterable[str], completed: bool) -> dict[str, Model]:
    """Return these models and their direct and indirect callees, if they are loaded here."""
    known = frozenset(host.names())
    models: dict[str, Model] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        loaded = host.find(name)
        if name in models or loaded is None:
            continue
        source = host.source(name, loaded=True)
        if source.remote is not None:
            continue
        files = dict(_files(loaded, source, completed))
        steps = (step.model_name for step in loaded.spec.config.ensemble_scheduling.step)
        called = {*loaded.calls, *steps}
        texts = [text for _, text in _python_files(files)]
        if any("InferenceRequest" in text for text in texts):
            # Code often computes a callee's name or reads it from a parameter, so every mention of a model counts.
            requested, mentioned = callees(texts, known)
            called |= requested | mentioned | (known & set(loaded.spec.parameters.values()))
        models[name] = Model(loaded, source, files, tuple(sorted(called - {name})))
        todo += called
    return dict(sorted(models.items()))


def _python_files(files: Mapping[str, Content]) -> Iterator[tuple[str, str]]:
    for path, content in files.items():
        if path.endswith(".py"):
            data = content if isinstance(content, bytes) else content.read_bytes()
            yield path, data.decode("utf-8", "replace")


def _files(loaded: LoadedModel, source: ModelSource, completed: bool) -> Iterator[tuple[str, Content]]:
    config = source.config
    if isinstance(config, str) and not source.config_is_json and not completed:
        yield _CONFIG, config.encode()
    else:
        yield _CONFIG, to_pbtxt(loaded.spec.config).encode()
    for path in map(Path, files_below(source.folder)):
        name = path.relative_to(source.folder).as_posix()
        if name != _CONFIG and not is_cache(PurePosixPath(name)) and path.is_file():
            yield name, path
    for number, folder in version_folders(source.folder).items():
        if not any(folder.iterdir()):
            yield f"{number}/{_KEEP}", b""


def _obstacles(model: Model) -> Iterator[str]:
    """Yield each reason why a model would not run on a server as it runs here."""
    if model.source.origin == "cell":
        yield from model.source.warnings
    if model.loaded.seen.stub:
        yield f"model '{model.source.name}' is a stub, which cannot run on a server; unload it, or load a real model"
    for path, modules in model.imported():
        if _PACKAGE in modules:
            yield (
                f"model '{model.source.name}', {path}, line {modules[_PACKAGE]}: it imports {_PACKAGE}, which servers "
                "do not have; use only triton_python_backend_utils, and move the other code to the notebook"
            )


def _describe(models: Mapping[str, Model], selected: Sequence[str], place: Path, remote: Mapping[str, str]) -> Exported:
    """Return the record of an export that is about to be written."""
    imported: set[str] = set()
    for model in models.values():
        own_modules = {part for path, _ in _python_files(model.files) for part in path.removesuffix(".py").split("/")}
        imported |= {name for _, modules in model.imported() for name in modules} - own_modules
    requirements, unknown = _requirements(imported - _OF_TRITON - sys.stdlib_module_names)
    needs = shared_memory({name: read_model(model.source, model.loaded) for name, model in models.items()})
    called = {name for model in models.values() for name in model.calls}
    return Exported(
        place=shown_path(place),
        models=tuple(_record(model, models, name in selected) for name, model in models.items()),
        requirements=requirements,
        unknown=unknown,
        shm_bytes=sum(need.bytes for need in needs),
        python=".".join(map(str, sys.version_info[:2])),
        elsewhere=tuple((name, remote[name]) for name in sorted(called.intersection(remote))),
    )


def _record(model: Model, models: Mapping[str, Model], asked: bool) -> ExportedModel:
    spec = model.loaded.spec
    sizes = (len(c) if isinstance(c, bytes) else c.stat().st_size for c in model.files.values())
    return ExportedModel(
        name=model.source.name,
        versions=tuple(model.source.versions),
        backend="" if spec.scheduler == "ensemble" else spec.backend,
        source=model.source.origin,
        files=len(model.files),
        bytes=sum(sizes),
        asked=asked,
        calls=model.calls,
        absent=tuple(name for name in model.calls if name not in models),
        on_gpu=any(group.kind == group.KIND_GPU for group in spec.config.instance_group),
        sequences=spec.scheduler == "sequence",
        decoupled=spec.decoupled,
        shapes=tuple(
            f"{each.name}:{','.join(str(1 if length < 0 else length) for length in each.dims)}"
            for each in spec.config.input
            if any(length < 0 for length in each.dims) and not each.optional
        ),
    )


_distributions = cache(metadata.packages_distributions)  # takes some 0.3 s


def _requirements(modules: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the pip requirements of modules, pinned to the installed versions, and the modules not installed.

    A version's local part (``+cpu``) is omitted, because an index may not have that build. NumPy is always 1.x,
    because the stub process of a server's Python backend is built for it (build.py in Triton's server repository).
    """
    distributions = _distributions()
    pinned: set[str] = set()
    for name in {each for module in modules for each in distributions.get(module, ())}:
        version = metadata.version(name).partition("+")[0]
        pinned.add("numpy<2" if name.lower() == "numpy" else f"{name}=={version}")
    missing = (module for module in modules if not distributions.get(module))
    return tuple(sorted(pinned, key=str.lower)), tuple(sorted(missing))


def _requirements_file(record: Exported) -> dict[str, str]:
    if not record.requirements and not record.unknown:
        return {}
    lines = [f"# Packages that the models import, with the exporting Python's versions ({record.python}; NumPy: 1.x)."]
    lines += record.requirements
    lines += [f"# imported, but not installed where the models were exported: {name}" for name in record.unknown]
    return {"requirements.txt": "\n".join(lines) + "\n"}
