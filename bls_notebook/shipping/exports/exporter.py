"""`export`: write the models that serve here as a model repository for a server, a folder or an archive.

A model ships as it is loaded: its files, and the configuration that it was loaded with.

Guarantees: nothing is written if a model cannot ship; the folder is written completely or not at all; the same
models give the same bytes, and so does an export of what was loaded from one.
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
    """One model that ships: its files by their paths in its folder, its configuration among them."""

    loaded: LoadedModel  # the newest version
    source: ModelSource
    files: Mapping[str, Content]
    calls: tuple[str, ...]  # models that it has called, names in its code, or has as steps

    def imported(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield the path of each Python file, and the top-level modules that it imports, with their lines."""
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
    """Write models as a model repository for a server, with all that they call and that serves.

    Parameters
    ----------
    place : str or Path
        A folder (replaced if an export wrote it), or a file that ends with ``.zip``.
    *names : str
        Names of loaded models; by default all.
    target : str
        Where they are to be served: ``docker``, ``compose``, ``kubernetes``, ``kserve`` or ``dynamo``.
    replicas : int
        Servers behind HAProxy; more than one for ``compose`` only, and no models with sequences.
    completed : bool
        Whether each config.pbtxt is written as completed; else it is as it was given.
    requests : mapping of str to sequence of mapping, or recording, optional
        What models are asked. The export has the answers then, to prove and to measure elsewhere.
    repo : ModelRepository, optional
        Default: `current_repository`.

    Returns
    -------
    Exported

    Raises
    ------
    BLSError
        A model cannot ship, or something in the folder was not exported; nothing has changed then.
    """
    host = host_of(repo)
    if target and target not in TARGETS:
        raise BLSError(f"export: for: got {target!r}, expected one of {', '.join(TARGETS)}")
    for name in names:
        host.ready(name)  # or ModelNotFoundError
    found = filter(None, map(host.find, host.names()))
    remote = {model.name: model.seen.remote for model in found if model.seen.remote}
    if refused := [f"'{name}' ({remote[name]})" for name in names if name in remote]:
        raise BLSError(
            f"export: {', '.join(refused)}: a remote model is served already, and its files are there; export "
            "the others, and have a server with both"
        )
    named = list(names) or [name for name in host.names() if name not in remote]
    if not named:
        raise BLSError("export: no model is loaded; load or define one first")
    if not isinstance(place, (str, Path)) or not str(place).strip():
        raise BLSError(f"export: got {place!r}, expected the path of a folder, or of a file that ends with .zip")
    folder = Path(place).expanduser()
    with progress(f"exporting to {shown_path(folder)}"):
        models = _collect(host, named, completed)
        if reasons := [reason for model in models.values() for reason in _obstacles(model)]:
            lines = "\n  ".join(reasons)
            raise BLSError(f"export: nothing was written, since this would fail on a server:\n  {lines}")
        record = _describe(models, named, folder, remote)
        refuse_replicas(target, replicas, record)
        texts = files_for(target, record, replicas) if target else {}
        if requests is not None:
            specs = {name: models[name].loaded.spec for name in named if name in models}
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
    """Return these models and their direct and indirect callees, as far as they serve here."""
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
            # A request often gets the name from a helper or a parameter, so names of models anywhere count.
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
    given = source.config
    if isinstance(given, str) and not source.config_is_json and not completed:
        yield _CONFIG, given.encode()
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
    """Yield why a model would not run on a server as it runs here."""
    if model.source.origin == "cell":
        yield from model.source.warnings
    if model.loaded.seen.stub:
        yield f"model '{model.source.name}' is a stub, which a server has no use for; unload it, or make it real"
    for path, modules in model.imported():
        if _PACKAGE in modules:
            yield (
                f"model '{model.source.name}', {path}, line {modules[_PACKAGE]}: it imports {_PACKAGE}, which is no "
                "part of a server; use triton_python_backend_utils alone, and move the rest to the notebook"
            )


def _describe(models: Mapping[str, Model], named: Sequence[str], place: Path, remote: Mapping[str, str]) -> Exported:
    """Return the record of an export before it is written."""
    imported: set[str] = set()
    for model in models.values():
        own = {part for path, _ in _python_files(model.files) for part in path.removesuffix(".py").split("/")}
        imported |= {name for _, modules in model.imported() for name in modules} - own
    requirements, unknown = _requirements(imported - _OF_TRITON - sys.stdlib_module_names)
    needs = shared_memory({name: read_model(model.source, model.loaded) for name, model in models.items()})
    called = {name for model in models.values() for name in model.calls}
    return Exported(
        place=shown_path(place),
        models=tuple(_record(model, models, name in named) for name, model in models.items()),
        requirements=requirements,
        unknown=unknown,
        shm_bytes=sum(need.bytes for need in needs),
        python=".".join(map(str, sys.version_info[:2])),
        elsewhere=tuple((name, remote[name]) for name in sorted(called.intersection(remote))),
    )


def _record(model: Model, models: Mapping[str, Model], named: bool) -> ExportedModel:
    spec = model.loaded.spec
    sizes = (len(c) if isinstance(c, bytes) else c.stat().st_size for c in model.files.values())
    return ExportedModel(
        name=model.source.name,
        versions=tuple(model.source.versions),
        backend="" if spec.scheduler == "ensemble" else spec.backend,
        source=model.source.origin,
        files=len(model.files),
        bytes=sum(sizes),
        asked=named,
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

    A version's local part (``+cpu``) is left out: it names a build that an index may not have. Python models
    on a server take NumPy 1, for which their process is built, whatever is installed here (server/build.py).
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
    lines = [f"# What the models import, as it is where they ran (Python {record.python})."]
    lines += record.requirements
    lines += [f"# imported, and not installed where they ran: {name}" for name in record.unknown]
    return {"requirements.txt": "\n".join(lines) + "\n"}
