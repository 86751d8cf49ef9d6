"""What expressions in a source are worth where that can be told for certain: texts, lists, tensors.

`Names` knows what each name is given within its function. A name that is given anything else (an argument, a
loop's variable, two values) is worth nothing certain.
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
    """Return the last of the names of ``a.b.c``; empty for what is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def argument(call: ast.Call, name: str, place: int) -> ast.expr | None:
    """Return what a call gives for an argument, by its name or its place; None for nothing."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    plain = not any(isinstance(each, ast.Starred) for each in call.args[: place + 1])
    return call.args[place] if plain and 0 <= place < len(call.args) else None


def spreads(call: ast.Call) -> bool:
    """Whether a call may give arguments that cannot be seen (``*a``, ``**b``)."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(w.arg is None for w in call.keywords)


@dataclass(frozen=True)
class Tensors:
    """Names of tensors with the lines that make them; `certain` where these are all."""

    names: tuple[tuple[str, int], ...] = ()
    certain: bool = True

    def __add__(self, other: Tensors) -> Tensors:
        return Tensors(self.names + other.names, self.certain and other.certain)


UNKNOWN = Tensors(certain=False)


class Names:
    """What the names of one scope are given: of a module, or of a function within another scope."""

    def __init__(self, node: ast.Module | Function, outer: Names | None = None) -> None:
        self.node, self._outer = node, outer

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """What belongs to this scope, and not to one within it."""
        out: list[ast.AST] = []
        todo: list[ast.AST] = list(self.node.body)
        while todo:
            node = todo.pop()
            out.append(node)
            if not isinstance(node, _SCOPES):
                todo += ast.iter_child_nodes(node)
        return out

    @cached_property
    def _given(self) -> dict[str, list[ast.expr | None]]:
        given: dict[str, list[ast.expr | None]] = {}
        if isinstance(self.node, Function):
            given = {node.arg: [None] for node in ast.walk(self.node.args) if isinstance(node, ast.arg)}
        seen: set[int] = set()
        for node in self.nodes:
            pairs: list[tuple[ast.expr, ast.expr | None]] = []
            if isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            elif (isinstance(node, ast.AnnAssign) and node.value is not None) or isinstance(
                node, ast.NamedExpr
            ):
                pairs = [(node.target, node.value)]
            for target, value in pairs:
                if isinstance(target, ast.Name):
                    seen.add(id(target))
                    given.setdefault(target.id, []).append(value)
        for node in self.nodes:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in seen:
                given.setdefault(node.id, []).append(None)
        return given

    def values(self, name: str) -> list[ast.expr | None] | None:
        """Return all that a name is given, None among it for what cannot be told; None for no such name."""
        found = self._given.get(name)
        return found if found is not None or self._outer is None else self._outer.values(name)

    def value(self, node: ast.expr | None) -> ast.expr | None:
        """Return what an expression is, behind a name that is given just one value."""
        for _ in range(8):
            if not isinstance(node, ast.Name):
                return node
            found = self.values(node.id)
            node = found[0] if found is not None and len(found) == 1 else None
        return None

    def text(self, node: ast.expr | None) -> str | None:
        """Return the text that an expression is; None where that cannot be told."""
        found = self.value(node)
        return found.value if isinstance(found, ast.Constant) and isinstance(found.value, str) else None

    def texts(self, node: ast.expr | None) -> list[str] | None:
        """Return the texts of a list; None where one of them cannot be told."""
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

    def tensors(self, node: ast.expr | None, depth: int = 8) -> Tensors:
        """Return the tensors of a list."""
        if node is None or not depth:
            return UNKNOWN
        out = Tensors()
        if isinstance(node, (ast.List, ast.Tuple)):
            for each in node.elts:
                out += self._tensor(each, depth - 1)
            return out
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.tensors(node.left, depth - 1) + self.tensors(node.right, depth - 1)
        if not isinstance(node, ast.Name):
            return UNKNOWN
        given = self._given.get(node.id, [None])
        if len(given) > 1:  # which of them it is at this moment, nobody knows
            return UNKNOWN
        out += self.tensors(given[0], depth - 1)
        for call in self._grows(node.id):
            added = call.args[-1] if call.args else None
            extends = isinstance(call.func, ast.Attribute) and call.func.attr == "extend"
            out += self.tensors(added, depth - 1) if extends else self._tensor(added, depth - 1)
        return out if self._only_listed(node.id) else out + UNKNOWN

    def _tensor(self, node: ast.expr | None, depth: int) -> Tensors:
        if isinstance(node, ast.Call) and last_name(node.func) in ("Tensor", "from_dlpack"):
            name = self.text(argument(node, "name", 0))
            return UNKNOWN if name is None else Tensors(((name, node.lineno),))
        if not isinstance(node, ast.Name) or not depth:
            return UNKNOWN
        every = [self._tensor(value, depth - 1) for value in self._given.get(node.id, [None])]
        same = len({name for each in every for name, _ in each.names}) == 1
        return every[0] if same and all(each.certain for each in every) else UNKNOWN

    def _only_listed(self, name: str) -> bool:
        """Whether a list is handed to nobody that could add to it."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and last_name(node.func) not in (
                "InferenceResponse",
                "InferenceRequest",
            ):
                given = [*node.args, *(word.value for word in node.keywords)]
                if any(isinstance(each, ast.Name) and each.id == name for each in given):
                    return last_name(node.func) in ("len", "print", "str", "repr")
            if (
                isinstance(node, ast.AugAssign)
                and isinstance(node.target, ast.Name)
                and node.target.id == name
            ):
                return False
        return True
