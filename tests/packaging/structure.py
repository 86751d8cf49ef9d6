"""The rules of the package's structure, checked without importing it.

The core never imports a capability. Each `capability.py` declares the other capabilities that its folder imports:
`needs` (when a module is imported) and `uses` (only inside functions, or for type checking). Every imported one is
declared, every declared one is imported, and the picture in CONTRIBUTING.md draws the declared arrows. Of the core,
capabilities import only the modules of `INTERFACE` in extending.py, whose packages offer only names that are used. Only
`repository` uses a repository's underscore names. A public class name has one meaning. No imports in cycles, no module
over 600 lines. Imports for type checking and inside functions count.
By hand, or by ``make lint``::

    python tests/packaging/structure.py
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeGuard

PACKAGE = Path(__file__).resolve().parents[2] / "bls_notebook"
PICTURE = PACKAGE.parent / "docs/explanation/architecture.md"
MOST_LINES = 600
MOST_INTERFACE = 25  # modules

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
        self.capabilities = [file.parent.name for file in sorted(root.glob("*/capability.py"))]
        # Modules by the module that imports them when it is imported itself, and by the one that imports them at all
        self.needed = {name: self._imports(name, _run_at_import(tree)) for name, tree in self.trees.items()}
        self.imports = {name: self._imports(name, ast.walk(tree)) for name, tree in self.trees.items()}

    def is_package(self, module: str) -> bool:
        """Whether a module is the `__init__` of a package."""
        return self.files[module].name == "__init__.py"

    def capability(self, module: str) -> str:
        """Return the capability that a module belongs to; empty for the core."""
        folder = module.split(".")[1] if "." in module else ""
        return folder if folder in self.capabilities else ""

    def declared(self, capability: str, keyword: str) -> set[str]:
        """Return the capabilities that a capability lists in a keyword of its declaration, `needs` or `uses`."""
        calls = (node for node in ast.walk(self.trees[f"{self.name}.{capability}.capability"]) if _is_declaration(node))
        return {
            each
            for call in calls
            for word in call.keywords
            if word.arg == keyword
            for each in ast.literal_eval(word.value)
        }

    def offered(self, module: str) -> set[str]:
        """Return the names that a package of the core offers with `offer`."""
        calls = (node.value for node in self.trees[module].body if isinstance(node, ast.Expr))
        tables = (
            ast.literal_eval(c.args[1]) for c in calls if isinstance(c, ast.Call) and ast.unparse(c.func) == "offer"
        )
        return {name for table in tables for names in table.values() for name in names.split()}

    def interface(self) -> list[str]:
        """Return the modules of the core that capabilities may import: `INTERFACE` in `extending.py`."""
        extending = self.trees.get(f"{self.name}.extending", ast.Module([], []))
        lists = (node.value for node in extending.body if ast.unparse(node).startswith("INTERFACE = "))
        return [f"{self.name}.{module}" for each in lists for module in ast.literal_eval(each)]

    def _imports(self, module: str, nodes: Iterable[ast.AST]) -> set[str]:
        """Return the modules that some statements of a module import."""
        found = set()
        for target in self._imported_names(module, nodes):
            while target and target not in self.files:
                target = target.rpartition(".")[0]
            if target and target != module:
                found.add(target)
        return found

    def _imported_names(self, module: str, nodes: Iterable[ast.AST]) -> Iterator[str]:
        parent = module.split(".") if self.is_package(module) else module.split(".")[:-1]
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = parent[: len(parent) - node.level + 1] if node.level else []
                head = ".".join([*base, *([node.module] if node.module else [])])
                yield from (f"{head}.{alias.name}" for alias in node.names)

    def used_names(self) -> set[str]:
        """Return the dotted names that are imported, and those that may be attributes of an imported package."""
        found = set()
        for module, tree in self.trees.items():
            names = set(self._imported_names(module, ast.walk(tree)))
            packages = [name for name in names & self.files.keys() if self.is_package(name)]
            read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} if packages else set()
            found |= names | {f"{package}.{name}" for package in packages for name in read}
        return found


def _is_declaration(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "Capability"


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Return the statements that run when a module is imported."""
    for child in ast.iter_child_nodes(node):
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not typing_only and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _run_at_import(child)


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


