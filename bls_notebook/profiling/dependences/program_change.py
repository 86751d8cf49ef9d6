"""Write the program that sends calls together: LibCST turns `exec` into awaited calls, and gathers them.

Three patterns are rewritten: calls in consecutive statements, a call in the body of a `for` loop, a call in a
comprehension. Other forms raise `NotSimpleError`. `proof` runs the result to check that the answers are equal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import libcst as cst
import libcst.matchers as m
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider

Place = tuple[str, int]
"""A pattern and the line where it begins."""
_NOT_COROUTINES = ("initialize", "finalize", "auto_complete_config")
_COMPREHENSIONS = m.ListComp() | m.SetComp() | m.DictComp() | m.GeneratorExp()
_CONDITIONAL = m.IfExp() | m.BooleanOperation() | m.Lambda() | m.NamedExpr() | _COMPREHENSIONS
_JUMPS = m.Return() | m.Raise() | m.Break() | m.Continue()


class NotSimpleError(Exception):
    """The program has a form that is left to its author, in this line (0: anywhere)."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


class ChangedProgram(NamedTuple):
    """A source whose calls are awaited, and all places in it that can be gathered."""

    source: str
    places: tuple[Place, ...]


def changed_program(source: str, gathered: Collection[Place]) -> ChangedProgram:
    """Return a model's source with its calls awaited, and gathered at some places.

    Raises
    ------
    NotSimpleError
    """
    try:
        wrapper = MetadataWrapper(cst.parse_module(source))
    except cst.ParserSyntaxError as error:
        raise NotSimpleError(f"its source cannot be parsed: {error.message}") from error
    writer = _Writer(wrapper.module, _senders(wrapper), gathered)
    module = wrapper.visit(writer)
    if gathered:
        context = CodemodContext()
        AddImportsVisitor.add_needed_import(context, "asyncio")
        module = AddImportsVisitor(context).transform_module(module)
    return ChangedProgram(module.code, tuple(writer.places))


def _senders(wrapper: MetadataWrapper) -> set[cst.FunctionDef]:
    """Return the functions that send calls, directly or indirectly; check that they can become coroutines."""
    parents, positions = wrapper.resolve(ParentNodeProvider), wrapper.resolve(PositionProvider)
    every: Any = m.findall(wrapper.module, m.FunctionDef())
    functions = {node.name.value: node for node in every}
    senders: set[cst.FunctionDef] = set()
    todo: list[Any] = list(m.findall(wrapper.module, m.Call(m.Attribute(attr=m.Name("exec") | m.Name("async_exec")))))
    while todo:
        call = home = todo.pop()
        line = positions[call].start.line
        if any(arg.keyword is not None and arg.keyword.value == "decoupled" for arg in call.args):
            raise NotSimpleError("a decoupled callee answers with an iterator", line)
        while not isinstance(home, (cst.FunctionDef, cst.Lambda, cst.Module)):
            home = parents[home]
        if not isinstance(home, cst.FunctionDef):
            where = "in a lambda" if isinstance(home, cst.Lambda) else "outside any function"
            raise NotSimpleError(f"a call {where} cannot be awaited", line)
        if home in senders:
            continue
        name, line = home.name.value, positions[home].start.line
        dunder = name in _NOT_COROUTINES or name.startswith("__") or bool(home.decorators)
        if dunder or functions[name] is not home or m.findall(home.body, m.Yield()):
            raise NotSimpleError(f"`{name}` cannot become a coroutine", line)
        senders.add(home)
        for use in m.findall(wrapper.module, m.Name(name)) if name != "execute" else ():
            place: Any = parents[use]
            callee = place if isinstance(place, cst.Attribute) and place.attr is use else use
            caller: Any = parents[callee]
            if isinstance(caller, cst.Call) and caller.func is callee:
                todo.append(caller)
            elif place is not home and (callee is place or (isinstance(caller, cst.Arg) and caller.keyword is not use)):
                raise NotSimpleError(f"`{name}` is passed on, so that it cannot be awaited", positions[use].start.line)
    return senders


