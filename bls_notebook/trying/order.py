"""Who calls whom in a repository that nobody has run yet, as far as sources and configurations tell. Pure."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from bls_notebook.repository.callers import called_models
from bls_notebook.repository.source.syntax import syntax_tree

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
    """Return the models that sources call: those that requests name, and the known ones that any text names.

    Names of the first kind need not be known: their model may be missing.
    """
    named: set[str] = set()
    said: set[str] = set()
    for source in sources:
        named |= called_models(source)
        tree = syntax_tree(source)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in known:
                said.add(node.value)
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
