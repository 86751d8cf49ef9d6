"""Check how `execute` sends requests and reads their responses: missing `await`, blocking calls, unchecked errors.

A finding needs proof in the source: a value that may come from elsewhere, and a function that another thread or event
loop may run, cause none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from .checked_model import CheckedModel
from .name_scope import NameScope, alternatives, argument, is_call_of, last_name
from .python_source import PythonSource, used_at_once
from .records import Finding

_RESPONSE = frozenset({"has_error", "error", "output_tensors"})  # methods of a response
_OUTPUT = "get_output_tensor_by_name"
_LOOKS = frozenset({_OUTPUT, "len", "zip", "enumerate", "print"})  # calls that check no response


def await_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield calls that `execute` cannot make, does not await, or makes without a check of the error."""
    code = model.newest()
    if code is None or code.mistake:
        return
    plain = isinstance(code.execute, ast.FunctionDef)
    reported = set[int]()
    if code.execute and "InferenceRequest" in code.words and "get_running_loop" not in code.words:
        for call in _direct_sends(code, "async_exec" if plain else "exec"):
            reported.add(call.lineno)
            yield model.in_code("async-in-sync" if plain else "exec-in-async", code, call.lineno)
    for scope in code.scopes:
        if isinstance(scope.node, ast.AsyncFunctionDef):
            runs = (n for n in scope.nodes if isinstance(n, ast.Call) and ast.unparse(n.func) == "asyncio.run")
            yield from (model.in_code("run-in-loop", code, call.lineno) for call in runs)
        unawaited = {node.lineno: node for node in _misused(code, scope) if node.lineno not in reported}
        for line, node in unawaited.items():
            yield model.in_code("await-missing", code, line, what=ast.unparse(node)[:80])
        for name, line in _reused_buffers(scope):
            yield model.in_code("buffer-reused", code, line, name=name)
        for line, what in _blocking(code, scope):
            yield model.in_code("async-blocks", code, line, what=what)
        for node in _not_awaited(code, scope):
            if node.lineno not in reported:
                yield model.in_code("wait-not-awaited", code, node.lineno, what=ast.unparse(node)[:80])
        for node in _unchecked(scope):
            yield model.in_code("error-unchecked", code, node.lineno, what=ast.unparse(node)[:80])


def _direct_sends(code: PythonSource, method: str) -> Iterator[ast.Call]:
    """Yield calls of a method in `execute`, and in the functions that it certainly calls itself."""
    todo = [scope for scope in code.scopes if scope.node is code.execute]
    for scope in todo:  # the loop extends `todo`
        lazy = {id(n) for node in scope.nodes if isinstance(node, ast.GeneratorExp) for n in ast.walk(node)}
        for node in scope.nodes:
            if not isinstance(node, ast.Call) or id(node) in lazy:
                continue
            callee = code.functions.get(_own_name(node.func))
            if isinstance(node.func, ast.Attribute) and node.func.attr == method and not node.args:
                yield node
            elif callee is not None and callee not in todo and not callee.yields:
                todo += [callee] if method == "exec" or isinstance(callee.node, ast.FunctionDef) else []


def _own_name(node: ast.expr) -> str:
    """Return ``name`` or ``self.name``, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return f"self.{last_name(node)}" if own else ""


def _is_coroutine(code: PythonSource, node: ast.AST | None) -> bool:
    """Return whether an expression calls an `async def` of this source."""
    scope = code.functions.get(_own_name(node.func)) if isinstance(node, ast.Call) else None
    return scope is not None and isinstance(scope.node, ast.AsyncFunctionDef) and not scope.yields


def _elements(scope: NameScope, node: ast.expr | None) -> list[ast.expr]:
    """Return the expressions that make the elements of a list; empty if unknown."""
    node = node.value if isinstance(node, ast.Starred) else node
    value = scope.value(node)
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return [value.elt]
    grown = list(scope.grows(node.id)) if isinstance(node, ast.Name) else []
    if not isinstance(value, (ast.List, ast.Tuple)) or any(last_name(call.func) != "append" for call in grown):
        return []
    return [*value.elts, *(added for call in grown for added in call.args)]


def _is_gather(scope: NameScope, node: ast.AST | None) -> bool:
    """Return whether an expression gathers requests and nothing else."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("asyncio.gather", "gather"):
        return False
    sent = [e for a in node.args for e in (_elements(scope, a) or [a] if isinstance(a, ast.Starred) else [a])]
    return bool(sent) and all(is_call_of(scope.value(value), "async_exec") for value in sent)


