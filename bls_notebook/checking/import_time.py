"""Find names of `triton_python_backend_utils` that a model's files use too early: while a server imports them.

The backend adds these names (`ADDED`) after the import of model.py. Code that runs by then: the statements of model.py
and of the helper modules that it imports, outside of functions; base classes, decorators, default values and
annotations; and functions that these statements call by their names. A use inside `try`, or below a test with
`hasattr`, is not reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from bls_notebook.records import source_text, too_early
from bls_notebook.repository import ADDED, API
from bls_notebook.repository.source import imported_files

from .checked_model import CheckedModel
from .name_scope import Function, last_name
from .python_source import PythonSource, names_of_api
from .records import Finding

_MOST_FILES = 100


class EarlyUse(NamedTuple):
    """A name that does not exist yet, as written; `use`: annotation, base, import or value."""

    name: str
    line: int
    use: str


def import_time_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    """Yield uses in model.py and the helper modules that it imports."""
    folders = (code.path.parent, code.path.parent.parent)
    sources = [code]
    for source in sources:  # the loop extends `sources`
        import_time = ImportTime(source.tree)
        for name, line, use in import_time.early:
            mend = too_early(name.rpartition(".")[2], use)
            yield model.in_code("name-too-early", source, line, name=name, mend=f"{mend[0].upper()}{mend[1:]}.")
        tree = ast.Module(list(import_time.imports), [])
        for _, _, files in imported_files(source.path, tree, lambda name: folders):
            known = {other.path for other in sources}
            sources += [PythonSource(file, source_text(file)) for file in files if file not in known]
        del sources[_MOST_FILES:]


class ImportTime:
    """What a module does while it is imported: uses that are too early, in `early`; import statements, in `imports`."""

    def __init__(self, tree: ast.Module) -> None:
        self.early: list[EarlyUse] = []
        self.imports: list[ast.stmt] = []
        self._lazy = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)
        self._aliases = names_of_api(tree)
        self._functions = {node.name: node for node in tree.body if isinstance(node, Function)}
        self._classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self._called: set[str] = set()
        self._statements(tree.body)

    def _statements(self, statements: list[ast.stmt], in_function: bool = False) -> None:
        for node in statements:
            self._statement(node, in_function)

    def _statement(self, node: ast.stmt, in_function: bool) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imports.append(node)
            if isinstance(node, ast.ImportFrom) and node.module == API and not node.level:
                self.early += [EarlyUse(a.name, node.lineno, "import") for a in node.names if a.name in ADDED]
        elif isinstance(node, Function):
            arguments = node.args
            self._values([*node.decorator_list, *arguments.defaults, *filter(None, arguments.kw_defaults)])
            self._called_by(node.decorator_list)
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            self._annotations([*(argument.annotation for argument in every if argument is not None), node.returns])
        elif isinstance(node, ast.ClassDef):
            self._values(node.decorator_list)
            self._called_by(node.decorator_list)
            self._values([*node.bases, *(word.value for word in node.keywords)], "base")
            self._statements(node.body)
        elif isinstance(node, ast.If):
            if _is_guard(node.test):
                self._statements(node.orelse, in_function)
                return
            self._values([node.test])
            self._statements([*node.body, *node.orelse], in_function)
        elif isinstance(node, ast.Try):
            if not any(map(_catches, node.handlers)):
                self._statements(node.body, in_function)
            self._statements([*node.orelse, *node.finalbody], in_function)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            if "suppress" not in ast.unparse(node.items[0]):
                self._values([item.context_expr for item in node.items])
                self._statements(node.body, in_function)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            self._values([node.test if isinstance(node, ast.While) else node.iter])
            self._statements([*node.body, *node.orelse], in_function)
        elif isinstance(node, ast.AnnAssign):
            self._values([node.value])
            self._annotations([] if in_function else [node.annotation])
        else:
            self._values([node])

    def _annotations(self, nodes: list[ast.expr | None]) -> None:
        if not self._lazy:
            self._values(nodes, "annotation")

    def _values(self, nodes: list[ast.expr | None] | list[ast.expr] | list[ast.stmt], use: str = "value") -> None:
        """Note the names in expressions, and the functions that they call."""
        pending: list[ast.AST] = [node for node in nodes if node is not None]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Lambda):
                pending += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
                continue
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load):
                if node.attr in ADDED and node.value.id in self._aliases:
                    self.early.append(EarlyUse(ast.unparse(node), node.lineno, use))
            elif isinstance(node, ast.Call):
                self._called_by([node.func])
            pending += ast.iter_child_nodes(node)

    def _called_by(self, functions: list[ast.expr]) -> None:
        """Follow calls of this module's functions and classes."""
        for function in functions:
            name = last_name(function) if isinstance(function, ast.Name) else ""
            if name in self._called:
                continue
            self._called.add(name)
            if name in self._functions:
                self._statements(self._functions[name].body, in_function=True)
            elif name in self._classes:
                body = self._classes[name].body
                for method in (n for n in body if isinstance(n, Function) and n.name == "__init__"):
                    self._statements(method.body, in_function=True)


def _is_guard(test: ast.expr) -> bool:
    """Return whether an `if` runs its body only for type checkers, as a script, or after a test of the name."""
    text = ast.unparse(test)
    return any(word in text for word in ("TYPE_CHECKING", "__main__", "hasattr"))


def _catches(handler: ast.ExceptHandler) -> bool:
    caught = "Exception" if handler.type is None else ast.unparse(handler.type)
    return any(name in caught for name in ("AttributeError", "ImportError", "Exception"))
