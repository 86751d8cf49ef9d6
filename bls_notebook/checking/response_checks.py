"""Check what `execute` answers: one response per request, a list, a final flag per request, errors that can be raised.

Responses are counted along the paths through the loop over the requests. Paths that the analysis does not understand
(nested loops, `match`, a list that other code fills) cause no finding.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from .api_checks import kind_of
from .array_types import array_of
from .checked_model import CheckedModel
from .made_outputs import outputs_made_sometimes
from .name_scope import Function, NameScope, argument, last_name, spreads
from .python_source import PythonSource
from .records import Finding
from .sent_responses import sends_after_final

Adds = Callable[[ast.stmt], int]  # how many responses or final flags a statement adds


def response_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield requests that remain without a response or final flag, and values that are no responses."""
    code = model.newest()
    if code is None or code.mistake:
        return
    for node in ast.walk(code.tree):
        raised = node.exc if isinstance(node, ast.Raise) else None
        raised = raised.func if isinstance(raised, ast.Call) else raised
        if raised is not None and ast.unparse(raised) == "pb_utils.TritonError":
            yield model.in_code("raise-no-exception", code, raised.lineno)
    for call, part in code.calls_of("InferenceResponse"):
        if (kind := kind_of(part, argument(call, "error", 1))) in ("string", "exception"):
            kind = "text" if kind == "string" else "an exception"
            yield model.in_code("error-no-error", code, call.lineno, kind=kind)
    if "get_response_sender" in code.words:
        yield from (model.in_code("send-after-final", code, line) for line in sends_after_final(code))
    if model.known and not (model.decoupled or code.inherits or code.helpers_mention("InferenceResponse")):
        for name, line in outputs_made_sometimes(code).items():
            if name in model.outputs:
                yield model.in_code("output-sometimes", code, line, name=name)
    scope = code.functions.get("self.execute")
    if scope is not None and scope.yields:
        yield model.in_code("response-not-list:generator", code, getattr(scope.node, "lineno", 0))
    elif scope is not None and "get_response_sender" in code.words:
        yield from _final_findings(model, code, scope)
    elif scope is not None and not (model.decoupled or code.helpers_mention("get_response_sender")):
        yield from _return_findings(model, code, scope)


def _final_findings(model: CheckedModel, code: PythonSource, scope: NameScope) -> Iterator[Finding]:
    if "set_release_flags" in code.words:  # a rescheduled request needs no final flag
        return
    sends = [n for n in ast.walk(code.tree) if isinstance(n, ast.Call) and ast.unparse(n.func).endswith(".send")]
    flagged = {id(send) for send in sends if spreads(send) or argument(send, "flags", 1) is not None}
    if sends and not code.inherits and not code.siblings and not flagged:
        yield model.in_code("final-missing", code, max(send.lineno for send in sends))
        return
    for loop in (loop for loop in _request_loops(scope) if _keeps_sender(scope, loop)):
        # Any flags may be the final flag, by another name or a number.
        gaps = _gaps(loop.body, lambda s: sum(id(n) in flagged for n in ast.walk(s)))
        yield from (model.in_code("final-missing:path", code, line) for line, missing in gaps if missing)


def _keeps_sender(scope: NameScope, loop: ast.For) -> bool:
    """Return whether a loop gets a sender for each request, and only calls its methods."""
    gets = [n for n in loop.body if isinstance(n, ast.Assign) and ".get_response_sender()" in ast.unparse(n.value)]
    senders = [target.id for node in gets for target in node.targets if isinstance(target, ast.Name)]
    return bool(senders) and all(isinstance(use, ast.Attribute) for name in senders for use in scope.uses(name))


def _request_loops(scope: NameScope) -> Iterator[ast.For]:
    """Yield the loops of `execute` that have one round per request."""
    names = [parameter.arg for parameter in scope.node.args.args] if isinstance(scope.node, Function) else []
    for node in scope.nodes:
        if isinstance(node, ast.For) and not node.orelse and len(names) == 2 and scope.values(names[1]) == [None]:
            over = ast.unparse(node.iter).replace(" ", "")
            if over in (names[1], f"enumerate({names[1]})", f"range(len({names[1]}))"):
                yield node


