"""The rules of the package's structure, checked without importing it.

The core never imports a capability. A capability imports another one only in the pairs of `PAIRS`. Only
`repository` uses a repository's underscore names. A public class name has one meaning. No imports in cycles,
no module over 600 lines. Imports for type checking and inside functions count. By hand, or by ``make lint``::

    python tests/packaging/structure.py
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "bls_notebook"
MOST_LINES = 600

CAPABILITIES = (
    "simulation", "engines", "profiling", "lifetimes", "inspection", "checking", "trying", "network",
    "shipping", "testing", "course",
)  # fmt: skip
PAIRS = {
    "inspection": {"lifetimes"},
    "network": {"profiling"},
    "checking": {"engines"},
    "engines": {"simulation"},
    "shipping": {"network", "checking", "trying"},
    "testing": {"profiling", "lifetimes", "checking", "trying", "shipping"},
    "course": {"testing", "profiling", "lifetimes"},
}
UNDERSCORE_NAMES = {"_server", "_sender", "_service"}


class Package:
    """The modules of a package with their syntax trees and imports."""

    def __init__(self, root: Path) -> None:
        self.name = root.name
        self.files: dict[str, Path] = {}
        for file in sorted(root.rglob("*.py")):
            parts = file.relative_to(root.parent).with_suffix("").parts
            self.files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
        self.texts = {name: file.read_text(encoding="utf-8") for name, file in self.files.items()}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}
        self.imports = {name: self._imports(name) for name in self.files}

    def is_package(self, module: str) -> bool:
        """Whether a module is the `__init__` of a package."""
        return self.files[module].name == "__init__.py"

    def capability(self, module: str) -> str:
        """Return the capability that a module belongs to; empty for the core."""
        folder = module.split(".")[1] if "." in module else ""
        return folder if folder in CAPABILITIES else ""

    def _imports(self, module: str) -> set[str]:
        parent = module.split(".") if self.is_package(module) else module.split(".")[:-1]
        found = set()
        for node in ast.walk(self.trees[module]):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = parent[: len(parent) - node.level + 1] if node.level else []
                head = ".".join([*base, *([node.module] if node.module else [])])
                names = [f"{head}.{alias.name}" for alias in node.names]
            for target in names:
                while target and target not in self.files:
                    target = target.rpartition(".")[0]
                if target and target != module:
                    found.add(target)
        return found


def cycles(package: Package) -> list[list[str]]:
    """Return the groups of modules that import each other. (Packages' `__init__` do not count.)"""
    edges = {
        name: {target for target in targets if not package.is_package(target)}
        for name, targets in package.imports.items()
    }

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for target in edges[todo.pop()] - seen:
                seen.add(target)
                todo.append(target)
        return seen

    after = {name: reachable(name) for name in edges}
    groups = {tuple(sorted(n for n in after[name] if name in after[n])) for name in edges if name in after[name]}
    return [list(group) for group in sorted(groups)]


def violations(root: Path = PACKAGE) -> list[str]:
    """Return every violation of a rule, a line each, sorted."""
    package = Package(root)
    found = [f"cycle: {', '.join(group)}" for group in cycles(package)]
    for name, text in package.texts.items():
        count = len(text.splitlines())
        if count > MOST_LINES:
            found.append(f"long: {name}: {count} lines, at most {MOST_LINES}")
    found += _forbidden_imports(package)
    found += _capability_names_in_core(package)
    found += _underscore_names(package)
    found += _class_names_used_twice(package)
    return sorted(set(found))


def _forbidden_imports(package: Package) -> Iterator[str]:
    for importer, targets in package.imports.items():
        if importer == package.name:
            continue  # its public names are for type checkers; capabilities register them
        source = package.capability(importer)
        for target in targets:
            other = package.capability(target)
            if other and not source:
                yield f"core imports a capability: {importer} -> {target}"
            elif other and other != source and other not in PAIRS.get(source, ()):
                yield f"pair not listed: {importer} -> {target}"


def _capability_names_in_core(package: Package) -> Iterator[str]:
    for module, tree in package.trees.items():
        if package.capability(module):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                dotted = node.value.removeprefix(package.name).lstrip(".")
                head = dotted.split(".")[0]
                if "." in dotted and head in CAPABILITIES and dotted.replace(".", "").replace("_", "").isalnum():
                    yield f"core names a capability's module: {module}: {node.value}"


def _underscore_names(package: Package) -> Iterator[str]:
    for module, tree in package.trees.items():
        if module.startswith(f"{package.name}.repository"):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or node.attr not in UNDERSCORE_NAMES:
                continue
            of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not of_self:
                yield f"underscore name of a repository: {module}: {ast.unparse(node)}"


def _class_names_used_twice(package: Package) -> Iterator[str]:
    modules = defaultdict(set)
    for module, tree in package.trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].add(module)
    for name, found in modules.items():
        if len(found) > 1:
            yield f"class name used twice: {name}: {', '.join(sorted(found))}"


if __name__ == "__main__":
    wrong = violations()
    print("\n".join(wrong) or "The structure follows the rules.")
    sys.exit(bool(wrong))
