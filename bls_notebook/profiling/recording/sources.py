"""Collects the text of the code that sent and served requests, once a file, and finds lines in it."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import CodeType

from bls_notebook.profiling.records.spans import Source

_LONGEST = 1 << 18  # characters of a file that is kept
_PACKAGE = str(Path(__file__).resolve().parents[1])


class Sources:
    """The sources of one session, numbered from 1 in the order in which they are asked for."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lines: dict[tuple[CodeType, int], int] = {}
        self.found: list[Source] = []

    def number(self, code: CodeType, model: str = "", version: int = 0) -> int:
        """Return the number of the file that code is of; 0 where its text is not to be had.

        `model` is whose code it is, as far as that is known when the file is first asked for.
        """
        file = code.co_filename
        if file not in self._numbers:
            text = "" if file.startswith(_PACKAGE) else "".join(linecache.getlines(file))
            self._numbers[file] = 0
            if text and len(text) <= _LONGEST:
                name = Path(file).name if model else _cell(file) or Path(file).name
                self.found.append(Source(name, text, model, version))
                self._numbers[file] = len(self.found)
        return self._numbers[file]

    def line(self, code: CodeType, at: int) -> int:
        """Return the line of an instruction; most come thousands of times."""
        key = code, at
        if key not in self._lines:
            self._lines[key] = line_at(code, at)
        return self._lines[key]


def line_at(code: CodeType, at: int) -> int:
    """Return the line of the instruction at an index of bytes, 0 where it has none."""
    return next((line for begin, end, line in code.co_lines() if begin <= at < end and line), 0)


def _cell(file: str) -> str:
    """What a notebook calls the cell that a file name stands for."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    cells = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return f"In [{cells[file]}]" if file in cells else ""
