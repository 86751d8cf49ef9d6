"""Where a model sends requests and waits for the answers, and which functions have to be async for that.

A site is an expression that waits: `request.exec()`, a call of a function of the model's that does so, an
`await` of either in what is async already, or a list of such calls in a comprehension.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from .effects import Reader
from .names import COMPREHENSIONS, SCOPES, Function, Module, goes_again, within_body

_EAGER = frozenset(["list", "tuple", "sum", "sorted", "set", "frozenset", "max", "min"])
_CALLED_BY_TRITON = frozenset(["initialize", "finalize", "auto_complete_config", "is_ready"])
_MOST = 100  # places in a function: the time grows with their cube
_ORDER = frozenset({"correlation_id", "flags"})


class NotPlainError(Exception):
    """Why a model cannot be rewritten."""


@dataclass(eq=False)
class Site:
    """One place that waits for an answer; ``call`` is what sends, ``many`` that it is a list of such."""

    node: ast.expr
    call: ast.Call
    function: Function
    many: bool = False
    repeated: bool = False  # it is one of the elements of another
    parent: ast.AST | None = None
    inner: ast.expr | None = None  # of a comprehension: what waits in each element
    keeps_order: bool = False
    stand_in: str = ""  # the name that it is replaced by, where it is sent with others

    @property
    def is_answer(self) -> bool:
        """Whether it is worth what is gathered: not something that a comprehension makes of each answer."""
        return not self.many or (isinstance(self.node, ast.ListComp) and self.node.elt is self.inner)


@dataclass
class Sites:
    module: Module
    reader: Reader
    of: dict[Function, list[Site]] = field(default_factory=dict)
    become_async: set[Function] = field(default_factory=set)


def find_sites(module: Module, lines: frozenset[int], stateful: frozenset[str]) -> Sites:
    """Find all that sends on behalf of `execute`.

    A NotPlainError says what cannot be made async, or is not seen through.
    """
    execute = module.methods.get("execute")
    if execute is None:
        raise NotPlainError("there is no plain `execute` in a class TritonPythonModel")
    reader = Reader(module)
    sites = Sites(module, reader)
    parents = {child: node for node in ast.walk(module.tree) for child in ast.iter_child_nodes(node)}
    direct = {f: [c for c in _calls(f) if _sends(c, f, lines, parents)] for f in module.own}
    for function in module.own:  # what is awaited elsewhere too
        reader.sends.update(c for c in _calls(function) if _sends(c, function, lines, parents, awaited=False))
    sending = {f for f, calls in direct.items() if calls or (f.is_async and reader.sends & {*_calls(f)})}
    while True:  # and what calls these
        more = {f for f in module.own if f not in sending and sending & {*_called(f, module)}}
        if not more:
            break
        sending |= more
    sites.become_async = {f for f in sending if not f.is_async}
    for function in sending:
        sites.of[function] = [*_sites_of(function, sites, direct[function], sending, parents)]
        if len(sites.of[function]) > _MOST:
            raise NotPlainError(f"`{function.name}` has more than {_MOST} places that send")
        for site in sites.of[function]:
            site.keeps_order = _keeps_order(site, module, stateful)
    _check(sites, sending, parents)
    if execute not in sending:
        raise NotPlainError("what `execute` sends is not seen in this file")
    return sites


def _calls(function: Function) -> Iterator[ast.Call]:
    return (n for n in within_body(function.node) if isinstance(n, ast.Call))


def _called(function: Function, module: Module) -> Iterator[Function]:
    for call in _calls(function):
        own = module.function_of(call.func, function)
        if own is not None:
            yield own


def _sends(
    call: ast.Call,
    function: Function,
    lines: frozenset[int],
    parents: dict[ast.AST, ast.AST],
    awaited: bool = True,
) -> bool:
    """Whether a call sends a request, and waits for one answer."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("exec", "async_exec"):
        return False
    if any(k.arg in (None, "decoupled") for k in call.keywords) or call.args:
        return False
    if awaited and call.func.attr == "async_exec" and not isinstance(parents.get(call), ast.Await):
        return False
    seen = bool(lines & set(range(call.lineno, (call.end_lineno or call.lineno) + 1)))
    return seen or _is_request(call.func.value, function)


