"""Slices as they are typed, ``[0, :, :, 1]``: read without running anything."""

from __future__ import annotations

import ast
from typing import Any

from bls_notebook.engine.errors import BLSError

_EXPECTED = "expected numbers, slices and ... in brackets, such as [0, :, 2:10:2]"


def sliced(array: Any, text: str) -> tuple[Any, str]:
    """Return a view of an array, and how the slice is spelled; a BLSError where it is none of this array."""
    inside = text.strip()
    if inside.startswith("[") and inside.endswith("]"):
        inside = inside[1:-1].strip()
    if not inside:
        return array, ""
    try:
        node = ast.parse(f"_[{inside}]", mode="eval").body
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            raise ValueError
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        index = tuple(_part(part) for part in parts)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BLSError(f"slice: got {text[:80]!r}, {_EXPECTED}") from None
    spelled = f"[{', '.join(map(ast.unparse, parts))}]"
    try:
        whole = index if Ellipsis in index else (*index, Ellipsis)  # of numbers alone: still an array
        return array[whole], spelled
    except (IndexError, ValueError, TypeError) as error:
        shape = list(array.shape)
        raise BLSError(f"slice {spelled}: the tensor has the shape {shape}: {error}") from None


def _part(node: ast.expr) -> Any:
    if isinstance(node, ast.Slice):
        return slice(
            *(None if each is None else _number(each) for each in (node.lower, node.upper, node.step))
        )
    if isinstance(node, ast.Constant) and node.value is Ellipsis:
        return Ellipsis
    return _number(node)


def _number(node: ast.expr) -> int:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < 1 << 62:
        return sign * node.value
    raise ValueError
