"""Which models call which, by their sources and configurations, and the order to load them in."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.backends.registry import find_backend
from bls_notebook.engine.errors import BLSError

from .config import ModelConfigMessage
from .loading.ensembles import members_of
from .source.syntax import called_models, syntax_tree

if TYPE_CHECKING:
    from .repository import ModelRepository

_MOST = 1 << 20  # bytes of a source that is read
_MOST_FILES = 200  # the uppermost: some models bring whole packages along


def sources_in(folder: Path) -> Iterator[str]:
    """Yield the Python sources in a folder, those of tests aside."""
    for file in islice(sorted(folder.rglob("*.py"), key=lambda f: (len(f.parts), f)), _MOST_FILES):
        try:
            if file.stat().st_size <= _MOST and not file.name.startswith("test_"):
                yield file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue


def callees(sources: Iterable[str], known: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the models that requests in sources name, which may be missing, and the known ones that any text names."""
    named, said = set[str](), set[str]()
    for source in sources:
        named |= called_models(source)
        tree = syntax_tree(source)
        nodes = ast.walk(tree) if tree is not None else ()
        said |= {
            n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value in known
        }
    return named, said


def in_order(needs: Mapping[str, Collection[str]]) -> list[str]:
    """Return models so that each comes after those that it needs; where they need each other, by name."""
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
    """Return the models that nobody else calls, those that call most first; all where each is called."""
    called = {callee for name, of in needs.items() for callee in of if callee != name}
    found = [name for name in needs if name not in called] or list(needs)
    return sorted(found, key=lambda name: (-len(reached(name, needs)), name))


def reached(name: str, needs: Mapping[str, Collection[str]]) -> set[str]:
    """Return the models that one calls, and that those call."""
    found: set[str] = set()
    todo = [name]
    while todo:
        new = set(needs.get(todo.pop(), ())) - found
        found |= new
        todo += new
    return found


def calls_of(
    name: str, config: ModelConfigMessage, backend: str, sources: Iterable[str], known: Collection[str]
) -> tuple[set[str], set[str]]:
    """Return the models that a model's steps and requests name, and these with all that it may call.

    A known name that only stands as a text in a source or in a parameter may be called.
    """
    steps = set(filter(None, members_of(config)))
    named, said = callees(sources, known)
    if runs_python(backend):
        said |= {p.string_value for p in config.parameters.values() if p.string_value in known}
    return (steps | named) - {name}, (steps | named | said) - {name}


def runs_python(backend: str) -> bool:
    """Whether the models of a backend run Python files of their own."""
    return backend == "python" or (backend != "" and find_backend(backend) is None)


def load_with_callees(repository: ModelRepository, names: Iterable[str] = ()) -> None:
    """Load models, by default all, and what they call, as far as sources and configurations say.

    A BLSError says which cannot be loaded; a model whose name only stands as a text in the code of another may fail.
    """
    known = {record.name for record in repository.index()}
    asked = list(names) or sorted(known)
    certain, loaded = set(asked), set[str]()
    while asked:
        name = asked.pop(0)
        if name in loaded:
            continue
        loaded.add(name)
        try:
            repository.load(name)
        except BLSError:
            if name in certain:
                raise
            continue
        config, folder = repository.config(name), repository._catalog.service.sources[name].folder
        sources = sources_in(folder) if runs_python(config.backend) else ()
        named, called = calls_of(name, config, config.backend, sources, known)
        certain |= named
        asked += sorted(called & known - loaded)
