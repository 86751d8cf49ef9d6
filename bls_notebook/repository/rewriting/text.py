"""The text of a module, changed by spans of its syntax tree: what no edit touches stays as it was written."""

from __future__ import annotations

import ast
from bisect import bisect_right
from itertools import accumulate

Span = tuple[int, int]


class Text:
    """Source, and edits of it; positions count bytes, as those of a syntax tree do."""

    def __init__(self, source: str) -> None:
        self._data = source.encode()
        self._starts = [0, *accumulate(len(line) for line in self._data.splitlines(keepends=True))]
        self._edits: dict[Span, str] = {}

    def span(self, node: ast.AST) -> Span:
        """Return where a node begins and ends; a function or class begins with its decorators."""
        first = min((node, *getattr(node, "decorator_list", ())), key=lambda n: n.lineno)
        column = first.col_offset - (first is not node)  # the sign of a decorator
        end = self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return self._starts[first.lineno - 1] + column, end

    def line_start(self, at: int) -> int:
        return self._starts[bisect_right(self._starts, at) - 1]

    def line_end(self, at: int) -> int:
        """Return where the line of a position ends, its newline left out."""
        found = self._data.find(b"\n", at)
        return len(self._data) if found < 0 else found

    def indent(self, at: int) -> str:
        line = self.raw(self.line_start(at), self.line_end(at))
        return line[: len(line) - len(line.lstrip())]

    def raw(self, start: int, end: int) -> str:
        return self._data[start:end].decode()

    def edit(self, span: Span, new: str) -> None:
        """Replace what is written there, edits within it included."""
        self._edits[span] = new

    def render(self, start: int, end: int, inner: bool = False) -> str:
        """Return what is there with its edits; of an `inner` look those that lie within it alone."""
        out: list[str] = []
        at = start
        for (begin, stop), new in sorted(self._edits.items(), key=lambda e: (e[0][0], -e[0][1])):
            if begin < at or stop > end or (inner and (begin, stop) == (start, end)):
                continue
            out += [self.raw(at, begin), new]
            at = stop
        return "".join([*out, self.raw(at, end)])

    def whole(self) -> str:
        return self.render(0, len(self._data))
