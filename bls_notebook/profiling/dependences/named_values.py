"""Values that a model's code and configuration name: with these its branches on answers are tried. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, pairwise
from typing import NamedTuple

_MOST = 24  # values that are tried
_FARTHEST = 10_000_000  # larger numbers, as the size of an array, could exhaust the memory
_COMPARE = ("isclose", "allclose", "array_equal", "equal", "startswith", "endswith", "get", "approx")
_TESTS = (ast.If, ast.While, ast.IfExp, ast.Assert)


class NamedValue(NamedTuple):
    """A value that the elements of an answer get, or `is_sum` of them."""

    value: float | str
    is_sum: bool = False

    def __str__(self) -> str:
        return f"{'with the sum' if self.is_sum else 'set to'} {self.value!r}"


def named_values(sources: Iterable[str], parameters: Iterable[str]) -> tuple[NamedValue, ...]:
    """Return the constants that a model compares or assigns, and the configuration's parameters; numbers between.

    The first source is the model's; the others are modules beside it.
    """
    trees = []
    for source in sources:
        with suppress(SyntaxError, ValueError):
            trees.append(ast.parse(source))
    own, *beside = [[*_compared(tree), *_assigned(tree)] for tree in trees] or [[]]
    values = [*own, *chain.from_iterable(map(_parsed, parameters)), *chain.from_iterable(beside)]
    texts = [NamedValue(text) for text in dict.fromkeys(value for value in values if isinstance(value, str) and value)]
    numbers = [n for n in dict.fromkeys(v for v in values if not isinstance(v, str)) if abs(n) <= _FARTHEST]
    numbers = numbers[: _MOST // 3]
    between = [(a + b) / 2 for a, b in pairwise(sorted(numbers))]
    compared = {value for tree in trees for value in _compared(tree) if value}
    sums = [NamedValue(number, True) for number in numbers if number in compared][: _MOST // 6]
    found = [NamedValue(number) for number in dict.fromkeys([*numbers, *between])]
    return (*found, *sums, *texts[: max(_MOST // 3, _MOST - len(found) - len(sums))])


def _compared(tree: ast.AST) -> Iterator[float | str]:
    for node in ast.walk(tree):
        if isinstance(node, _TESTS):
            yield from _constants(node.test)
        elif isinstance(node, (ast.Compare, ast.match_case)):
            yield from _constants(node.pattern if isinstance(node, ast.match_case) else node)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _COMPARE:
            for argument in node.args:
                yield from _constants(argument)


def _assigned(tree: ast.AST) -> Iterator[float | str]:
    """Yield the constants of thresholds and tables: assigned to names, attributes, and the keys of a dict."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            value = node.value
            items: list[ast.AST | None] = [value]
            if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
                items += value.elts
            elif isinstance(value, ast.Dict):
                items += value.keys
            yield from (found for item in items if isinstance(item, ast.Constant) for found in _constants(item))


def _constants(tree: ast.AST) -> Iterator[float | str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            if isinstance(value, (int, float)):
                yield -value
        elif isinstance(node, ast.Constant):
            value = node.value.decode("utf-8", "replace") if isinstance(node.value, bytes) else node.value
            if isinstance(value, (int, float, str)) and not isinstance(value, bool):
                yield value


def _parsed(text: str) -> Iterator[float | str]:
    """Yield a parameter, and the items of a list or of JSON in it."""
    for part in dict.fromkeys([text, *re.split(r"[^\w.+-]+", text)]):
        try:
            yield float(part)
        except ValueError:
            yield part


def parameters_of(config: object) -> list[str]:
    """Return the values of a configuration's `parameters`."""
    parameters: Mapping[str, object] = getattr(config, "parameters", {})
    return [str(getattr(value, "string_value", value)) for value in parameters.values()]