def _is_request(node: ast.expr, function: Function) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).endswith("InferenceRequest")
    if not isinstance(node, ast.Name):
        return False
    body = [*within_body(function.node)]
    values = _values_of(node.id, body)
    if values:
        return all(isinstance(v, ast.Call) and _is_request(v, function) for v in values)
    loops = (n for n in body if isinstance(n, (ast.For, ast.comprehension)))
    held = [loop.iter for loop in loops if _is_named(loop.target, node.id)]
    return bool(held) and all(_are_requests(each, function, body) for each in held)


def _are_requests(node: ast.expr, function: Function, body: list[ast.AST]) -> bool:
    if isinstance(node, ast.Name):
        values = [v for v in _values_of(node.id, body) if not isinstance(v, ast.Name)]
        return bool(values) and all(_are_requests(v, function, body) for v in values)
    each = [node.elt] if isinstance(node, ast.ListComp) else getattr(node, "elts", [])
    return bool(each) and all(isinstance(e, ast.Call) and _is_request(e, function) for e in each)


def _values_of(name: str, body: list[ast.AST]) -> list[ast.expr]:
    return [n.value for n in body if isinstance(n, ast.Assign) and any(_is_named(t, name) for t in n.targets)]


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _sites_of(
    function: Function,
    sites: Sites,
    direct: list[ast.Call],
    sending: set[Function],
    parents: dict[ast.AST, ast.AST],
) -> Iterator[Site]:
    calls_of_own = {c for c in _calls(function) if sites.module.function_of(c.func, function) in sending}
    for call in _calls(function):
        own = sites.module.function_of(call.func, function)
        parent = parents[call]
        if isinstance(parent, ast.Await) and sites.module.imported(call.func, function) == "asyncio.gather":
            yield Site(parent, call, function, parent=parents[parent])  # what is together already
            continue
        if call not in direct and own not in sending:
            continue
        node: ast.expr = call
        if isinstance(parent, ast.Await):
            node, parent = parent, parents[parent]
        elif own is not None and own.is_async:
            continue  # a coroutine for somebody else
        site = Site(node, call, function, parent=parent)
        yield site
        outer = _comprehension(node, function, sites.reader.sends | calls_of_own, parents)
        if outer is not None:
            site.repeated = True
            yield Site(outer, call, function, many=True, parent=parents[outer], inner=node)


def _comprehension(
    node: ast.expr, function: Function, others: set[ast.Call], parents: dict[ast.AST, ast.AST]
) -> ast.expr | None:
    """The comprehension that has an expression in each element, and can wait for all of them at once."""
    child: ast.AST = node
    above = parents[child]
    while isinstance(above, (ast.Call, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.keyword)):
        child, above = above, parents[above]
    element = above.value if isinstance(above, ast.DictComp) else getattr(above, "elt", None)
    if not isinstance(above, (ast.ListComp, ast.GeneratorExp, ast.DictComp)) or element is not child:
        return None
    if any(g.is_async for g in above.generators) or len(others & {*ast.walk(above)}) > 1:
        return None
    targets = {n.id for g in above.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    inner = {*ast.walk(node)}
    beside = {n.id for n in ast.walk(child) if isinstance(n, ast.Name) and n not in inner}
    if beside & targets:
        return None
    if isinstance(above, ast.DictComp):
        again = all(goes_again(g.iter, function) for g in above.generators)
        return above if again else None
    if isinstance(above, ast.ListComp):
        return above
    taker = parents[above]
    if isinstance(taker, ast.Call) and taker.args == [above] and not taker.keywords:
        eager = isinstance(taker.func, ast.Name) and taker.func.id in _EAGER
        joins = isinstance(taker.func, ast.Attribute) and taker.func.attr == "join"
        return above if eager or joins else None
    return None


def _check(sites: Sites, sending: set[Function], parents: dict[ast.AST, ast.AST]) -> None:
    module = sites.module
    for function in sites.become_async:
        if function.method and (function.name in _CALLED_BY_TRITON or function.name.startswith("__")):
            raise NotPlainError(f"line {function.node.lineno}: `{function.name}` sends requests too")
        if not function.plain:
            raise NotPlainError(f"line {function.node.lineno}: `{function.name}` has a decorator")
        if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in within_body(function.node)):
            raise NotPlainError(f"line {function.node.lineno}: `{function.name}` is a generator")
    known = {site.call for found in sites.of.values() for site in found}
    for node in ast.walk(module.tree):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        for function in sites.become_async:
            if name != function.name or _is_another(node, function):
                continue
            call = parents[node]
            if not (isinstance(call, ast.Call) and call.func is node and call in known):
                raise NotPlainError(
                    f"line {node.lineno}: `{name}`, which sends requests, would have to be awaited there"  # type: ignore[attr-defined]
                )
    for function in sending:
        for site in sites.of[function]:
            _check_place(site, parents)
        for scope in (n for n in within_body(function.node) if isinstance(n, SCOPES)):
            for n in ast.walk(scope):
                if isinstance(n, ast.Attribute) and n.attr in ("exec", "async_exec"):
                    raise NotPlainError(
                        f"line {n.lineno}: a request is sent in a function inside `{function.name}`"
                    )