def violations(root: Path = PACKAGE, picture: Path = PICTURE) -> list[str]:
    """Return every violation of a rule, a line each, sorted."""
    package = Package(root)
    found = [f"cycle: {', '.join(group)}" for group in cycles(package)]
    for name, text in package.texts.items():
        count = len(text.splitlines())
        if count > MOST_LINES:
            found.append(f"long: {name}: {count} lines, at most {MOST_LINES}")
    found += _imports_of_capabilities(package)
    found += _arrows(package, picture)
    found += _imports_of_core(package)
    found += _capability_names_in_core(package)
    found += _underscore_names(package)
    found += _type_names_used_twice(package)
    return sorted(set(found))


def _imports_of_capabilities(package: Package) -> Iterator[str]:
    """Compare the imports between capabilities with their declarations."""
    needed, used = defaultdict(set), defaultdict(set)
    for importer, targets in package.imports.items():
        source = package.capability(importer)
        for target in targets:
            other = package.capability(target)
            if other and not source and importer != package.name:  # whose own names are for type checkers
                yield f"core imports a capability: {importer} -> {target}"
            elif other and source and other != source:
                at_import = target in package.needed[importer]
                (needed if at_import else used)[source].add(other)
                keyword = "needs" if at_import else "needs or uses"
                if not any(other in package.declared(source, each) for each in keyword.split(" or ")):
                    yield f"import not declared: {importer} -> {target}: add {other!r} to {keyword} of {source}"
    for name in package.capabilities:
        needs, uses = package.declared(name, "needs"), package.declared(name, "uses")
        for other in needs - needed[name]:
            yield f"declared but not imported: {other!r} in needs of {name}"
        for other in uses & needs | uses - used[name]:
            yield f"declared but not imported: {other!r} in uses of {name}"


def _arrows(package: Package, picture: Path) -> Iterator[str]:
    """Compare the arrows between capabilities that a picture draws with their declarations."""
    head, _, lines = picture.read_text(encoding="utf-8").partition("CAPABILITIES:")
    left = len(head.rpartition("\n")[2])
    drawn: dict[str, str] = {}
    name, arrow = "", 0
    for line in lines.partition("```")[0].splitlines():
        if found := re.match(r"(\w+) .*──► ", line[left:]):
            name, arrow = found[1], left + found.end()
        elif not drawn.get(name, "").endswith(","):
            continue
        drawn[name] = drawn.get(name, "") + line[arrow:]
    for name in sorted({*drawn, *package.capabilities}):
        is_known = name in package.capabilities
        declared = package.declared(name, "needs") | package.declared(name, "uses") if is_known else set()
        if set(re.findall(r"\w+", drawn.get(name, ""))) != declared:
            yield f"picture in {picture.name}: the arrow of {name} leads to {', '.join(sorted(declared)) or 'nothing'}"


def _imports_of_core(package: Package) -> Iterator[str]:
    """Check that capabilities import only the core's interface, and that its packages offer only what is imported."""
    interface = package.interface()
    if len(interface) > MOST_INTERFACE:
        yield f"interface of the core: {len(interface)} modules, at most {MOST_INTERFACE}"
    for importer, targets in package.imports.items():
        for target in targets if interface and package.capability(importer) else ():
            if not package.capability(target) and target not in (package.name, *interface):
                yield f"not in the core's interface: {importer} -> {target}"
    used = package.used_names()
    for module in interface:
        for name in package.offered(module):
            if f"{module}.{name}" not in used:
                yield f"offered but not imported: {name} of {module}"


def _capability_names_in_core(package: Package) -> Iterator[str]:
    for module, tree in package.trees.items():
        if package.capability(module):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                dotted = node.value.removeprefix(package.name).lstrip(".")
                head = dotted.split(".")[0]
                if (
                    "." in dotted
                    and head in package.capabilities
                    and dotted.replace(".", "").replace("_", "").isalnum()
                ):
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


def _type_names_used_twice(package: Package) -> Iterator[str]:
    """Report public classes and type aliases that two modules define."""
    modules = defaultdict(set)
    for module, tree in package.trees.items():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = [target.id for target in targets if isinstance(target, ast.Name) and _is_type_name(target.id)]
            for name in [node.name] if isinstance(node, ast.ClassDef) and node.name[0] != "_" else names:
                modules[name].add(module)
    for name, found in modules.items():
        if len(found) > 1:
            yield f"type name used twice: {name}: {', '.join(sorted(found))}"


def _is_type_name(name: str) -> bool:
    return name[0].isupper() and not name.isupper()


if __name__ == "__main__":
    wrong = violations()
    print("\n".join(wrong) or "The structure follows the rules.")
    sys.exit(bool(wrong))
