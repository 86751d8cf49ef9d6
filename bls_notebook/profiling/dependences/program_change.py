"""Write the program that sends calls together: LibCST turns `exec` into awaited calls, and gathers them.

Three patterns are rewritten: calls in consecutive statements, a call in the body of a `for` loop, a call in a
comprehension. A fourth needs no gathering: `exec` in coroutines that already run together. Other forms raise
`NotSimpleError`. `proof` runs the result to check that the answers are equal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import libcst as cst
import libcst.matchers as m
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor
from libcst.metadata import MetadataWrapper, PositionProvider

Place = tuple[str, int]
"""A pattern and the line where it begins."""
AWAITED: Place = ("awaited", 0)
"""The calls are awaited instead of sent by `exec`, and nothing is gathered."""
_COMPREHENSIONS = m.ListComp() | m.SetComp() | m.DictComp() | m.GeneratorExp()
_CONDITIONAL = m.IfExp() | m.BooleanOperation() | m.Lambda() | m.NamedExpr() | _COMPREHENSIONS
_JUMPS = m.Return() | m.Raise() | m.Break() | m.Continue()
_PLAIN = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Name())], value=m.Await())])
_STORES = m.AssignTarget() | m.AugAssign() | m.AnnAssign() | m.For() | m.NamedExpr()
_REPEATABLE = m.Name() | m.Attribute() | m.Subscript() | m.Tuple() | m.List() | m.Call(m.Name("range"))


class NotSimpleError(Exception):
    """The program has a form that is left to its author."""


def changed_program(source: str, gathered: Collection[Place]) -> tuple[str, list[Place]]:
    """Return a model's source with its calls awaited, and gathered at some places; and all places.

    Raises
    ------
    NotSimpleError
    """
    try:
        wrapper = MetadataWrapper(cst.parse_module(source))
    except cst.ParserSyntaxError as error:
        raise NotSimpleError(f"its source cannot be parsed: {error.message}") from error
    writer = _Writer(wrapper.module, gathered)
    module = wrapper.visit(writer)
    if gathered:
        context = CodemodContext()
        AddImportsVisitor.add_needed_import(context, "asyncio")
        module = AddImportsVisitor(context).transform_module(module)
    return module.code, writer.places


def _senders(module: cst.Module) -> set[str]:
    """Return the names of the functions that send calls, directly or through one another: they become coroutines."""
    functions = {node.name.value: node for node in _all(module, m.FunctionDef())}
    senders, known = set[str](), -1
    while len(senders) > known:
        known, called = len(senders), {"exec", "async_exec", *(senders - {"execute"})}
        is_sender = m.Name(m.MatchIfTrue(called.__contains__))
        sends = m.Call(func=is_sender | m.Attribute(attr=is_sender))
        senders |= {name for name, node in functions.items() if _all(node.body, sends)}
    return senders


class _Writer(cst.CSTTransformer):
    """Awaits calls, gathers them at the wanted places, and lists all places."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, module: cst.Module, gathered: Collection[Place]) -> None:
        super().__init__()
        self._senders, self._gathered, self._taken = _senders(module), gathered, _names(module)
        self._coroutines = {node.name.value for node in _all(module, m.FunctionDef(asynchronous=m.Asynchronous()))}
        self.places: list[Place] = []

    def _wanted(self, kind: str, node: Any) -> bool:
        self.places.append((kind, self.get_metadata(PositionProvider, node).start.line))
        return self.places[-1] in self._gathered

    def _variable(self, stem: str) -> str:
        name = next(n for n in (stem, *(f"{stem}_{i}" for i in range(2, 9999))) if n not in self._taken)
        self._taken.add(name)
        return name

    def leave_FunctionDef(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
        is_sender = original.name.value in self._senders
        plain = m.Decorator(m.Name("staticmethod") | m.Name("classmethod"))
        if is_sender and not original.asynchronous and not all(m.matches(d, plain) for d in original.decorators):
            name = original.name.value
            raise NotSimpleError(f"`{name}` sends calls and has a decorator, which may not take a coroutine")
        return updated.with_changes(asynchronous=cst.Asynchronous()) if is_sender else updated

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> Any:
        name: Any = updated.func.attr if isinstance(updated.func, cst.Attribute) else updated.func
        if isinstance(updated.func, cst.Attribute) and name.value == "exec":
            return cst.Await(updated.with_deep_changes(updated.func, attr=cst.Name("async_exec")))
        # The author's own coroutines are already awaited, perhaps by a gather.
        is_sender = m.matches(name, m.Name()) and name.value in self._senders - self._coroutines - {"execute"}
        return cst.Await(updated) if is_sender else updated

    def leave_Await(self, original: cst.Await, updated: cst.Await) -> Any:
        return updated.expression if isinstance(updated.expression, cst.Await) else updated

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        new: Any = super().on_leave(original_node, updated_node)
        if m.matches(new, m.Attribute(value=m.Await()) | m.Subscript(value=m.Await())):
            return new.with_deep_changes(new.value, lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return self._comprehension(original_node, new) if m.matches(original_node, _COMPREHENSIONS) else new

    def _comprehension(self, original: Any, updated: Any) -> Any:
        loop, is_list = updated.for_in, isinstance(updated, (cst.ListComp, cst.GeneratorExp))
        if isinstance(updated, cst.GeneratorExp) and _all(updated, m.Await()):
            updated = cst.ListComp(updated.elt, loop)  # a generator would become an asynchronous one
        elements = [updated.key, updated.value] if isinstance(updated, cst.DictComp) else [updated.elt]
        calls = [call for element in elements for call in _calls(element) or ()]
        if len(calls) != 1 or loop.inner_for_in or loop.asynchronous or _all(loop, m.Await()):
            return updated
        rest = set().union(*(_names(element.deep_replace(calls[0], cst.Name("_"))) for element in elements))
        needs = rest & _stored(loop.target)
        if (needs and (loop.ifs or not m.matches(loop.iter, _REPEATABLE))) or not self._wanted(
            "comprehension", original
        ):
            return updated
        gather = f"await asyncio.gather(*[{_code(calls[0].expression)}{_code(loop)}])"
        if is_list and updated.elt is calls[0]:
            return cst.parse_expression(gather)
        answer = self._variable("answer")
        new = ": ".join(_code(element.deep_replace(calls[0], cst.Name(answer))) for element in elements)
        both = f"{new} for {_answers_of(loop, loop.iter, answer, gather) if needs else f'{answer} in {gather}'}"
        return cst.parse_expression(f"[{both}]" if is_list else f"{{{both}}}")

    def leave_IndentedBlock(self, original: cst.IndentedBlock, updated: cst.IndentedBlock) -> cst.IndentedBlock:
        body: list[Any] = []
        for before, statement in zip(original.body, updated.body, strict=True):
            body += self._loop(before, statement) if isinstance(statement, cst.For) else [statement]
        return updated.with_changes(body=self._consecutive(body, original))

    def _loop(self, original: Any, loop: Any) -> list[Any]:
        """Return a loop that sends its calls, and one that uses the answers."""
        body = list(getattr(loop.body, "body", ()))
        at = next((n for n, statement in enumerate(body) if _all(statement, m.Await())), -1)
        calls = _simple(body[at]) if at >= 0 else None
        before, after = body[: max(at, 0)], body[at + 1 :]
        if not calls or len(calls) > 1 or loop.orelse or loop.asynchronous or _all(loop.iter, m.Await()):
            return [loop]
        if any(_all(s, _JUMPS) for s in before) or any(_all(s, m.Await() | m.Break()) for s in after):
            return [loop]
        loaded = set().union(*map(_names, [body[at].deep_replace(calls[0], cst.Name("_")), *after]))
        if set().union(*map(_stored, before)) & loaded or not self._wanted("loop", original):
            return [loop]
        target = _target(body[at])
        answer, calls_name = target or self._variable("answer"), self._variable("calls")
        rest = after if target else [body[at].deep_replace(calls[0], cst.Name(answer)), *after]
        gather, items, out = f"await asyncio.gather(*{calls_name})", loop.iter, []
        head = f"{answer} in {gather}"
        if loaded & _stored(loop.target):
            items = cst.Name(self._variable("items"))
            out.append(cst.parse_statement(f"{items.value} = list({_code(loop.iter)})"))
            head = _answers_of(loop, items, answer, gather)
        sending = cst.parse_statement(f"{calls_name}.append({_code(calls[0].expression)})")
        first = loop.with_deep_changes(loop.body, body=[*before, sending])
        last: Any = cst.parse_statement(f"for {head}:\n    pass\n")
        out += [cst.parse_statement(f"{calls_name} = []"), first.with_changes(iter=items, leading_lines=[])]
        out.append(last.with_changes(body=loop.body.with_changes(body=rest)) if rest else last)
        return [out[0].with_changes(leading_lines=loop.leading_lines), *out[1:]]

    def _consecutive(self, body: Sequence[Any], original: cst.IndentedBlock) -> list[Any]:
        """Gather independent calls, and move the statements that use their answers behind them."""
        out: list[Any] = []
        group: list[Any] = []  # the calls
        after: list[Any] = []  # their statements, and those that use the answers
        bound: set[str] = set()
        used: set[str] = set()

        def close() -> None:
            first = original.body[min(len(out), len(original.body) - 1)]
            wanted = len(group) > 1 and self._wanted("consecutive", first)
            out.extend(self._gathered_first(group, after) if wanted else after)
            for collection in (group, after, bound, used):
                collection.clear()

        for statement in body:
            calls = _simple(statement)
            sent = set().union(*(_names(call.expression) for call in calls or ()))
            if calls is None or sent & bound or (not calls and _stored(statement) & used):
                close()
            if calls or (group and (_names(statement) & bound or _all(statement, _JUMPS))):
                group += calls or ()
                bound |= _stored(statement)
                used |= _names(statement)
                after.append(statement)
            else:
                out.append(statement)
        close()
        return out

    def _gathered_first(self, calls: Sequence[Any], statements: Sequence[Any]) -> list[Any]:
        out: list[Any] = []
        names: list[str] = []
        for statement in statements:
            if (target := _target(statement)) and not any(target in _names(earlier) for earlier in out):
                names.append(target)
            elif m.matches(statement, m.SimpleStatementLine(body=[m.Expr(m.Await())])):
                names.append("_")
            else:
                while awaited := _all(statement, m.Await()):
                    names.append(self._variable("answer"))
                    statement = statement.deep_replace(awaited[0], cst.Name(names[-1]))
                out.append(statement)
        targets = "" if set(names) == {"_"} else f"{', '.join(names)} = "
        sent = "".join(f"    {_code(call.expression)},\n" for call in calls)
        gather = cst.parse_statement(f"{targets}await asyncio.gather(\n{sent})\n")
        return [gather.with_changes(leading_lines=statements[0].leading_lines), *out]


def _all(node: Any, matcher: Any) -> list[Any]:
    return list(m.findall(node, matcher))


def _calls(node: Any) -> list[Any] | None:
    """Return the awaited calls of code in order; None if one is conditional, repeated, or needs another."""
    calls = _all(node, m.Await())
    parts = [part.elt if isinstance(part, cst.ListComp) else part for part in _all(node, _CONDITIONAL)]
    unclear = any(_all(part, m.Await()) for part in (*parts, *(call.expression for call in calls)))
    return None if unclear else calls


def _simple(statement: Any) -> list[Any] | None:
    """Return the calls of a statement that can be sent before it; None if it has others."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        return _calls(statement.body[0])
    return None if _all(statement, m.Await()) else []


def _target(statement: Any) -> str:
    """Return the variable that a statement assigns its call to, if it does nothing else."""
    return str(statement.body[0].targets[0].target.value) if m.matches(statement, _PLAIN) else ""


def _names(node: Any) -> set[str]:
    """Return the variables and members that code names."""
    members = {f"self.{member.attr.value}" for member in _all(node, m.Attribute(m.Name("self")))}
    return members | {name.value for name in _all(node, m.Name())} - {"self"}


def _stored(node: Any) -> set[str]:
    """Return the variables and members that code assigns, or calls a method of."""
    if isinstance(node, cst.BaseExpression):
        while isinstance(node, (cst.Subscript, cst.Attribute)) and not m.matches(node, m.Attribute(m.Name("self"))):
            node = node.value
        return _names(node)
    targets = [store.target for store in _all(node, _STORES)] + [alias.name for alias in _all(node, m.AsName())]
    targets += [statement.value.func.value for statement in _all(node, m.Expr(m.Call(m.Attribute())))]
    return set().union(*map(_stored, targets))


def _answers_of(loop: Any, items: Any, answer: str, gather: str) -> str:
    """Return the head of a loop over items and their answers."""
    target = _code(loop.target)
    target = f"({target})" if isinstance(loop.target, cst.Tuple) and not loop.target.lpar else target
    return f"{target}, {answer} in zip({_code(items)}, {gather})"


def _code(node: Any) -> str:
    return cst.Module([]).code_for_node(node)
