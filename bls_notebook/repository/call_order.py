"""Find the callees of models in their sources and configurations, and the order in which to load them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.backends.protocol import find_backend
from bls_notebook.engine.errors import BLSError
from bls_notebook.records.regular_file import source_text

from .config import ModelConfigMessage
from .loading.ensembles import members_of
from .source.code_analysis import called_models, syntax_tree
from .source.model_folders import python_files

if TYPE_CHECKING:
    from .repository import ModelRepository

_MOST_FILES = 200  # of the uppermost folders: some models contain whole packages


def sources_in(folder: Path) -> Iterator[str]:
    """Yield the Python sources in a folder, except tests."""
    for file in islice(sorted(python_files(folder), key=lambda f: (len(f.parts), f)), _MOST_FILES):
        if not file.name.startswith("test_"):
            yield source_text(file)


def callees(sources: Iterable[str], known: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the models that requests name, which may not exist, and the known models named in any string literal."""
    named, mentioned = set[str](), set[str]()
    for source in sources:
        named |= called_models(source)
        tree = syntax_tree(source)
        nodes = ast.walk(tree) if tree is not None else ()
        mentioned |= {
            n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value in known
        }
    return named, mentioned


def in_order(needs: Mapping[str, Collection[str]]) -> list[str]:
    """Return the models sorted so that each follows the models that it needs; cycles are broken by name."""
    out: dict[str, None] = {}
    for first in sorted(needs):
        stack = [(first, iter(sorted(needs[first])))]
        open_ = {first}
        while stack:
            name, rest = stack[-1]
            following = next((n for n in rest if n in needs and n not in out and n not in open_), None)
            if following is None:
                stack.pop()
                out.setdefault(name)
            else:
                open_.add(following)
                stack.append((following, iter(sorted(needs[following]))))
    return list(out)


def entries(needs: Mapping[str, Collection[str]]) -> list[str]:
    """Return the models without callers, the one with most callees first; all models if each has a caller."""
    called = {callee for name, callees in needs.items() for callee in callees if callee != name}
    uncalled = [name for name in needs if name not in called] or list(needs)
    return sorted(uncalled, key=lambda name: (-len(reached(name, needs)), name))


def reached(name: str, needs: Mapping[str, Collection[str]]) -> set[str]:
    """Return the direct and indirect callees of a model."""
    callees: set[str] = set()
    pending = [name]
    while pending:
        new = set(needs.get(pending.pop(), ())) - callees
        callees |= new
        pending += new
    return callees


def calls_of(
    name: str, config: ModelConfigMessage, backend: str, sources: Iterable[str], known: Collection[str]
) -> tuple[set[str], set[str]]:
    """Return a model's certain callees, named by its steps and requests, and these with its possible callees.

    A known model whose name is only a string literal in a source, or a parameter's value, is a possible callee.
    """
    steps = set(filter(None, members_of(config)))
    named, mentioned = callees(sources, known)
    if runs_python(backend):
        mentioned |= {p.string_value for p in config.parameters.values() if p.string_value in known}
    return (steps | named) - {name}, (steps | named | mentioned) - {name}


def runs_python(backend: str) -> bool:
    """Return whether models of this backend have Python code: the Python backend or an unknown, Python-based one."""
    return backend == "python" or (backend != "" and find_backend(backend) is None)


def load_with_callees(repository: ModelRepository, names: Iterable[str] = ()) -> None:
    """Load models (default: all) with the callees that their sources and configurations name.

    Raises a BLSError if a requested model or a certain callee cannot be loaded; possible callees may fail.
    """
    known = {record.name for record in repository.index()}
    pending = list(names) or sorted(known)
    certain, loaded = set(pending), set[str]()
    while pending:
        name = pending.pop(0)
        if name in loaded:
            continue
        loaded.add(name)
        try:
            repository.load(name)
        except BLSError:
            if name in certain:
                raise
            continue
        config, folder = repository.config(name), repository._service.sources[name].folder
        sources = sources_in(folder) if runs_python(config.backend) else ()
        named, called = calls_of(name, config, config.backend, sources, known)
        certain |= named
        pending += sorted(called & known - loaded)
