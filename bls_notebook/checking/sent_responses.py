"""Follow response senders along the paths of a function, to find sends after the final flag.

A send is reported if every path to it has sent the final flag, or if it follows a branch that did so and went on.
A sender that other code gets is not followed further.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from .name_scope import Function, NameScope, alternatives, argument, last_name
from .python_source import PythonSource

_FINAL = "TRITONSERVER_RESPONSE_COMPLETE_FINAL"
States = frozenset[bool]  # whether the final flag has been sent, on the paths to a statement
_OPEN, _CLOSED, _NO_PATH = States({False}), States({True}), States()


def sends_after_final(code: PythonSource) -> list[int]:
    """Return the lines of sends after the final flag."""
    lines: set[int] = set()
    for scope in code.scopes:
        sends = (n for n in scope.nodes if isinstance(n, ast.Call) and last_name(n.func) == "send")
        owners = (send.func.value for send in sends if isinstance(send.func, ast.Attribute))
        for name in {owner.id for owner in owners if isinstance(owner, ast.Name)}:
            if isinstance(scope.node, Function) and name in scope.assignments:
                lines.update(_Sender(scope, name).run().lines)
    return sorted(lines)


@dataclass
class _Sender:
    """One sender in one function; `lines` are of sends after its final flag."""

    scope: NameScope
    name: str
    depth: int = 4
    lines: set[int] = field(default_factory=set)
    after: States = _OPEN  # at the end of the function
    _broken: States = _NO_PATH  # at the `break` of the innermost loop
    _next: States = _NO_PATH  # at its `continue`

    def run(self) -> _Sender:
        self.after = self._block(self.scope.node.body, _OPEN)
        return self

    def _block(self, body: list[ast.stmt], states: States) -> States:
        for statement in body:
            if not states:
                break
            states = self._statement(statement, states)
        return states

    def _statement(self, node: ast.stmt, states: States) -> States:
        if isinstance(node, ast.If):
            states = self._sends(node.test, states)
            return self._branch(node.body, states) | self._branch(node.orelse, states)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(node, states)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            return self._block(node.body, states)
        if isinstance(node, ast.Try):
            done = self._block([*node.body, *node.orelse], states)
            done = done.union(*(self._branch(handler.body, states) for handler in node.handlers))
            return self._block(node.finalbody, done) if done else done
        if isinstance(node, ast.Match):
            return states.union(*(self._branch(case.body, states) for case in node.cases))
        if isinstance(node, ast.Break):
            self._broken |= states
            return _NO_PATH
        if isinstance(node, ast.Continue):
            self._next |= states
            return _NO_PATH
        if isinstance(node, (*Function.__args__, ast.ClassDef)):
            return states
        states = self._sends(node, states)
        if any(isinstance(n, ast.Name) and n.id == self.name and isinstance(n.ctx, ast.Store) for n in ast.walk(node)):
            return _OPEN
        return _NO_PATH if isinstance(node, (ast.Return, ast.Raise)) else states

    def _branch(self, body: list[ast.stmt], states: States) -> States:
        """Follow a branch; whether a mixed state reaches it may depend on its condition."""
        return self._block(body, states if len(states) == 1 else _OPEN) if states else states

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, states: States) -> States:
        outer = self._broken, self._next
        self._broken = self._next = _NO_PATH
        rebinds = not isinstance(node, ast.While) and self.name in {getattr(n, "id", "") for n in ast.walk(node.target)}
        ends = self._block(node.body, _OPEN if rebinds else states) | self._next
        if ends and not rebinds and not isinstance(node, ast.While):
            ends |= self._block(node.body, ends) | self._next  # the second round
        endless = isinstance(node, ast.While) and getattr(node.test, "value", False) is True
        done = _NO_PATH if endless else self._block(node.orelse, states | ends)
        done |= self._broken
        self._broken, self._next = outer
        return done

    def _sends(self, node: ast.AST, states: States) -> States:
        """Follow the sends of one statement without a block, and calls of own functions that get the sender."""
        for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if getattr(owner, "id", "") == self.name:
                if last_name(call.func) == "send":
                    if True in states:
                        self.lines.add(call.lineno)
                        states = _OPEN  # reported once
                    states = _CLOSED if self._is_final(call) else states
                continue
            passed = [*call.args, *(word.value for word in call.keywords)]
            if any(isinstance(n, ast.Name) and n.id == self.name for value in passed for n in ast.walk(value)):
                states = self._called(call, states)
        return states

    def _is_final(self, send: ast.Call) -> bool:
        flags = list(alternatives(self.scope.origin(argument(send, "flags", 1))))
        return all(getattr(f, "value", 0) == 1 or (isinstance(f, ast.Attribute) and f.attr == _FINAL) for f in flags)

    def _called(self, call: ast.Call, states: States) -> States:
        function = self.scope.source.helper(call.func, self.scope) if self.depth else None
        if function is None or not isinstance(function.node, ast.FunctionDef) or function.yields:
            return _OPEN
        names = [each.arg for each in (*function.node.args.posonlyargs, *function.node.args.args)]
        names = names[1:] if names[:1] == ["self"] else names
        pairs = [*zip(names, call.args, strict=False), *((word.arg or "", word.value) for word in call.keywords)]
        inner = next((name for name, value in pairs if getattr(value, "id", "") == self.name), "")
        if not inner:
            return _OPEN
        callee = _Sender(function, inner, self.depth - 1).run()
        if states == _CLOSED and any(_Sender(function, inner, self.depth - 1)._first_sends()):
            self.lines.add(call.lineno)
        return _CLOSED if callee.after == _CLOSED else _OPEN if callee.after == _OPEN else states | callee.after

    def _first_sends(self) -> Iterator[ast.Call]:
        """Yield sends of the function that no condition guards."""
        for statement in self.scope.node.body:
            for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call)):
                owner = getattr(call.func, "value", None)
                if isinstance(statement, ast.Expr) and getattr(owner, "id", "") == self.name:
                    yield call