def _loops(scope: NameScope, name: str) -> list[ast.expr]:
    """Return what the loops over a variable iterate over; empty if it also has other values."""
    loops = [
        n.iter for n in scope.nodes
        if isinstance(n, (ast.For, ast.comprehension)) and isinstance(n.target, ast.Name) and n.target.id == name
    ]  # fmt: skip
    return loops if len(scope.values(name) or ()) == len(loops) else []


def _values(scope: NameScope, node: ast.expr | None) -> list[ast.expr]:
    """Return the only values that an expression or the variable of a loop can have; empty if unknown."""
    value = scope.value(node)
    if value is not None or not isinstance(node, ast.Name):
        return [value] if value is not None else []
    values = [scope.value(element) for loop in _loops(scope, node.id) for element in _elements(scope, loop)]
    return [] if None in values else [value for value in values if value is not None]


def _reads(scope: NameScope) -> Iterator[tuple[ast.Call, ast.expr]]:
    for node in scope.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _RESPONSE:
                yield node, node.func.value
            elif node.func.attr == _OUTPUT and (response := argument(node, "inference_response", 0)) is not None:
                yield node, response


def _misused(code: PythonSource, scope: NameScope) -> Iterator[ast.expr]:
    """Yield awaitables that are used as if they were values."""
    for _, response in _reads(scope):
        values = _values(scope, response)
        if values and all(is_call_of(value, "async_exec") or _is_coroutine(code, value) for value in values):
            yield from values
    for statement in scope.nodes:
        value = getattr(statement, "value", None)
        if isinstance(statement, ast.Expr) and isinstance(value, ast.expr) and _is_coroutine(code, value):
            yield value
        unpacks = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], (ast.Tuple, ast.List))
        iterated = statement.iter if isinstance(statement, ast.For) else value if unpacks else None
        if isinstance(iterated, ast.expr):
            awaitable = scope.value(iterated)
            if _is_coroutine(code, awaitable) or _is_gather(scope, awaitable):
                yield awaitable if awaitable is not None else iterated


