"""Shows what models log under the cell that caused it.

Guarantees: a message of a request appears in the output of the cell that sent it, whichever thread or task
it is logged on, also when the cell has ended or another one runs. A message of a thread whose cell is unknown
appears under the newest cell, and says so. A cell shows a limited number of messages and says when it has reached
the limit; Python's logging has all. Safe from any thread.
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
from bls_notebook.records.raw_events import LEVELS, LogLine

LOUD = ("warning", "error")
MOST = 500  # messages of a cell, and as many warnings and errors


class Cell:
    """A cell that runs, or has run: where its output goes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.context: Context = copy_context()  # a kernel keeps the destination of output in there
        self.shown: Counter[bool] = Counter()  # messages so far; loud ones do not drown in others


class CellLog:
    """The log display of one shell."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._lock = threading.RLock()
        self._of_context: ContextVar[Cell | None] = ContextVar("bls_cell", default=None)
        self._current = Cell(notebook.cell_number)

    def install(self) -> Callable[[], None]:
        """Begin to show; what this returns ends it."""
        events = self._notebook.shell.events
        logger = logging.getLogger(logs.LOGGER)
        quiet = logging.NullHandler()  # else Python itself prints warnings that nobody handles
        events.register("pre_run_cell", self._begin)
        logger.addHandler(quiet)
        logs.add_display(self.show)
        self._of_context.set(self._current)

        def remove() -> None:
            logs.remove_display(self.show)
            logger.removeHandler(quiet)
            if self._begin in events.callbacks["pre_run_cell"]:
                events.unregister("pre_run_cell", self._begin)

        return remove

    def _begin(self, info: Any = None) -> None:
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
                # A terminal has one place for the output of all cells.
                is_elsewhere = cell is not self._current and not self._notebook.has_kernel
                name = f"In [{cell.number}]" if is_elsewhere else ""
                self._write(cell, displays.log_line_text(line, colour=self._colour, cell=name))
            elif cell.shown[is_loud] == MOST + 1:
                self._write(cell, displays.left_out_text(logs.LOGGER, colour=self._colour))

    def _write(self, cell: Cell, text: str) -> None:
        # A copy: another thread may be writing in the context itself at this moment.
        cell.context.copy().run(sys.stdout.write, text)

    @property
    def _colour(self) -> bool:
        shell: Any = self._notebook.shell
        wanted = str(getattr(shell, "colors", "")).lower() != "nocolor" and "NO_COLOR" not in os.environ
        return wanted and (self._notebook.has_kernel or sys.stdout.isatty())


def show_logs(notebook: Notebook) -> Callable[[], None]:
    """Show what models log under their cells; what this returns ends it."""
    return CellLog(notebook).install()
