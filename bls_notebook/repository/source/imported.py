"""What a source imports, by its tree alone."""

from __future__ import annotations

import ast


def imported_modules(tree: ast.AST, needed: bool = False) -> dict[str, int]:
    """Return the top-level names of the modules that a source imports, with the first line of each.

    Only those `needed`: not what it can do without, in a ``try`` that catches a failing import, or for type
    checking.
    """
    out: dict[str, int] = {}
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop(0)
        if needed and isinstance(node, ast.Try) and any(map(_catches_imports, node.handlers)):
            todo += [*node.orelse, *node.finalbody]
            continue
        if needed and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            todo += ast.iter_child_nodes(node)
            continue
        for name in names:
            top = name.partition(".")[0]
            out[top] = min(node.lineno, out.get(top, node.lineno))
    return out


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or any(
        name in ast.unparse(handler.type) for name in ("ImportError", "ModuleNotFoundError", "Exception")
    )
