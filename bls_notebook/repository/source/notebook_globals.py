"""Finds names that a model's source reads but never defines: variables of the notebook, and misspelt ones.

In the notebook a cell's model does not see them either; this says so before its first request fails. A
static look at the source: nothing is run. Where names may come from elsewhere (``from x import *``,
`globals()`, `exec`), nothing is said at all.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Collection, Iterator

from .syntax import syntax_tree

# IPython puts names of its own into the builtins of the process; Triton's process has none of them.
_BUILTINS = frozenset(dir(builtins)) - {"__IPYTHON__", "_", "display", "get_ipython"}
_OF_MODULES = frozenset(
    f"__{name}__"
    for name in (
        *("annotations", "builtins", "cached", "class", "conditional_annotations", "debug", "dict", "doc"),
        *("file", "loader", "module", "name", "package", "path", "qualname", "spec"),
    )
)
_MAKES_NAMES = frozenset({"exec", "globals", "vars", "locals"})
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def undefined_name_warnings(
    source: str, model: str, notebook_names: Collection[str] | None = None
) -> tuple[str, ...]:
    """Return a line for each name that the source reads and never defines, some variables of the notebook."""
    lines = []
    for name, line in undefined_names(source).items():
        where = f"model '{model}', line {line}"
        if name in (notebook_names or ()):
            why = f"notebook variable '{name}' will not exist on Triton, nor does the model see it here"
            lines.append(f"{where}: {why}; define or import it in the model")
        else:
            lines.append(f"{where}: '{name}' is not defined in the model; define or import it there")
    return tuple(lines)


def undefined_names(source: str) -> dict[str, int]:
    """Return the names that a module reads and never defines, with the first line that reads each.

    Source that cannot be compiled has none: it has worse problems.
    """
    tree = syntax_tree(source)
    if tree is None:
        return {}
    try:
        return _undefined(tree, symtable.symtable(source, "model.py", "exec"))
    except (SyntaxError, ValueError, RecursionError):
        return {}


def _undefined(tree: ast.Module, table: symtable.SymbolTable) -> dict[str, int]:
    tables = list(_tables(table))
    defined = {s.get_name() for s in table.get_symbols() if _binds(s)}
    # `global x` in a function, and an assignment there, make a name of the module.
    defined.update(
        s.get_name() for t in tables for s in t.get_symbols() if s.is_declared_global() and _binds(s)
    )
    read = {name for t in tables for name in _global_reads(t)}
    stars = any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in ast.walk(tree))
    if stars or read & _MAKES_NAMES - defined:
        return {}
    missing = read - defined - _BUILTINS - _OF_MODULES
    lines = _first_lines(tree, missing) if missing else {}
    return dict(sorted(lines.items(), key=lambda item: (item[1], item[0])))


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _binds(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported()


def _global_reads(table: symtable.SymbolTable) -> Iterator[str]:
    kind = str(getattr(table.get_type(), "value", table.get_type()))
    if kind not in ("module", "class", "function"):
        return  # scopes of annotations and of type parameters are not run
    for symbol in table.get_symbols():
        if kind == "module":
            read = symbol.is_global() or not _binds(symbol)
        else:  # of a function called "top", CPython says that its own names are global too
            read = symbol.is_global() and not symbol.is_local()
        if read and symbol.is_referenced():
            yield symbol.get_name()


def _first_lines(tree: ast.Module, names: Collection[str]) -> dict[str, int]:
    """The first line that reads each name as a global; annotations that are never evaluated do not count."""
    found: dict[str, int] = {}
    lazy = any(
        isinstance(n, ast.ImportFrom)
        and n.module == "__future__"
        and any(a.name == "annotations" for a in n.names)
        for n in tree.body
    )

    def visit(node: ast.AST, local: frozenset[str] | None) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            if node.id not in (local or ()):
                found[node.id] = min(node.lineno, found.get(node.id, node.lineno))
            return
        if local is not None and isinstance(node, (*_SCOPES, *_COMPREHENSIONS)):
            local = local | _bound_in(node)
        for field, value in ast.iter_fields(node):
            if lazy and field in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child, local)

    visit(tree, frozenset())
    if len(found) < len(names):  # read beside an inner scope that has the same name for itself
        first, found = found, {}
        visit(tree, None)
        found |= first
    return found


def _bound_in(scope: ast.AST) -> frozenset[str]:
    """Names that a function, lambda or comprehension binds, those of inner scopes included."""
    if isinstance(scope, ast.ClassDef):
        return frozenset()
    bound = {n.id for n in ast.walk(scope) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {n.arg for n in ast.walk(scope) if isinstance(n, ast.arg)}
    return frozenset(bound)
