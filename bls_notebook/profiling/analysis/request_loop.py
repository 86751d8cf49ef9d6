"""The line of a model that serves the requests of a batch one after the other, and the line that gathers them. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from bls_notebook.profiling.records.spans import SessionData

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_IMPORT = "import asyncio"
_COMPREHENSIONS = ast.ListComp | ast.GeneratorExp


class RequestLoop(NamedTuple):
    """The loop: the numbers of its lines, the text of the first one, and the code to write instead if it is simple.

    The coroutine of a request may have to be written first: `is_async` is False if `execute` is not async.
    `to_import` is the statement that the file lacks for the changed code.
    """

    line: int
    text: str
    changed: str
    is_async: bool
    end: int = 0
    to_import: str = ""


def request_loop(session: SessionData, model: str, version: int = 0) -> RequestLoop | None:
    """Return the first loop of a model's code over the requests of a batch that awaits, or calls, in its body."""
    for source in session.sources:
        if source.model == model and source.execute and version in (0, source.version):
            return loop_of(source.text, source.execute)
    return None


def loop_of(text: str, execute: int = 0) -> RequestLoop | None:
    """Return the first loop over the requests of an `execute`, which begins at a line of the text."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):  # the text of a cell with magics
        return None
    functions = [node for node in ast.walk(module) if isinstance(node, _FUNCTIONS)]
    mine = [f for f in functions if f.name == "execute" and execute in (0, _first(f), f.lineno)]
    if not mine or not mine[0].args.args:
        return None
    requests = mine[0].args.args[-1].arg
    others = [f for f in functions if f.name != "execute" and requests in {arg.arg for arg in f.args.args}]
    for function in (mine[0], *others):
        is_async = isinstance(function, ast.AsyncFunctionDef)
        for node in _inside(function):
            found = None
            if isinstance(node, ast.For) and _names(node.iter, requests):
                found = _loop(text, node, is_async)
            elif isinstance(node, _COMPREHENSIONS) and _names(node.generators[0].iter, requests):
                found = _comprehension(text, node, is_async)
            if found is not None:
                return found._replace(to_import="" if _IMPORT in text else _IMPORT)
    return None


def _first(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([function.lineno, *(d.lineno for d in function.decorator_list)])


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function in the order of the text, but not of functions in it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, (*_FUNCTIONS.__args__, ast.Lambda, ast.ClassDef)):
            yield from _inside(node)


def _names(node: ast.AST, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _waits(nodes: list[ast.AST], is_async: bool) -> bool:
    """Return whether code awaits or, in a sync function, perhaps sends a call: by `exec`, or in a method of its own."""
    every = [each for node in nodes for each in (node, *_inside(node))]
    if is_async:
        return any(isinstance(each, ast.Await) for each in every)
    called = [each.func for each in every if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    return any(f.attr == "exec" or (isinstance(f.value, ast.Name) and f.value.id == "self") for f in called)


def _loop(text: str, loop: ast.For, is_async: bool) -> RequestLoop | None:
    if not _waits([*loop.body], is_async):
        return None
    changed = ""
    match loop.body:
        case [ast.Expr(ast.Call(ast.Attribute(into, "append"), [ast.Await(sent)], []))]:
            gathered = _gather(f"{ast.unparse(sent)} for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}")
            changed = f"{ast.unparse(into)}.extend({gathered})"
        case [ast.Expr(ast.Await(sent))]:
            changed = _gather(f"{ast.unparse(sent)} for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}")
    return RequestLoop(loop.lineno, _line(text, loop.lineno), changed, is_async, loop.end_lineno or loop.lineno)


def _comprehension(text: str, node: ast.ListComp | ast.GeneratorExp, is_async: bool) -> RequestLoop | None:
    if not _waits([node.elt], is_async):
        return None
    changed, line = "", _line(text, node.lineno)
    if isinstance(node.elt, ast.Await) and isinstance(node, ast.ListComp):
        loops = "".join(f" {ast.unparse(each)}".replace("  ", " ") for each in node.generators)
        segment = ast.get_source_segment(text, node) or ""
        if segment and segment in line:  # on one line
            changed = line.replace(segment, _gather(ast.unparse(node.elt.value) + loops), 1)
    return RequestLoop(node.lineno, line, changed, is_async, node.end_lineno or node.lineno)


def _gather(coroutines: str) -> str:
    return f"await asyncio.gather(*[{coroutines}])"


def _line(text: str, number: int) -> str:
    return text.splitlines()[number - 1].strip()
