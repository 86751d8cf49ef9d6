"""Evaluate constant expressions in a syntax tree: strings, lists of strings, and lists of tensors.

`Scope` records the values assigned to each name of a function. The value of an argument, of a loop variable,
and of a name that is assigned twice is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_APPENDS = frozenset({"append", "extend", "insert"})


def last_name(node: ast.expr) -> str:
    """Return ``c`` of ``a.b.c``; empty if the expression is no dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """Return an argument of a call, passed by keyword or position, or None."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    plain = not any(isinstance(each, ast.Starred) for each in call.args[: position + 1])
    return call.args[position] if plain and 0 <= position < len(call.args) else None


def spreads(call: ast.Call) -> bool:
    """Whether a call unpacks arguments (``*a``, ``**b``)."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(w.arg is None for w in call.keywords)


@dataclass(frozen=True)
class TensorNames:
    """Tensor names with the lines that create them; `certain` if the list is complete."""

    names: tuple[tuple[str, int], ...] = ()
    certain: bool = True

    def __add__(self, other: TensorNames) -> TensorNames:
        return TensorNames(self.names + other.names, self.certain and other.certain)


UNKNOWN = TensorNames(certain=False)


class Scope:
    """Values assigned to the names of a module or function."""

    def __init__(self, node: ast.Module | Function, outer: Scope | None = None) -> None:
        self.node, self._outer = node, outer

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Nodes of this scope, without those of nested scopes."""
        out: list[ast.AST] = []
        todo: list[ast.AST] = list(self.node.body)
        while todo:
            node = todo.pop()
            out.append(node)
            if not isinstance(node, _SCOPES):
                todo += ast.iter_child_nodes(node)
        return out

    @cached_property
    def _assignments(self) -> dict[str, list[ast.expr | None]]:
        assigned: dict[str, list[ast.expr | None]] = {}
        if isinstance(self.node, Function):
            assigned = {node.arg: [None] for node in ast.walk(self.node.args) if isinstance(node, ast.arg)}
        seen: set[int] = set()
        for node in self.nodes:
            pairs: list[tuple[ast.expr, ast.expr | None]] = []
            if isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            elif (isinstance(node, ast.AnnAssign) and node.value is not None) or isinstance(node, ast.NamedExpr):
                pairs = [(node.target, node.value)]
            for target, value in pairs:
                if isinstance(target, ast.Name):
                    seen.add(id(target))
                    assigned.setdefault(target.id, []).append(value)
        for node in self.nodes:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in seen:
                assigned.setdefault(node.id, []).append(None)
        return assigned

    def values(self, name: str) -> list[ast.expr | None] | None:
        """Return all values assigned to a name (None for an unknown value), or None for an unknown name."""
        found = self._assignments.get(name)
        return found if found is not None or self._outer is None else self._outer.values(name)

    def value(self, node: ast.expr | None) -> ast.expr | None:
        """Return an expression, resolving names with exactly one value."""
        for _ in range(8):
            if not isinstance(node, ast.Name):
                return node
            found = self.values(node.id)
            node = found[0] if found is not None and len(found) == 1 else None
        return None

    def text(self, node: ast.expr | None) -> str | None:
        """Return the string that an expression evaluates to, or None if unknown."""
        found = self.value(node)
        return found.value if isinstance(found, ast.Constant) and isinstance(found.value, str) else None

    def texts(self, node: ast.expr | None) -> list[str] | None:
        """Return the strings of a list, or None if one is unknown."""
        if isinstance(node, ast.Name) and any(self._grows(node.id)):
            return None
        found = self.value(node)
        if not isinstance(found, (ast.List, ast.Tuple)):
            return None
        texts = [self.text(each) for each in found.elts]
        return None if None in texts else [text for text in texts if text is not None]

    def _grows(self, name: str) -> Iterator[ast.Call]:
        for node in self.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = node.func.value
                if node.func.attr in _APPENDS and isinstance(of, ast.Name) and of.id == name:
                    yield node

    def tensors(self, node: ast.expr | None, depth: int = 8) -> TensorNames:
        """Return the tensors in a list."""
        if node is None or not depth:
            return UNKNOWN
        out = TensorNames()
        if isinstance(node, (ast.List, ast.Tuple)):
            for each in node.elts:
                out += self._tensor(each, depth - 1)
            return out
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.tensors(node.left, depth - 1) + self.tensors(node.right, depth - 1)
        if not isinstance(node, ast.Name):
            return UNKNOWN
        assigned = self._assignments.get(node.id, [None])
        if len(assigned) > 1:
            return UNKNOWN
        out += self.tensors(assigned[0], depth - 1)
        for call in self._grows(node.id):
            added = call.args[-1] if call.args else None
            extends = isinstance(call.func, ast.Attribute) and call.func.attr == "extend"
            out += self.tensors(added, depth - 1) if extends else self._tensor(added, depth - 1)
        return out if self._only_listed(node.id) else out + UNKNOWN

    def _tensor(self, node: ast.expr | None, depth: int) -> TensorNames:
        if isinstance(node, ast.Call) and last_name(node.func) in ("Tensor", "from_dlpack"):
            name = self.text(argument(node, "name", 0))
            return UNKNOWN if name is None else TensorNames(((name, node.lineno),))
        if not isinstance(node, ast.Name) or not depth:
            return UNKNOWN
        every = [self._tensor(value, depth - 1) for value in self._assignments.get(node.id, [None])]
        same = len({name for each in every for name, _ in each.names}) == 1
        return every[0] if same and all(each.certain for each in every) else UNKNOWN

    def _only_listed(self, name: str) -> bool:
        """Whether no call or operator can add to a list."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and last_name(node.func) not in ("InferenceResponse", "InferenceRequest"):
                passed = [*node.args, *(word.value for word in node.keywords)]
                if any(isinstance(each, ast.Name) and each.id == name for each in passed):
                    return last_name(node.func) in ("len", "print", "str", "repr")
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return False
        return True