class _Writer(m.MatcherDecoratableTransformer):
    """Awaits calls, gathers them at the wanted places, and lists all places."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, module: cst.Module, senders: set[cst.FunctionDef], gathered: Collection[Place]) -> None:
        super().__init__()
        self._senders, self._gathered = senders, gathered
        self._names = {node.name.value for node in senders} - {"execute"}
        self._taken = _names(module)
        self.places: list[Place] = []

    def _wanted(self, kind: str, node: Any) -> bool:
        place = (kind, self.get_metadata(PositionProvider, node).start.line)
        self.places.append(place)
        return place in self._gathered

    def _variable(self, stem: str) -> str:
        name = next(n for n in (stem, *(f"{stem}_{i}" for i in range(2, 9999))) if n not in self._taken)
        self._taken.add(name)
        return name

    def leave_FunctionDef(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
        sends = original in self._senders and updated.asynchronous is None
        return updated.with_changes(asynchronous=cst.Asynchronous()) if sends else updated

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> Any:
        name: Any = updated.func.attr if isinstance(updated.func, cst.Attribute) else updated.func
        if isinstance(updated.func, cst.Attribute) and name.value == "exec":
            return cst.Await(updated.with_deep_changes(updated.func, attr=cst.Name("async_exec")))
        sends = isinstance(name, cst.Name) and name.value in self._names
        return cst.Await(updated) if sends else _parenthesized(updated, "func")

    def leave_Await(self, original: cst.Await, updated: cst.Await) -> Any:
        return updated.expression if isinstance(updated.expression, cst.Await) else updated

    def leave_Attribute(self, original: cst.Attribute, updated: cst.Attribute) -> Any:
        return _parenthesized(updated, "value")

    def leave_Subscript(self, original: cst.Subscript, updated: cst.Subscript) -> Any:
        return _parenthesized(updated, "value")

    def leave_GeneratorExp(self, original: cst.GeneratorExp, updated: cst.GeneratorExp) -> Any:
        awaits = m.findall(updated, m.Await())  # a generator would become an asynchronous one
        return self.leave_ListComp(original, cst.ListComp(updated.elt, updated.for_in)) if awaits else updated

    def leave_ListComp(self, original: Any, updated: Any) -> Any:
        loop = updated.for_in
        elements = [updated.key, updated.value] if isinstance(updated, cst.DictComp) else [updated.elt]
        calls = [call for element in elements for call in _calls(element) or ()]
        if len(calls) != 1 or loop.inner_for_in or loop.asynchronous or m.findall(loop, m.Await()):
            return updated
        needs = set().union(*(_names(element.deep_replace(calls[0], cst.Name("_"))) for element in elements)) & _stored(
            loop.target
        )
        if (needs and (loop.ifs or not _is_repeatable(loop.iter))) or not self._wanted("comprehension", original):
            return updated
        gather = f"await asyncio.gather(*[{_code(calls[0].expression)}{_code(loop)}])"
        if isinstance(updated, cst.ListComp) and updated.elt is calls[0]:
            return cst.parse_expression(gather)
        answer = self._variable("answer")
        new = ": ".join(_code(element.deep_replace(calls[0], cst.Name(answer))) for element in elements)
        both = _answers_of(loop, loop.iter, answer, gather) if needs else f"{answer} in {gather}"
        return cst.parse_expression(
            f"[{new} for {both}]" if isinstance(updated, cst.ListComp) else f"{{{new} for {both}}}"
        )

    def leave_SetComp(self, original: cst.SetComp, updated: cst.SetComp) -> Any:
        return self.leave_ListComp(original, updated)

    def leave_DictComp(self, original: cst.DictComp, updated: cst.DictComp) -> Any:
        return self.leave_ListComp(original, updated)

    def leave_IndentedBlock(self, original: cst.IndentedBlock, updated: cst.IndentedBlock) -> cst.IndentedBlock:
        body: list[Any] = []
        for before, statement in zip(original.body, updated.body, strict=True):
            body += self._loop(before, statement) if isinstance(statement, cst.For) else [statement]
        return updated.with_changes(body=self._consecutive(body, original))

    def _loop(self, original: Any, loop: Any) -> list[Any]:
        body = list(getattr(loop.body, "body", ()))
        at = next((n for n, each in enumerate(body) if m.findall(each, m.Await())), -1)
        calls = _simple(body[at]) if at >= 0 else None
        before, after = body[: max(at, 0)], body[at + 1 :]
        if not calls or len(calls) > 1 or loop.orelse or loop.asynchronous or m.findall(loop.iter, m.Await()):
            return [loop]
        if any(m.findall(each, _JUMPS) for each in before) or any(m.findall(s, m.Await() | m.Break()) for s in after):
            return [loop]
        rest = [body[at].deep_replace(calls[0], cst.Name("_")), *after]
        loaded = set().union(*map(_names, rest))
        if set().union(*map(_stored, before)) & loaded or not self._wanted("loop", original):
            return [loop]
        target = _target(body[at], calls[0])
        answer = target or self._variable("answer")
        rest = after if target else [body[at].deep_replace(calls[0], cst.Name(answer)), *after]
        calls_name, items, out = self._variable("calls"), loop.iter, []
        needs = loaded & _stored(loop.target)
        if needs and not _is_repeatable(items):
            items = cst.Name(self._variable("items"))
            out.append(cst.parse_statement(f"{items.value} = list({_code(loop.iter)})"))
        sending = cst.parse_statement(f"{calls_name}.append({_code(calls[0].expression)})")
        first = loop.with_deep_changes(loop.body, body=[*before, sending])
        out += [cst.parse_statement(f"{calls_name} = []"), first.with_changes(iter=items, leading_lines=[])]
        gather = f"await asyncio.gather(*{calls_name})"
        head = _answers_of(loop, items, answer, gather) if needs else f"{answer} in {gather}"
        last: Any = cst.parse_statement(f"for {head}:\n    pass\n")
        out.append(last.with_changes(body=loop.body.with_changes(body=rest)) if rest else last)
        return [out[0].with_changes(leading_lines=loop.leading_lines), *out[1:]]

    def _consecutive(self, body: Sequence[Any], original: cst.IndentedBlock) -> list[Any]:
        """Gather independent calls, and move the statements that use their answers behind them."""
        out: list[Any] = []
        group: list[tuple[Any, list[Any]]] = []  # statements that send, and their calls
        after: list[Any] = []  # the group, and statements that use its answers
        bound: set[str] = set()
        used: set[str] = set()

        def close() -> None:
            calls = [call for _, each in group for call in each]
            first = original.body[min(len(out), len(original.body) - 1)]
            out.extend(
                self._gathered_first(calls, after) if len(calls) > 1 and self._wanted("consecutive", first) else after
            )
            for each in (group, after, bound, used):
                each.clear()

        for statement in body:
            calls = _simple(statement)
            sent = set().union(*(_names(call.expression) for call in calls or ()))
            if calls is None or sent & bound or (not calls and _stored(statement) & used):
                close()
            moves = bool(calls) or (bool(group) and (_names(statement) & bound or m.findall(statement, _JUMPS)))
            if calls:
                group.append((statement, calls))
            (after if moves and calls is not None else out).append(statement)
            if moves:
                bound |= _stored(statement)
                used |= _names(statement)
        close()
        return out

    def _gathered_first(self, calls: Sequence[Any], statements: Sequence[Any]) -> list[Any]:
        out: list[Any] = []
        names: dict[Any, str] = {}
        for statement in statements:
            inside = m.findall(statement, m.Await())
            own = [call for call in calls if any(call is found for found in inside)]
            target = _target(statement, own[0]) if len(own) == 1 else ""
            if target and not any(target in _names(each) for each in out):
                names[own[0]] = target
            elif own and m.matches(statement, m.SimpleStatementLine(body=[m.Expr(m.Await())])):
                names[own[0]] = "_"
            else:
                names.update({call: self._variable("answer") for call in own})
                out.append(statement.visit(_Replacer(names)))
        targets = ", ".join(names[call] for call in calls)
        sent = "".join(f"    {_code(call.expression)},\n" for call in calls)
        targets = "" if set(names.values()) == {"_"} else f"{targets} = "
        gather = cst.parse_statement(f"{targets}await asyncio.gather(\n{sent})\n")
        return [gather.with_changes(leading_lines=statements[0].leading_lines), *out]


def _calls(node: Any) -> list[Any] | None:
    """Return the awaited calls of code in order; None if one is conditional, repeated, or needs another."""
    found: list[Any] = list(m.findall(node, m.Await()))
    parts: list[Any] = [part for part in m.findall(node, _CONDITIONAL) if not isinstance(part, cst.ListComp)]
    parts += [part.elt for part in m.findall(node, m.ListComp())]  # type: ignore[attr-defined]
    unclear = any(m.findall(part, m.Await()) for part in (*parts, *(call.expression for call in found)))
    return None if unclear else found


def _simple(statement: Any) -> list[Any] | None:
    """Return the calls of a statement that can be sent before it; None if it has others."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        return _calls(statement.body[0])
    return None if m.findall(statement, m.Await()) else []


