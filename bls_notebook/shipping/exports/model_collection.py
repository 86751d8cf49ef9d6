"""Collect the models of an export with their files and packages, and explain why a model cannot ship.

A model ships as it is loaded: its files, and the configuration that it was loaded with.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host
from bls_notebook.repository.call_order import callees
from bls_notebook.repository.config import to_pbtxt
from bls_notebook.repository.source.layout import files_below, version_folders
from bls_notebook.repository.source.model_source import ModelSource
from bls_notebook.repository.source.syntax import imported_modules, syntax_tree

from .folder_writer import Content, is_cache

CONFIG = "config.pbtxt"
KEPT = ".gitkeep"  # in a version folder that is empty, as of ensembles: git and zip keep no such folder
_OURS = "bls_notebook"


@dataclass(frozen=True)
class Model:
    """One model that ships: its files by their paths in its folder, its configuration among them."""

    loaded: LoadedModel  # the newest version
    source: ModelSource
    files: Mapping[str, Content]
    calls: tuple[str, ...]  # models that it has called, names in its code, or has as steps

    @property
    def name(self) -> str:
        return self.source.name


def collect(host: Host, names: Iterable[str], completed: bool) -> dict[str, Model]:
    """Return the models of these names and all that they call, as far as they serve here.

    Each config.pbtxt is the `completed` configuration if so; else as it was given, where that is text.
    """
    known = frozenset(host.names())
    out: dict[str, Model] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        loaded = host.find(name)
        if name in out or loaded is None:
            continue
        source = host.source(name, loaded=True)
        if source.remote is not None:
            continue
        files = dict(_files(loaded, source, completed))
        steps = (step.model_name for step in loaded.spec.config.ensemble_scheduling.step)
        called = {*loaded.calls, *steps, *_named(loaded, files, known)} - {name}
        out[name] = Model(loaded, source, files, tuple(sorted(called)))
        todo += called
    return dict(sorted(out.items()))


def remote_models(host: Host) -> dict[str, str]:
    """Return the models that servers elsewhere run, each with the address of its server."""
    found = filter(None, map(host.find, host.names()))
    return {model.name: model.seen.remote for model in found if model.seen.remote}


def elsewhere(models: Mapping[str, Model], remote: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the remote models that models call, each with the address of its server."""
    called = {name for model in models.values() for name in model.calls}
    return tuple((name, remote[name]) for name in sorted(called.intersection(remote)))


def refuse_remote(names: Iterable[str], remote: Mapping[str, str]) -> None:
    """Raise for models that a server elsewhere runs: there is nothing of them here to be written."""
    told = [f"'{name}' ({remote[name]})" for name in names if name in remote]
    if told:
        raise BLSError(
            f"export: {', '.join(told)}: a remote model is served already, and its files are there; export "
            "the others, and have a server with both"
        )


def _named(loaded: LoadedModel, files: Mapping[str, Content], known: Set[str]) -> set[str]:
    """Models that requests in its code name, and those that serve and whose names stand there as texts.

    Names often go through a helper of the model's own or a parameter of its configuration, so that no request
    has them plainly.
    """
    sources = [text for _, text in python_files(files)]
    if not any("InferenceRequest" in text for text in sources):
        return set()
    named, said = callees(sources, known)
    return named | said | (known & set(loaded.spec.parameters.values()))


def python_files(files: Mapping[str, Content]) -> Iterator[tuple[str, str]]:
    """Yield the Python files among files: where each is, and its text."""
    for path, content in files.items():
        if path.endswith(".py"):
            data = content if isinstance(content, bytes) else content.read_bytes()
            yield path, data.decode("utf-8", "replace")


def _files(loaded: LoadedModel, source: ModelSource, completed: bool) -> Iterator[tuple[str, Content]]:
    yield CONFIG, _config(loaded, source, completed)
    versions = version_folders(source.folder)
    for path in map(Path, files_below(source.folder)):
        name = path.relative_to(source.folder).as_posix()
        if name == CONFIG or is_cache(PurePosixPath(name)) or not path.is_file():
            continue
        yield name, path
    for number, folder in versions.items():
        if not any(folder.iterdir()):
            yield f"{number}/{KEPT}", b""


def _config(loaded: LoadedModel, source: ModelSource, completed: bool) -> bytes:
    """Its config.pbtxt: what was given, where that is text; else what it was completed to."""
    given = source.config
    if isinstance(given, str) and not source.config_is_json and not completed:
        return given.encode()
    return to_pbtxt(loaded.spec.config).encode()


def refuse_unfit(models: Mapping[str, Model]) -> None:
    """Raise for models that would not run on a server as they run here, with every reason."""
    reasons = [reason for model in models.values() for reason in _reasons(model)]
    if reasons:
        told = "\n  ".join(reasons)
        raise BLSError(f"export: nothing was written, since this would fail on a server:\n  {told}")


def _reasons(model: Model) -> Iterator[str]:
    if model.source.origin == "cell":
        yield from model.source.warnings
    if model.loaded.seen.stub:
        yield f"model '{model.name}' is a stub, which a server has no use for; unload it, or make it real"
    for path, text in python_files(model.files):
        for line in _lines_with_us(text):
            yield (
                f"model '{model.name}', {path}, line {line}: it imports {_OURS}, which is no part of a "
                "server; use triton_python_backend_utils alone, and move the rest to the notebook"
            )


def _lines_with_us(text: str) -> list[int]:
    """Lines that import this package."""
    tree = syntax_tree(text)
    nodes = [] if tree is None else list(ast.walk(tree))
    names = [(n.lineno, alias.name) for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    names += [(n.lineno, n.module or "") for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]
    return sorted({line for line, name in names if name.partition(".")[0] == _OURS})


def total_bytes(models: Iterable[Model]) -> int:
    """Return how large all files are together."""
    contents = [content for model in models for content in model.files.values()]
    return sum(len(c) if isinstance(c, bytes) else c.stat().st_size for c in contents)


_OF_TRITON = frozenset({"triton_python_backend_utils", "c_python_backend_utils"})


def imported_names(sources: Iterable[tuple[str, str]]) -> set[str]:
    """Return the top-level modules that a model's sources, by path and text, import from elsewhere."""
    texts = dict(sources)
    own = {part for path in texts for part in path.removesuffix(".py").split("/")}
    found: set[str] = set()
    for text in texts.values():
        tree = syntax_tree(text)
        found.update(imported_modules(tree) if tree is not None else ())
    return found - own - _OF_TRITON - sys.stdlib_module_names


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def requirements(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return pip requirements of modules, pinned to the versions that are here, and the modules that are not.

    A version's local part (``+cpu``) is left out: it names a build that an index may not have. Python models
    on a server take NumPy 1, for which their process is built, whatever there is here (server/build.py).
    """
    pinned: set[str] = set()
    missing: set[str] = set()
    for name in names:
        found = _distributions().get(name, ())
        pinned.update(_pinned(each) for each in found)
        if not found:
            missing.add(name)
    return tuple(sorted(pinned, key=str.lower)), tuple(sorted(missing))


def _pinned(distribution: str) -> str:
    if distribution.lower() == "numpy":
        return "numpy<2"
    return f"{distribution}=={metadata.version(distribution).partition('+')[0]}"
