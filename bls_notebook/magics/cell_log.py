"""Log messages of models, shown under the cell that caused them.

Guarantees: a message of a request appears in the output of the cell that sent the request, from any thread or task,
also if the cell has ended or another one runs. A message of a thread whose cell is unknown appears under the newest
cell, marked "in the background". A cell shows a limited number of messages and says when it has reached the limit;
Python's logging has all of them. Safe from any thread.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

from bls_notebook import display as displays
from bls_notebook.engine import logs
from bls_notebook.magics.notebook import Notebook
from bls_notebook.records.messages import LEVELS, LogLine

LOUD = ("warning", "error")
MOST = 500  # quiet messages per cell; warnings and errors have a limit of the same size


class Cell:
    """A cell that runs or has run: its number, the destination of its output, and its messages so far."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.context: Context = copy_context()  # ipykernel keeps the destination of output in a context variable
        self.shown: Counter[bool] = Counter()  # quiet and loud messages have separate limits


class CellLog:
    """The log display of one shell."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._lock = threading.RLock()
        self._of_context: ContextVar[Cell | None] = ContextVar("bls_cell", default=None)
        self._current = Cell(notebook.cell_number)
        self._of_context.set(self._current)

    def begin(self, info: Any = None) -> None:
        """Begin a cell."""
        cell = Cell(self._notebook.cell_number)
        with self._lock:
            self._current = cell
        self._of_context.set(cell)

    def show(self, line: LogLine) -> None:
        """Show a message, if the settings and the limit allow it."""
        level = self._notebook.settings.log_level
        if level == "off" or LEVELS.index(line.level) < LEVELS.index(level):
            return
        cell = self._of_context.get()
        with self._lock:
            if cell is None:
                cell = self._current
                line = LogLine(line.level, line.model, line.message, line.file, line.line, True)
            is_loud = line.level in LOUD
            cell.shown[is_loud] += 1
            if cell.shown[is_loud] <= MOST:
                # In a terminal all cells share one output, so the line names its cell.
                is_elsewhere = cell is not self._current and not self._notebook.has_kernel
                name = f"In [{cell.number}]" if is_elsewhere else ""
                self._write(cell, displays.log_line_text(line, colour=self._colour, cell=name))
            elif cell.shown[is_loud] == MOST + 1:
                self._write(cell, displays.left_out_text(logs.LOGGER, colour=self._colour))

    def _write(self, cell: Cell, text: str) -> None:
        # A copy, because a context can run in only one thread at a time.
        cell.context.copy().run(sys.stdout.write, text)

    @property
    def _colour(self) -> bool:
        shell: Any = self._notebook.shell
        wanted = str(getattr(shell, "colors", "")).lower() != "nocolor" and "NO_COLOR" not in os.environ
        return wanted and (self._notebook.has_kernel or sys.stdout.isatty())


def show_logs(notebook: Notebook) -> Callable[[], None]:
    """Show the log messages of models under their cells; return a function that stops it."""
    log, events, logger = CellLog(notebook), notebook.shell.events, logging.getLogger(logs.LOGGER)
    quiet = logging.NullHandler()  # without a handler, Python would print warnings itself
    events.register("pre_run_cell", log.begin)
    logger.addHandler(quiet)
    logs.add_display(log.show)

    def remove() -> None:
        logs.remove_display(log.show)
        logger.removeHandler(quiet)
        if log.begin in events.callbacks["pre_run_cell"]:
            events.unregister("pre_run_cell", log.begin)

    return remove