def _is_another(node: ast.AST, function: Function) -> bool:
    """Whether a name is not that of the function, but of something else that is called so."""
    if isinstance(node, ast.Attribute):
        if not isinstance(node.ctx, ast.Load):
            return False
        return not function.method
    return function.method or not isinstance(getattr(node, "ctx", None), ast.Load)


def _check_place(site: Site, parents: dict[ast.AST, ast.AST]) -> None:
    """Refuse places where nothing can be awaited."""
    if site.repeated or isinstance(site.node, ast.Await):
        return
    node: ast.AST = site.node
    while node is not site.function.node:
        above = parents[node]
        if (
            isinstance(above, ast.GeneratorExp)
            and site.node is not above
            and above.generators[0].iter is not node
        ):
            raise NotPlainError(f"line {site.node.lineno}: a request is sent in a generator expression")
        node = above


def _keeps_order(site: Site, module: Module, stateful: frozenset[str]) -> bool:
    """Whether the order of its requests may matter: of a sequence, or to a model that keeps a state."""
    own = module.function_of(site.call.func, site.function)
    every = [site.call] if own is None else [site.call, own.node]
    code: list[ast.AST] = [n for each in every for n in ast.walk(each)]
    if own is None:  # the request may be made before
        code += [
            n for a in within_body(site.function.node) if isinstance(a, ast.Assign)
            if ast.unparse(a.targets[0]) == ast.unparse(site.call.func.value)  # type: ignore[attr-defined]
            for n in ast.walk(a.value)
        ]  # fmt: skip
    if any(isinstance(n, ast.keyword) and n.arg in _ORDER for n in code):
        return True
    named = {n.value for n in code if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return bool(stateful) and (bool(named & stateful) or not _names_a_model(site, code))


def _names_a_model(site: Site, code: list[ast.AST]) -> bool:
    """Whether the model that it calls is written there."""
    names = [n.value for n in code if isinstance(n, ast.keyword) and n.arg == "model_name"]
    given = [*names, *site.call.args[:1]]
    return any(isinstance(n, ast.Constant) for n in given)


def conditional(site: Site, statement: ast.stmt, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a site in the head of a statement may not be reached, or more than once."""
    node: ast.AST = site.node
    while node is not statement:
        above = parents[node]
        if isinstance(above, (ast.IfExp, ast.BoolOp, *COMPREHENSIONS, *SCOPES)):
            first = above.values[0] if isinstance(above, ast.BoolOp) else None
            first = above.test if isinstance(above, ast.IfExp) else first
            if isinstance(above, COMPREHENSIONS) and above.generators[0].iter is node:
                first = node
            if node is not first:
                return True
        if isinstance(above, ast.comprehension):
            comp = parents[above]
            if not (isinstance(comp, COMPREHENSIONS) and comp.generators[0] is above and above.iter is node):
                return True
            node = comp
            continue
        if isinstance(above, ast.Compare) and len(above.comparators) > 1:
            return True
        node = above
    said = isinstance(statement, ast.Assert) and site.node not in {*ast.walk(statement.test)}
    return said or isinstance(statement, ast.While)
