"""Names that a source takes for Triton's and that `triton_python_backend_utils` does not have.

They are looked up in the module itself. Nothing is said where the source is ready for it: within a `try`, or
where it asks by `hasattr` or `getattr`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from bls_notebook import pb_utils
from bls_notebook.records.advice.known import nearest

from .code import Code
from .values import last_name

MODULE = "triton_python_backend_utils"


def missing_names(code: Code) -> Iterator[tuple[str, int, str, str]]:
    """Yield each name as the source has it, its line, what has no such name, and which may be meant."""
    aliases: set[str] = set()
    ready = _ready_for(code.tree)
    told: set[str] = set()
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Import):
            aliases |= {each.asname or MODULE for each in node.names if each.name == MODULE}
    aliases -= _given(code.tree)
    for node in ast.walk(code.tree):
        if id(node) in ready:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == MODULE and not node.level:
            for each in node.names:
                if each.name != "*" and not hasattr(pb_utils, each.name) and each.name not in ready:
                    yield each.name, node.lineno, MODULE, nearest(each.name, dir(pb_utils))
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            owner, at = _owner(node.value, aliases)
            if owner is None or hasattr(owner, node.attr) or node.attr in ready or name in told:
                continue
            told.add(name)
            yield name, node.lineno, at, nearest(node.attr, dir(owner))


def _owner(node: ast.expr, aliases: set[str]) -> tuple[Any, str]:
    """The module or the class that an expression is certain to be, and its name; None for others."""
    if isinstance(node, ast.Name):
        return (pb_utils, node.id) if node.id in aliases else (None, "")
    if not isinstance(node, ast.Attribute):
        return None, ""
    owner, name = _owner(node.value, aliases)
    found = getattr(owner, node.attr, None) if owner is not None else None
    return (found, f"{name}.{node.attr}") if isinstance(found, type) else (None, "")


def _given(tree: ast.Module) -> set[str]:
    """Names that are given something else somewhere; None, for where there is no Triton, is nothing."""
    none = {
        id(target)
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant) and n.value.value is None
        for target in n.targets
    }
    names = {
        n.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load) and id(n) not in none
    }
    return names | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}


def _catches(handler: ast.ExceptHandler, node: ast.Try) -> bool:
    """Whether a handler is there for a name that is missing: what catches all is, of one statement."""
    caught = "" if handler.type is None else ast.unparse(handler.type)
    return "AttributeError" in caught or "ImportError" in caught or len(node.body) == 1


def _ready_for(tree: ast.Module) -> set[int | str]:
    """What the source is ready for: nodes that may fail or do not run, and names that it asks for or sets."""
    found: set[int | str] = set()
    lazy = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(_catches(each, node) for each in node.handlers):
            found |= {id(each) for part in node.body for each in ast.walk(part)}
        elif isinstance(node, ast.With) and "suppress" in ast.unparse(node.items[0]):
            found |= {id(each) for each in ast.walk(node)}
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        elif isinstance(node, ast.Call) and last_name(node.func) in ("hasattr", "getattr", "setattr"):
            texts = (n.value for n in node.args if isinstance(n, ast.Constant))
            found |= {text for text in texts if isinstance(text, str)}
        for part in ("annotation", "returns") if lazy else ():
            if isinstance(getattr(node, part, None), ast.AST):
                found |= {id(each) for each in ast.walk(getattr(node, part))}
    return found
