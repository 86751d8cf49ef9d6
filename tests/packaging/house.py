"""Order in the package: no imports in circles, at most 20 modules a folder, no module over 400 lines.

Imports for type checking and inside functions count too. Run it by hand, or by ``make lint``::

    python tests/packaging/house.py
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "bls_notebook"
MOST_MODULES = 20  # in a folder, `__init__` aside
MOST_LINES = 400

# Exceptions, as they were when this check came: circles, folders with more modules, longer modules.
CIRCLES: list[list[str]] = []
FOLDERS: dict[str, int] = {}
MODULES: dict[str, int] = {}


def modules(root: Path) -> dict[str, Path]:
    """Return the modules of a package, by their dotted names."""
    out = {}
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return out


def imported(name: str, file: Path) -> Iterator[str]:
    """Return the names that a module imports, as far as they can be modules."""
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            head = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{head}.{each.name}" for each in node.names)


def imports(known: dict[str, Path]) -> dict[str, set[str]]:
    """Return which modules each module imports. (What a package's `__init__` hands on is not followed.)"""
    out: dict[str, set[str]] = {name: set() for name in known}
    for name, file in known.items():
        for target in imported(name, file):
            while target and target not in known:
                target = target.rpartition(".")[0]
            if target and target != name and known[target].name != "__init__.py":
                out[name].add(target)
    return out


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for target in edges[todo.pop()] - seen:
                seen.add(target)
                todo.append(target)
        return seen

    after = {name: reachable(name) for name in edges}
    groups = {
        tuple(sorted(n for n in after[name] if name in after[n])) for name in edges if name in after[name]
    }
    return [list(group) for group in sorted(groups)]


def complaints(root: Path = PACKAGE) -> list[str]:
    """Return what is out of order, a line each."""
    known = modules(root)
    out = [
        f"imports in a circle: {', '.join(group)}"
        for group in circles(imports(known))
        if group not in CIRCLES
    ]
    folders = Counter(file.parent for file in known.values() if file.name != "__init__.py")
    for folder, count in sorted(folders.items()):
        name = folder.relative_to(root.parent).as_posix()
        if count > FOLDERS.get(name, MOST_MODULES):
            out.append(f"{name}: {count} modules, at most {FOLDERS.get(name, MOST_MODULES)}")
    for name, file in known.items():
        lines = len(file.read_text(encoding="utf-8").splitlines())
        if lines > MODULES.get(name, MOST_LINES):
            out.append(f"{name}: {lines} lines, at most {MODULES.get(name, MOST_LINES)}")
    return out


if __name__ == "__main__":
    found = complaints()
    print("\n".join(found) or "The house is in order.")
    sys.exit(bool(found))
