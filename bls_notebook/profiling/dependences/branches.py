"""Branches of a model's code on the answers of its callees, those that no run reached, and requests made of answers.

`marked_source` returns the same program with a mark at the beginning of each such branch; a run adds the numbers of
the marks that it passes to `REACHED`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .answer_flow import FUNCTIONS, AnswerFlow

REACHED: set[int] = set()
_MARK = "__import__({!r}, fromlist=['REACHED']).REACHED.add({})"
BESIDE = 1_000_000
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
_Lines = tuple[int, int]


@dataclass(frozen=True)
class Branch:
    """A branch on the answers of calls that were sent at the lines ``sources``; ``words`` say that no run reached it.

    ``test`` is the line of its condition, ``function`` and ``loop`` are the lines around it.
    """

    number: int
    words: str
    sources: frozenset[int]
    test: int
    function: _Lines
    loop: _Lines | None

    def may_control(self, line: int) -> bool:
        """Return whether a call at a line may be sent after the condition."""
        first, last = self.function
        if not first <= line <= last or line >= self.test:
            return True
        return self.loop is not None and self.loop[0] <= line <= self.loop[1]


def marked_source(text: str, beside: Sequence[str] = ()) -> tuple[str, list[Branch], dict[int, set[int]]]:
    """Return a source with marks, empty without branches on answers; these branches; and requests made of answers.

    The last maps the line of a call to the lines of the calls whose answers its request may be made of. Lines of the
    n-th module `beside` the model's file begin at n times `BESIDE`.
    """
    trees = list[ast.Module]()
    for number, source in enumerate((text, *beside)):
        with suppress(SyntaxError, ValueError):
            trees.append(ast.parse(source))
            ast.increment_lineno(trees[-1], number * BESIDE)
        if not trees:
            return "", [], {}
    tree, answers = trees[0], AnswerFlow(trees)
    uses, marker = answers.uses(), _Marker(answers)
    marked = ast.fix_missing_locations(marker.visit(tree))
    return (ast.unparse(marked) if marker.branches else ""), marker.branches, uses


class _Marker(ast.NodeTransformer):
    def __init__(self, answers: AnswerFlow) -> None:
        self.branches: list[Branch] = []
        self._answers = answers
        self._around: list[ast.AST] = []

    def visit(self, node: ast.AST) -> ast.AST:
        self._around.append(node)
        try:
            marks = [*self._marks(node)]  # numbered before those of inner branches
            self.generic_visit(node)
            for part, number in marks:
                _insert(node, part, number)
            return node
        finally:
            self._around.pop()

    def _marks(self, node: ast.AST) -> Iterator[tuple[str, int]]:
        if not isinstance(node, (ast.If, ast.While, ast.IfExp)):
            return
        function = next((each for each in reversed(self._around) if isinstance(each, FUNCTIONS)), None)
        if function is None:
            return
        sources = frozenset(self._answers.of(function.name, node.test))
        statements = [] if isinstance(node, ast.IfExp) else [*node.body, *node.orelse]
        if not sources or _is_error_check(node.test) or (statements and self._answers.is_harmless(statements)):
            return
        loop = next((each for each in reversed(self._around) if isinstance(each, _LOOPS) and each is not node), None)
        around = None if loop is None else _lines_of(loop)
        for part in ("body",) if isinstance(node, ast.While) else ("body", "orelse"):
            number = len(self.branches)
            words = _words(node, part)
            self.branches.append(Branch(number, words, sources, node.lineno, _lines_of(function), around))
            yield part, number


def _is_error_check(test: ast.expr) -> bool:
    """Return whether a condition only asks for an error, which is among the changes of each answer."""
    test = test.operand if isinstance(test, ast.UnaryOp) else test
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and test.func.attr == "has_error"


def _words(node: ast.If | ast.While | ast.IfExp, part: str) -> str:
    inside = getattr(node, part)
    if isinstance(inside, list) and inside:
        return f"line {inside[0].lineno} was never reached; a request that reaches it, or code without it, settles it"
    value, other = ("false", "true") if part == "body" else ("true", "false")
    settles = f"a request for which it is {other}, or code without it, settles it"
    return f"the condition in line {node.lineno} was always {value}; {settles}"


def _lines_of(node: ast.AST) -> _Lines:
    lines = [n.lineno for n in ast.walk(node) if hasattr(n, "lineno")]
    return min(lines), max([*lines, getattr(node, "end_lineno", 0) or 0])


def _insert(node: ast.AST, part: str, number: int) -> None:
    mark = ast.parse(_MARK.format(__name__, number), mode="eval").body
    inside = getattr(node, part)
    if isinstance(inside, list):
        setattr(node, part, [ast.Expr(mark), *inside])
    else:
        pair = ast.Tuple([mark, inside], ast.Load())
        setattr(node, part, ast.Subscript(pair, ast.Constant(1), ast.Load()))