_VERBS = ("get", "post", "put", "patch", "delete", "head", "options", "request")
_BLOCKING = frozenset(
    {"time.sleep", "urllib.request.urlopen", "urllib.request.urlretrieve", "os.system", "socket.create_connection"}
    | {f"{module}.{verb}" for module in ("requests", "httpx") for verb in _VERBS}
    | {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output")}
)
_SESSIONS = frozenset({"requests.Session", "requests.session", "httpx.Client"})
_WAITS = frozenset(f"asyncio.{name}" for name in ("gather", "sleep", "wait", "wait_for"))
_OF_FUTURES = frozenset({
    "add_done_callback", "remove_done_callback", "cancel", "cancelled", "done", "exception", "result", "set_result",
    "__await__", "close", "send",
})  # fmt: skip
_UNPACKS = frozenset({"len", "list", "tuple", "set", "zip", "enumerate", "iter", "sorted", "sum", "max", "min"})


def _blocking(code: PythonSource, scope: NameScope) -> Iterator[tuple[int, str]]:
    """Yield the lines of an async function that block its event loop, also in functions that it calls."""
    if not isinstance(scope.node, ast.AsyncFunctionDef):
        return
    known = {id(each) for each in code.scopes}
    reported: set[int] = set()
    todo = [(scope, 0)]
    visited = {id(scope)}
    for caller, line in todo:  # the loop extends `todo`
        for call in (node for node in caller.nodes if isinstance(node, ast.Call)):
            at = line or call.lineno  # in another module: the call in this one
            name = caller.dotted_name(call.func)
            if isinstance(call.func, ast.Attribute) and call.func.attr in _VERBS:
                made = caller.origin(call.func.value)
                is_session = isinstance(made, ast.Call) and caller.dotted_name(made.func) in _SESSIONS
                name = f"{ast.unparse(call.func)}" if is_session else name
            else:
                is_session = False
            if (is_session or name in _BLOCKING) and at not in reported:
                reported.add(at)
                yield at, name
            function = caller.source.helper(call.func, caller)
            if function is not None and id(function) not in visited and isinstance(function.node, ast.FunctionDef):
                visited.add(id(function))
                todo += [] if function.yields else [(function, 0 if id(function) in known else at)]


def _not_awaited(code: PythonSource, scope: NameScope) -> Iterator[ast.expr]:
    """Yield waits of asyncio whose result is used, or dropped, before they are awaited."""
    for node in scope.nodes:
        used: list[ast.expr] = []
        if isinstance(node, (ast.Subscript, ast.Starred)) or (
            isinstance(node, ast.Attribute) and node.attr not in _OF_FUTURES
        ):
            used = [getattr(node, "value", node)]
        elif isinstance(node, (ast.For, ast.comprehension)):
            used = [node.iter]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _UNPACKS:
            used = node.args
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List)):
            used = [node.value]
        elif isinstance(scope.node, ast.AsyncFunctionDef):
            is_dropped = isinstance(node, ast.Expr) or (isinstance(node, ast.Assign) and not _is_read(code, node))
            used = [node.value] if is_dropped and isinstance(node, (ast.Expr, ast.Assign)) else []
        for value in used:
            waits = list(alternatives(scope.origin(value)))
            coroutines = not isinstance(node, (ast.Expr, ast.Assign, ast.For))  # those have another rule
            if waits and all(_is_future(scope, wait, coroutines) for wait in waits):
                yield value


def _is_future(scope: NameScope, node: ast.expr | None, coroutines: bool) -> bool:
    """Return whether an expression is a wait of asyncio, or, with `coroutines`, a call of an own async function."""
    if not isinstance(node, ast.Call):
        return False
    function = scope.source.helper(node.func, scope) if coroutines else None
    is_coroutine = function is not None and isinstance(function.node, ast.AsyncFunctionDef) and not function.yields
    return is_coroutine or scope.dotted_name(node.func) in _WAITS


def _is_read(code: PythonSource, node: ast.Assign) -> bool:
    """Return whether a function may read what a statement assigns."""
    name = getattr(node.targets[0], "id", "")
    return not name or any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n, _ in code.nodes
    )


_VIEWS = frozenset({"reshape", "view", "ravel", "transpose", "squeeze"})  # methods that return the same memory


def _reused_buffers(scope: NameScope) -> Iterator[tuple[str, int]]:
    """Yield arrays from outside a loop that it fills again while calls of `async_exec` may not have read them.

    The loop puts the array into a tensor, sends requests by `async_exec`, and awaits none of them.
    """
    for loop in scope.nodes:
        if not isinstance(loop, (ast.For, ast.While, ast.AsyncFor)):
            continue
        nodes = [node for part in loop.body for node in ast.walk(part)]
        awaits = any(isinstance(node, ast.Await) for node in nodes)
        if awaits or not any(is_call_of(node, "async_exec") for node in nodes):
            continue
        bound = {n.id for n in [*nodes, *ast.walk(getattr(loop, "target", loop))] if _is_bound(n)}
        filled = {name: line for node in nodes for name, line in _filled(node)}
        for node in nodes:
            if isinstance(node, ast.Call) and last_name(node.func) == "Tensor":
                name = _memory_of(argument(node, "numpy_array", 1))
                if name in filled and name not in bound:
                    yield name, filled.pop(name)


