"""Find outputs that only some responses have: the sets of outputs of each response, on all paths through a function.

A response of which one output is unknown, or that depends on an option of the request or the model, is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress

from bls_notebook.backends import CLASS_NAME

from .name_scope import Function, NameScope, alternatives, argument, last_name, spreads
from .python_source import PythonSource

Sets = frozenset[frozenset[str]]  # the possible sets of outputs
_NOTHING: Sets = frozenset({frozenset()})
_MOST = 64  # sets of one list
_OPTION = re.compile(r"get_input_tensor_by_name\([^()]*\)$|parameters|requested")


class UnknownOutputsError(Exception):
    """The outputs of a response are not certain."""


def outputs_made_sometimes(code: PythonSource) -> dict[str, int]:
    """Return the outputs that some responses without an error lack, with the line of one that does."""
    made: list[tuple[int, Sets]] = []
    for call, scope in code.calls_of("InferenceResponse"):
        other_class = scope.owner not in ("", CLASS_NAME)
        if other_class or spreads(call) or argument(call, "error", 1) is not None or _is_chosen(scope, call):
            continue
        with suppress(UnknownOutputsError):
            made.append((call.lineno, _outputs(scope, call)))
    names = {name for _, sets in made for names in sets for name in names}
    lines = {name: next((line for line, sets in made if any(name not in names for names in sets)), 0) for name in names}
    return {name: line for name, line in lines.items() if line}


def _outputs(scope: NameScope, call: ast.Call) -> Sets:
    tensors = argument(call, "output_tensors", 0)
    if isinstance(tensors, ast.Name) and isinstance(scope.node, Function):
        states = _Paths(scope, tensors.id, call).run()
        if states is not None:
            return states
    return _sets(scope, tensors)


class _Paths:
    """The possible outputs in one list when a response is made of it."""

    def __init__(self, scope: NameScope, name: str, call: ast.Call) -> None:
        self.scope, self.name, self.call = scope, name, call
        self.at_call: Sets | None = None
        self._broken: Sets = frozenset()  # at the `break` of the innermost loop

    def run(self) -> Sets | None:
        self._block(self.scope.node.body, frozenset())
        return self.at_call or None

    def _block(self, body: list[ast.stmt], sets: Sets) -> Sets:
        for statement in body:
            sets = self._statement(statement, sets)
            if len(sets) > _MOST:
                raise UnknownOutputsError
            if isinstance(statement, ast.Break):
                self._broken |= sets
            if isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
                return frozenset()
        return sets

    def _statement(self, node: ast.stmt, sets: Sets) -> Sets:
        if isinstance(node, ast.If):
            if _is_choice(self.scope, node.test) and self._is_used(node):
                raise UnknownOutputsError
            return self._block(node.body, sets) | self._block(node.orelse, sets)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            outer, self._broken = self._broken, frozenset()
            once = self._block(node.body, sets) | self._broken
            self._broken = outer
            return self._block(node.orelse, sets | once if self._outlives(node) else once or sets)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            return self._block(node.body, sets)
        if isinstance(node, ast.Try):
            done = self._block([*node.body, *node.orelse], sets)
            done = done.union(*(self._block(handler.body, sets) for handler in node.handlers))
            return self._block(node.finalbody, done)
        if isinstance(node, ast.Match) and self._is_used(node):
            raise UnknownOutputsError
        if any(part is self.call for part in ast.walk(node)):
            self.at_call = (self.at_call or frozenset()) | sets
        return self._changed(node, sets)

    def _changed(self, node: ast.stmt, sets: Sets) -> Sets:
        """Return the sets after a statement without a block."""
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(getattr(target, "id", "") == self.name for target in targets):
                return _sets(self.scope, node.value)
        added: Sets | None = None
        if isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") == self.name:
            added = _sets(self.scope, node.value)
        call = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
        if call is not None and getattr(owner, "id", "") == self.name:
            method = last_name(call.func)
            if method not in ("append", "extend") or len(call.args) != 1:
                raise UnknownOutputsError
            added = _sets(self.scope, call.args[0] if method == "extend" else ast.List([call.args[0]], ast.Load()))
        elif call is not None and any(getattr(value, "id", "") == self.name for value in call.args):
            raise UnknownOutputsError  # a function that may add to the list
        return sets if added is None else _joined(sets or _NOTHING, added)

    def _is_used(self, node: ast.AST) -> bool:
        return any(isinstance(n, ast.Name) and n.id == self.name for n in ast.walk(node))

    def _outlives(self, loop: ast.AST) -> bool:
        """Return whether the list is made outside of a loop."""
        return not any(
            isinstance(n, ast.Name) and n.id == self.name and isinstance(n.ctx, ast.Store) for n in ast.walk(loop)
        )


def _is_choice(scope: NameScope, test: ast.expr) -> bool:
    """Return whether a condition depends on the request's or the model's options, so that the caller knows it."""
    for node in (n for n in ast.walk(test) if isinstance(n, (ast.Name, ast.Attribute, ast.Call))):
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("self."):
            return True
        values = (scope.values(node.id) or []) if isinstance(node, ast.Name) else []
        if any(_OPTION.search(ast.unparse(value)) for value in [scope.origin(node), *values] if value is not None):
            return True
    return False


def _is_chosen(scope: NameScope, node: ast.AST) -> bool:
    """Return whether a node runs only with an option of the request or the model."""
    parent: ast.AST | None = node
    while (parent := scope.parents.get(id(parent))) is not None:
        if isinstance(parent, (ast.If, ast.IfExp)) and _is_choice(scope, parent.test):
            return True
    return False


def _joined(first: Sets, second: Sets) -> Sets:
    return frozenset(one | other for one in first for other in second)


def _sets(scope: NameScope, node: ast.expr | None) -> Sets:
    """Return the possible sets of the names of tensors in a list."""
    if isinstance(node, ast.IfExp) and _is_choice(scope, node.test):
        raise UnknownOutputsError
    if node is None:
        return _NOTHING
    if isinstance(node, ast.Name) and any(scope.grows(node.id)):
        raise UnknownOutputsError
    sets: Sets = frozenset()
    for value in alternatives(scope.origin(node)):
        if isinstance(value, (ast.List, ast.Tuple)):
            joined = _NOTHING
            for item in value.elts:
                joined = _joined(
                    joined, _sets(scope, item.value) if isinstance(item, ast.Starred) else _names(scope, item)
                )
            sets |= joined
        elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            sets |= _joined(_sets(scope, value.left), _sets(scope, value.right))
        else:
            raise UnknownOutputsError
    return sets


def _names(scope: NameScope, node: ast.expr) -> Sets:
    """Return the possible names of a tensor."""
    return frozenset(frozenset({name}) for name in _tensor_names(scope, node))


def _tensor_names(scope: NameScope, node: ast.expr) -> Iterator[str]:
    for value in alternatives(scope.origin(node)):
        is_tensor = isinstance(value, ast.Call) and last_name(value.func) in ("Tensor", "from_dlpack")
        name = scope.text(argument(value, "name", 0)) if isinstance(value, ast.Call) and is_tensor else None
        if name is None:
            raise UnknownOutputsError
        yield name
