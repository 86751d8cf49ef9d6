"""Which expressions of a source may be responses, response iterators or errors of BLS calls.

`Origins` follows values through names, attributes, containers, loops, tasks, `await` and the source's own functions.
It ignores the order of statements: a name has every kind of value that is assigned to it anywhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypeVar

from .name_scope import Function, NameScope, argument, last_name, spreads
from .python_source import PythonSource

Key = TypeVar("Key")
Kinds = frozenset[str]
"""Kinds of values, or of the elements of containers: "iterator", "response", "error"; "future ..." before `await`."""

NOTHING: Kinds = frozenset()
_ROUNDS = 8  # passes over the source; a value travels one assignment in each
_TASKS = frozenset({"create_task", "ensure_future", "gather", "shield", "wait_for", "run_coroutine_threadsafe"})
_SAME = frozenset({
    "get", "pop", "popleft", "popitem", "values", "items", "copy", "next", "iter", "list", "tuple", "set", "dict",
    "reversed", "enumerate", "zip", "sorted", "as_completed", "wait", "deque",
})  # fmt: skip
_ADD = frozenset({"append", "add", "appendleft", "insert", "extend", "update", "setdefault", "put", "put_nowait"})


class Origins:
    """The kinds of the values in one source."""

    def __init__(self, code: PythonSource) -> None:
        self._code = code
        self._names: dict[tuple[int, str], Kinds] = {}  # by the scope and the name
        self._attributes: dict[str, Kinds] = {}
        self._returned: dict[int, Kinds] = {}  # by the function
        for _ in range(_ROUNDS):
            before = (dict(self._names), dict(self._attributes), dict(self._returned))
            for scope in code.scopes:
                for node in scope.nodes:
                    self._read(node, scope)
            if before == (self._names, self._attributes, self._returned):
                break

    def kinds(self, node: ast.AST | None, scope: NameScope) -> Kinds:
        """Return the kinds that an expression may have."""
        if isinstance(node, ast.Name):
            return self._kinds_of_name(node.id, scope)
        if isinstance(node, ast.Attribute):
            return self._attributes.get(node.attr, NOTHING)
        if isinstance(node, ast.Await):
            kinds = self.kinds(node.value, scope)
            waits = isinstance(node.value, ast.Call) and last_name(node.value.func) == "wait"
            return kinds if waits else frozenset(kind.removeprefix("future ") for kind in kinds)
        if isinstance(node, ast.Call):
            return self._kinds_of_call(node, scope)
        if isinstance(node, (ast.Subscript, ast.Starred, ast.NamedExpr)):
            return self._element(self.kinds(node.value, scope))
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            return self.kinds(node.elt, scope)
        parts: Iterable[ast.AST | None] = ()
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            parts = node.elts
        elif isinstance(node, ast.Dict):
            parts = node.values
        elif isinstance(node, ast.DictComp):
            parts = [node.value]
        elif isinstance(node, ast.IfExp):
            parts = (node.body, node.orelse)
        elif isinstance(node, ast.BoolOp):
            parts = node.values
        return self._all(parts, scope)

    def _all(self, nodes: Iterable[ast.AST | None], scope: NameScope) -> Kinds:
        return NOTHING.union(*(self.kinds(node, scope) for node in nodes))

    def _element(self, kinds: Kinds) -> Kinds:
        """Return the kinds of what a loop or a subscript gets: of an iterator also responses."""
        return kinds | {"response"} if "iterator" in kinds else kinds

    def _kinds_of_name(self, name: str, scope: NameScope | None) -> Kinds:
        while scope is not None:
            if name in scope.assignments:
                return self._names.get((id(scope), name), NOTHING)
            scope = scope.outer
        return NOTHING

    def _kinds_of_call(self, call: ast.Call, scope: NameScope) -> Kinds:
        name, owner = last_name(call.func), getattr(call.func, "value", None)
        if name in ("exec", "async_exec") and isinstance(call.func, ast.Attribute):
            decoupled = argument(call, "decoupled", 0)
            is_single = decoupled is None or (isinstance(decoupled, ast.Constant) and not decoupled.value)
            kind = "response" if is_single and not spreads(call) else "iterator"
            return frozenset({kind if name == "exec" else f"future {kind}"})
        if name == "error" and "response" in self.kinds(owner, scope):
            return frozenset({"error"})
        if name == "result":
            return frozenset(kind.removeprefix("future ") for kind in self.kinds(owner, scope))
        function = self._function(call)
        if function is not None:
            kinds = self._returned.get(id(function), NOTHING)
            awaited = isinstance(function.node, ast.AsyncFunctionDef) and not function.yields
            return frozenset(f"future {kind}" for kind in kinds) if awaited else kinds
        if name in _TASKS or name in _SAME:
            owned = self.kinds(owner, scope) if name in _SAME else NOTHING
            return self._element(owned | self._all(call.args, scope))
        return NOTHING

    def _function(self, call: ast.Call) -> NameScope | None:
        """Return the function of this source that a call runs, if its name has one meaning."""
        own = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("self", "cls")
        if not own and not isinstance(call.func, ast.Name):
            return None
        name = last_name(call.func)
        return self._code.functions.get(f"self.{name}" if own else name)

    def _read(self, node: ast.AST, scope: NameScope) -> None:
        """Note what one statement or expression assigns, appends, passes or returns."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, self.kinds(node.value, scope), scope)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.AugAssign)):
            self._bind(node.target, self.kinds(node.value, scope), scope)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            self._bind(node.target, self._element(self.kinds(node.iter, scope)), scope)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bind(node.optional_vars, self.kinds(node.context_expr, scope), scope)
        elif isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)):
            self._returned[id(scope)] = self._returned.get(id(scope), NOTHING) | self.kinds(node.value, scope)
        elif isinstance(node, ast.Call):
            if last_name(node.func) in _ADD and isinstance(node.func, ast.Attribute):
                self._bind(node.func.value, self._all(node.args, scope), scope)
            function = self._function(node)
            if function is not None and isinstance(function.node, Function):
                for name, value in _passed(node, function.node):
                    self._note(self._names, (id(function), name), self.kinds(value, scope))

    def _bind(self, target: ast.AST, kinds: Kinds, scope: NameScope) -> None:
        if isinstance(target, ast.Name):
            owner: NameScope | None = scope
            while owner is not None and target.id not in owner.assignments:
                owner = owner.outer
            self._note(self._names, (id(owner or scope), target.id), kinds)
        elif isinstance(target, ast.Attribute):
            self._note(self._attributes, target.attr, kinds)
        elif isinstance(target, (ast.Subscript, ast.Starred)):
            self._bind(target.value, kinds, scope)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._bind(part, kinds, scope)

    @staticmethod
    def _note(into: dict[Key, Kinds], key: Key, kinds: Kinds) -> None:
        if kinds:
            into[key] = into.get(key, NOTHING) | kinds


def _passed(call: ast.Call, function: Function) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parameters of a function that a call passes, with the arguments."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if isinstance(call.func, ast.Attribute) else names  # without `self`
    yield from zip(names, call.args, strict=False)
    yield from ((word.arg, word.value) for word in call.keywords if word.arg)