def _is_bound(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _filled(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names of arrays whose content a node changes, with the line."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = [target for target in node.targets if isinstance(target, ast.Subscript)]
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
        targets = [node.target]
    elif isinstance(node, ast.Call):
        targets = [keyword.value for keyword in node.keywords if keyword.arg == "out"]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "fill":
            targets.append(node.func.value)
        if last_name(node.func) == "copyto":
            targets += node.args[:1]
    for target in targets:
        if name := _memory_of(target):
            yield name, target.lineno


def _memory_of(node: ast.expr | None) -> str:
    """Return the name of the array whose memory an expression is; empty if unknown, or if it depends on the round."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
        return _memory_of(node.func.value)
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        begins = [part.lower if isinstance(part, ast.Slice) else part for part in parts]
        return _memory_of(node.value) if all(b is None or isinstance(b, ast.Constant) for b in begins) else ""
    return node.id if isinstance(node, ast.Name) else ""


def _is_response(scope: NameScope, node: ast.AST | None) -> bool:
    if isinstance(node, ast.Await):
        return is_call_of(scope.value(node.value), "async_exec")
    return is_call_of(node, "exec")


def _is_responses(scope: NameScope, node: ast.expr) -> bool:
    """Return whether an expression is certainly a sequence of callees' responses, and nothing checks it."""
    if isinstance(node, ast.Name) and not _only_read(scope, node.id):
        return False
    value, elements = scope.value(node), _elements(scope, node)
    if isinstance(value, ast.Await):
        return _is_gather(scope, scope.value(value.value))
    return is_call_of(value, "exec") or (bool(elements) and all(_is_response(scope, scope.value(e)) for e in elements))


def _only_read(scope: NameScope, name: str) -> bool:
    """Return whether no function that could check a response gets it."""
    return all(
        isinstance(parent, (ast.Attribute, ast.For, ast.comprehension, ast.Await, ast.Starred))
        or (isinstance(parent, ast.Call) and last_name(parent.func) in _LOOKS)
        for parent in scope.uses(name)
    )


def _needs_outputs(scope: NameScope, read: ast.Call) -> bool:
    """Return whether the code that reads a response fails or loses an error if the response has no outputs."""
    parent = scope.parents.get(id(read))
    if last_name(read.func) == _OUTPUT:
        return isinstance(parent, ast.List) or used_at_once(read, scope)
    passed = isinstance(parent, (ast.Subscript, ast.keyword)) or (
        isinstance(parent, ast.Call) and last_name(parent.func) == "InferenceResponse"
    )
    return passed and last_name(read.func) == "output_tensors"


def _unchecked(scope: NameScope) -> Iterator[ast.expr]:
    """Yield reads of a callee's response whose error nothing can have tested."""
    tries = [node for node in scope.nodes if isinstance(node, ast.Try) and node.handlers]
    caught = {id(node) for guarded in tries for part in guarded.body for node in ast.walk(part)}
    reads = list(_reads(scope))
    checked = [response for node, response in reads if not _needs_outputs(scope, node)]
    for node, response in reads:
        name = response.id if isinstance(response, ast.Name) else ""
        if response in checked or id(node) in caught or not _only_read(scope, name):
            continue
        if _is_response(scope, scope.value(response)):
            if name not in [check.id for check in checked if isinstance(check, ast.Name)]:
                yield node
        elif name and not checked:
            origins = _loops(scope, name) or [
                n.value for n in scope.nodes if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Tuple)
                and any(isinstance(e, ast.Name) and e.id == name for e in n.targets[0].elts)
            ]  # fmt: skip
            known = origins and len(origins) == len(scope.values(name) or ())
            if known and all(_is_responses(scope, origin) for origin in origins):
                yield node