def _return_findings(model: CheckedModel, code: PythonSource, scope: NameScope) -> Iterator[Finding]:
    execute = scope.node
    assert isinstance(execute, Function)
    returns = [node for node in scope.nodes if isinstance(node, ast.Return)]
    batcher = model.config.WhichOneof("scheduling_choice") in ("dynamic_batching", "sequence_batching")
    batches = batcher and model.config.max_batch_size > 1
    requests = execute.args.args[1].arg if len(execute.args.args) == 2 else ""
    if not any(node.value is not None for node in returns) and not isinstance(execute.body[-1], (ast.Raise, ast.While)):
        yield model.in_code("response-not-list:none", code, execute.lineno)
    for node in returns:
        value = scope.value(node.value)
        loops = value.generators if isinstance(value, ast.ListComp) else []
        if _is_no_list(value):
            yield model.in_code("response-not-list", code, node.lineno)
        elif len(loops) == 1 and loops[0].ifs and ast.unparse(loops[0].iter) == requests:
            yield model.in_code("response-missing:if", code, node.lineno)
    measured = f"len({requests})" in ast.unparse(execute)
    for loop in _request_loops(scope):
        stop = next((node for node in loop.body if isinstance(node, ast.Return)), None)
        if stop is not None and not measured and not _is_no_list(scope.value(stop.value)):
            yield model.in_code("response-missing:loop" if batches else "response-missing:first", code, stop.lineno)
        reads = {
            ast.unparse(n) for n in ast.walk(ast.Module(loop.body, [])) if isinstance(n, (ast.Subscript, ast.Name))
        }
        if f"{requests}[0]" in reads and ast.unparse(loop.target) not in reads:
            yield model.in_code("response-missing:same", code, loop.lineno)
        yield from _append_findings(model, code, scope, loop)
    if model.config.max_batch_size != 1:
        for line in dict.fromkeys(_per_row(scope, returns)):
            yield model.in_code("response-missing:row", code, line)
    empty = all(_is_empty(scope, node.value) for node in returns)
    if (empty or (batches and not measured)) and (line := _fixed_number(scope, returns)):
        yield model.in_code("response-missing", code, line)


def _per_row(scope: NameScope, returns: list[ast.Return]) -> Iterator[int]:
    """Yield the lines that make a response for each row of a request's array, and not for each request."""
    names = {node.value.id for node in returns if isinstance(node.value, ast.Name)}
    made: list[ast.expr] = [node.value for node in returns if node.value is not None]
    for call in (call for name in names for call in scope.grows(name)):
        if last_name(call.func) == "extend":
            made += call.args[:1]
        elif last_name(call.func) == "append":
            yield from (call.lineno for loop in _loops_around(scope, call) if _is_over_rows(scope, loop.iter))
    for node in scope.nodes:
        if isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") in names:
            in_row = any(_is_over_rows(scope, loop.iter) for loop in _loops_around(scope, node))
            yield from [node.lineno] if in_row else []
            made.append(node.value)
    for node in made:
        value = scope.origin(node)
        if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
            yield from (node.lineno for part in value.generators if _is_over_rows(scope, part.iter))


def _loops_around(scope: NameScope, node: ast.AST) -> Iterator[ast.For]:
    """Yield the loops without `break` or `return` that a node is in."""
    parent: ast.AST | None = node
    while (parent := scope.parents.get(id(parent))) is not None:
        nodes = [n for part in parent.body for n in ast.walk(part)] if isinstance(parent, ast.For) else []
        if isinstance(parent, ast.For) and not any(isinstance(n, (ast.Break, ast.Return)) for n in nodes):
            yield parent


def _is_over_rows(scope: NameScope, node: ast.expr | None, depth: int = 12) -> bool:
    """Return whether an expression certainly has the rows of an input's array, or of several requests' arrays."""
    if isinstance(node, ast.Name) and any(
        last_name(call.func) == "extend" and call.args and _is_over_rows(scope, call.args[0], depth - 1)
        for call in (scope.grows(node.id) if depth else ())
    ):
        return True
    value = scope.origin(node) if depth else None
    if isinstance(value, ast.BinOp):
        return any(_is_over_rows(scope, side, depth - 1) for side in (value.left, value.right))
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice) and value.slice.lower is None:
        return _is_over_rows(scope, value.value, depth - 1)
    if not isinstance(value, ast.Call):
        return False
    module, _, name = scope.dotted_name(value.func).rpartition(".")
    first = value.args[0] if value.args else None
    if name == "range" and len(value.args) == 1:
        size = scope.origin(first)
        if isinstance(size, ast.Subscript) and isinstance(size.value, ast.Attribute) and size.value.attr == "shape":
            return getattr(size.slice, "value", 1) == 0 and _is_over_rows(scope, size.value.value, depth - 1)
        return isinstance(size, ast.Call) and size.args[:1] != [] and _is_over_rows(scope, size, depth - 1)
    if not module and name in ("enumerate", "len", "list", "zip", "tuple"):
        return any(_is_over_rows(scope, each, depth - 1) for each in value.args)
    if module == "numpy" and name in ("concatenate", "vstack"):
        arrays = scope.origin(first)
        rows = [call.args[0] for call in scope.grows(first.id) if call.args] if isinstance(first, ast.Name) else []
        rows += [arrays.elt] if isinstance(arrays, (ast.ListComp, ast.GeneratorExp)) else []
        return bool(rows) and all(_is_over_rows(scope, each, depth - 1) for each in rows)
    return bool(array_of(scope, value).input) and last_name(value.func) not in ("stack", "array", "asarray")