def _target(statement: Any, call: Any) -> str:
    """Return the variable that a statement assigns the call to, if it does nothing else."""
    plain = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Name())], value=m.Await())])
    return str(statement.body[0].targets[0].target.value) if m.matches(statement, plain) else ""


def _names(node: Any) -> set[str]:
    """Return the variables and members that code names."""
    members = m.findall(node, m.Attribute(m.Name("self")))
    out = {f"self.{member.attr.value}" for member in members}  # type: ignore[attr-defined]
    return out | {name.value for name in m.findall(node, m.Name())} - {"self"}  # type: ignore[attr-defined]


def _stored(node: Any) -> set[str]:
    """Return the variables and members that code assigns, or calls a method of."""
    if isinstance(node, cst.BaseExpression):
        while isinstance(node, (cst.Subscript, cst.Attribute)) and not m.matches(node, m.Attribute(m.Name("self"))):
            node = node.value
        return _names(node)
    stores = m.AssignTarget() | m.AugAssign() | m.AnnAssign() | m.For() | m.NamedExpr()
    targets: list[Any] = [each.target for each in m.findall(node, stores)]  # type: ignore[attr-defined]
    targets += [each.name for each in m.findall(node, m.AsName())]  # type: ignore[attr-defined]
    methods: Any = m.findall(node, m.Expr(m.Call(m.Attribute())))
    return set().union(*map(_stored, [*targets, *(each.value.func.value for each in methods)]))


def _is_repeatable(items: Any) -> bool:
    """Whether an expression yields the same items when iterated twice."""
    plain = m.Name() | m.Attribute() | m.Subscript() | m.Tuple() | m.List() | m.Call(m.Name("range"))
    return m.matches(items, plain)


def _answers_of(loop: Any, items: Any, answer: str, gather: str) -> str:
    """Return the head of a loop over items and their answers."""
    target = _code(loop.target)
    target = f"({target})" if isinstance(loop.target, cst.Tuple) and not loop.target.lpar else target
    return f"{target}, {answer} in zip({_code(items)}, {gather})"


class _Replacer(cst.CSTTransformer):
    def __init__(self, names: dict[Any, str]) -> None:
        super().__init__()
        self._names = names

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        return cst.Name(self._names[original_node]) if original_node in self._names else updated_node


def _parenthesized(node: Any, field: str) -> Any:
    inner = getattr(node, field)
    if not isinstance(inner, cst.Await) or inner.lpar:
        return node
    return node.with_changes(**{field: inner.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])})


def _code(node: Any) -> str:
    return cst.Module([]).code_for_node(node)
