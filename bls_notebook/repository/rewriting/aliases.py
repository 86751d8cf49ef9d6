"""Which variables of a function may hold the same object, or one inside of another's: on the safe side."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from .known import function_kind, method_kind
from .names import SCOPES, Function, Module, within_body

ARGUMENTS = "<arguments>"  # which may all be one object
_VALUES = (ast.Constant, ast.JoinedStr, ast.Compare)
_NEW = (*_VALUES, ast.BinOp, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp)


def attribute(node: ast.AST, function: Function) -> str:
    """Return which attribute of the model an expression is, as ``self.name``; empty for none."""
    of_model = (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id == function.self_name != "")
    )
    return f"self.{node.attr}" if of_model and isinstance(node, ast.Attribute) else ""


def root(node: ast.AST, function: Function) -> str:
    """Return the variable, or the attribute of the model, that an expression begins with; empty for none."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call, ast.Await, ast.Starred)):
        if of_model := attribute(node, function):
            return of_model
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


class Aliases:
    """What the variables of a function may hold."""

    def __init__(self, module: Module, function: Function) -> None:
        self._module, self._function = module, function
        self._same: dict[str, set[str]] = defaultdict(set)
        self._inside: dict[str, set[str]] = defaultdict(set)
        self._reached: dict[str, frozenset[str]] = {}
        for name in function.parameters:
            self._same[name].add(ARGUMENTS)
        for node in within_body(function.node):
            self._take(node)

    def same(self, name: str) -> frozenset[str]:
        """Return the variables whose object this may be, or a part of: a change of one changes the other."""
        return self._closure([name], self._same)

    def reach(self, name: str) -> frozenset[str]:
        """Return the variables whose objects may be found in it."""
        if name not in self._reached:
            names = {*self._same, *self._inside}
            both = {k: self._same.get(k, set()) | self._inside.get(k, set()) for k in names}
            self._reached[name] = self._closure([name], both)
        return self._reached[name]

    @staticmethod
    def _closure(names: Iterable[str], by: dict[str, set[str]]) -> frozenset[str]:
        found: set[str] = set()
        todo = [*names]
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += by.get(name, ())
        return frozenset(found)

    def _take(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bound(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            self._bound(node.target, node.value)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            self._bound(node.target, node.iter, part=True)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bound(node.optional_vars, node.context_expr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if method_kind(node.func.attr, "") != "mutates":
                return
            holder = root(node.func.value, self._function)  # which may keep what it is given
            given = [*node.args, *(k.value for k in node.keywords)]
            self._kept(holder, {n for each in given for n in self.roots(each)})

    def _bound(self, target: ast.AST, value: ast.expr, part: bool = False) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values = _values(target, value)
            for one, its in zip(target.elts, values, strict=True):
                self._bound(one, its, part=its is value)
        elif isinstance(target, ast.Starred):
            self._bound(target.value, value, part)
        elif isinstance(target, ast.Name):
            names = set() if isinstance(value, _VALUES) and not part else {*self.roots(value)}
            self._inside[target.id] |= names
            if part or not self._new(value):
                self._same[target.id] |= names
        else:
            self._kept(root(target, self._function), {*self.roots(value)})

    def _kept(self, holder: str, names: set[str]) -> None:
        for name in self.same(holder):
            self._inside[name] |= names

    def _new(self, value: ast.expr) -> bool:
        """Whether an expression makes an object of its own."""
        if isinstance(value, ast.Await):
            value = value.value
        if isinstance(value, _NEW):
            return True
        if not isinstance(value, ast.Call):
            return False
        name = self._module.imported(value.func, self._function)
        if name:
            return function_kind(name) == "fresh"
        if isinstance(value.func, ast.Attribute):
            if value.func.attr in ("exec", "async_exec"):
                return True
            return method_kind(value.func.attr, "") == "fresh"
        return False

    def roots(self, node: ast.AST) -> Iterator[str]:
        """Yield the variables, and the attributes of the model, that an expression reads."""
        if isinstance(node, ast.Name):
            if node.id not in self._module.imports and node.id != self._function.self_name:
                yield node.id
            elif node.id == self._function.self_name:
                yield "self"
        elif of_model := attribute(node, self._function):
            yield of_model
        elif isinstance(node, ast.Call):
            own = self._module.function_of(node.func, self._function)
            if own is None and not isinstance(node.func, ast.Name):
                yield from self.roots(node.func)
            elif own is not None:  # it may return what the model keeps
                yield from filter(None, (attribute(n, own) for n in ast.walk(own.node)))
            for each in (*node.args, *(k.value for k in node.keywords)):
                yield from self.roots(each)
        elif isinstance(node, SCOPES):
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        else:
            for child in ast.iter_child_nodes(node):
                yield from self.roots(child)


def _values(target: ast.Tuple | ast.List, value: ast.expr) -> list[ast.expr]:
    """What each of several targets is given: the whole, where that is not written one by one."""
    many = isinstance(value, (ast.Tuple, ast.List)) and len(target.elts) == len(value.elts)
    if not isinstance(value, (ast.Tuple, ast.List)) or not many:
        return [value] * len(target.elts)
    starred = any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))
    return [value] * len(target.elts) if starred else value.elts