def _is_no_list(value: ast.expr | None) -> bool:
    is_response = isinstance(value, ast.Call) and last_name(value.func) == "InferenceResponse"
    return is_response or isinstance(value, (ast.Dict, ast.JoinedStr, ast.Constant))


def _is_appended(scope: NameScope, name: str) -> bool:
    """Return whether a list starts empty, and its only uses are `append` and `return`."""
    value = scope.value(ast.Name(name, ast.Load()))
    starts_empty = value is not None and ast.unparse(value) in ("[]", "list()")
    uses = scope.uses(name)
    return starts_empty and all(isinstance(n, ast.Return) or getattr(n, "attr", "") == "append" for n in uses)


def _is_empty(scope: NameScope, value: ast.expr | None) -> bool:
    """Return whether a list is certainly empty."""
    if isinstance(value, ast.Name):
        return not any(scope.grows(value.id)) and _is_appended(scope, value.id)
    return isinstance(value, ast.List) and not value.elts


def _fixed_number(scope: NameScope, returns: list[ast.Return]) -> int:
    """Return the line of the last `return` if all return lists of fixed lengths, else 0."""
    loops = [n for n in scope.nodes if isinstance(n, (ast.For, ast.While, ast.AsyncFor, ast.comprehension))]
    looped = {id(n) for loop in loops for n in ast.walk(loop)}
    for node in returns:
        value = node.value
        if isinstance(value, ast.Name):
            grown = list(scope.grows(value.id))
            if not _is_appended(scope, value.id) or any(id(call) in looped for call in grown):
                return 0
        elif not isinstance(value, ast.List) or any(isinstance(item, ast.Starred) for item in value.elts):
            return 0
    return max((node.lineno for node in returns if id(node) not in looped), default=0)


def _append_findings(model: CheckedModel, code: PythonSource, scope: NameScope, loop: ast.For) -> Iterator[Finding]:
    """Yield paths through a loop that append no response, or two."""
    returned = {ast.unparse(n.value) for n in scope.nodes if isinstance(n, ast.Return) and n.value is not None}
    name = returned.pop() if len(returned) == 1 else ""
    appends = {id(call) for call in scope.grows(name)}
    if not appends or not _is_appended(scope, name) or not appends <= {id(node) for node in ast.walk(loop)}:
        return
    for line, missing in _gaps(loop.body, lambda s: sum(id(node) in appends for node in ast.walk(s))):
        yield model.in_code("response-missing:path", code, line, what="no response" if missing else "two responses")


def _gaps(body: list[ast.stmt], adds: Adds) -> Iterator[tuple[int, bool]]:
    """Yield the lines of paths through a loop's body that add nothing (True) or twice (False)."""
    ends: list[tuple[int, set[int]]] = []
    try:
        last = _follow(body, {0}, adds, ends)
    except ValueError:  # a path that is not understood
        return
    adding = [statement for statement in body if adds(statement)]
    yield from ((line, True) for line, counts in ends if counts == {0})
    if adding and (last == {0} or (0 in last and len(adding) == 1)):  # with two statements, their conditions may depend
        yield adding[-1].lineno, True
    elif last and 0 not in last and 2 in last:
        yield adding[-1].lineno, False


def _follow(body: list[ast.stmt], counts: set[int], adds: Adds, ends: list[tuple[int, set[int]]]) -> set[int]:
    """Return how often the paths through statements add, on top of `counts`; note the ends of a round."""
    for statement in body:
        if not counts:
            break
        if isinstance(statement, (ast.Continue, ast.Break)):
            ends.append((statement.lineno, counts))
            return set()
        if isinstance(statement, (ast.Raise, ast.Return)):
            return set()
        if isinstance(statement, ast.If):
            other = statement.orelse
            if len(other) == 1 and isinstance(other[0], ast.If) and not other[0].orelse:
                other = other[0].body  # the conditions of `elif` without `else` may cover all cases
            counts = _follow(statement.body, counts, adds, ends) | _follow(other, counts, adds, ends)
        elif isinstance(statement, ast.With):
            counts = _follow(statement.body, counts, adds, ends)
        elif isinstance(statement, ast.Try):
            if any(adds(part) for part in statement.finalbody):
                raise ValueError
            done = _follow([*statement.body, *statement.orelse], counts, adds, ends)
            counts = done.union(*(_follow(handler.body, counts, adds, ends) for handler in statement.handlers))
        elif isinstance(statement, (ast.For, ast.While, ast.AsyncFor, ast.AsyncWith, ast.Match)):
            if adds(statement) or isinstance(statement, (ast.AsyncWith, ast.Match)):
                raise ValueError
        elif added := adds(statement):
            counts = {min(number + added, 2) for number in counts}
    return counts
