"""Shows what models log under the cell that caused it.

Guarantees: a message of a request appears in the output of the cell that sent it, whichever thread or task
it is logged on, also when the cell has ended or another one runs; one of a thread of which nobody knows the
cell appears where the notebook is, and says so. What is left out of many is counted, and the count is told.
Safe from any thread.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from time import monotonic
from typing import Any

from bls_notebook import display as displays
from bls_notebook.engine import logs
from bls_notebook.records.raw_events import LEVELS, LogLine

from .notebook import Notebook

LOUD = ("warning", "error")
LATER = 1.0  # seconds until it is told what was left out after the end of a cell
BURST = 50  # messages at once
PER_SECOND = 5  # messages from then on
MOST = 2000  # messages of a cell, ever


class Limit:
    """Says which messages of one cell are shown: a burst, then a trickle; ``left_out`` counts the others."""

    def __init__(self, now: float) -> None:
        self.left_out = 0
        self._shown = 0
        self._room = float(BURST)
        self._then = now

    def take(self, now: float) -> bool:
        """Whether to show a message that comes now; counts it if not."""
        self._room = min(float(BURST), self._room + (now - self._then) * PER_SECOND)
        self._then = now
        if self._room < 1 or self._shown >= MOST:
            self.left_out += 1
            return False
        self._room -= 1
        self._shown += 1
        return True

    def told(self) -> int:
        """Return how many were left out since the last time."""
        count, self.left_out = self.left_out, 0
        return count


class Cell:
    """A cell that runs, or has run: where its output goes."""

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.context: Context = copy_context()  # a kernel keeps the destination of output in there
        self.limits = {False: Limit(now), True: Limit(now)}  # loud messages do not drown in others
        self.ended = False
        self.waits = False  # a timer will tell what was left out

    @property
    def name(self) -> str:
        """As the notebook shows it."""
        return f"In [{self.number}]"


class CellLog:
    """The log display of one shell.

    ``now`` is a clock in seconds, and ``later`` calls a function in a while: tests give their own.
    """

    def __init__(
        self,
        notebook: Notebook,
        now: Callable[[], float] = monotonic,
        later: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._notebook = notebook
        self._now = now
        self._later = _in_a_while if later is None else later
        self._lock = threading.RLock()
        self._of_context: ContextVar[Cell | None] = ContextVar("bls_cell", default=None)
        self._current = Cell(notebook.cell_number, now())

    def install(self) -> Callable[[], None]:
        """Begin to show; what this returns ends it."""
        events = self._notebook.shell.events
        logger = logging.getLogger(logs.LOGGER)
        quiet = logging.NullHandler()  # else Python itself prints warnings that nobody handles
        callbacks = (("pre_run_cell", self._begin), ("post_run_cell", self._end))
        for name, callback in callbacks:
            events.register(name, callback)
        logger.addHandler(quiet)
        logs.add_display(self.show)
        self._of_context.set(self._current)

        def remove() -> None:
            logs.remove_display(self.show)
            logger.removeHandler(quiet)
            for name, callback in callbacks:
                if callback in events.callbacks.get(name, ()):
                    events.unregister(name, callback)

        return remove

    def _begin(self, info: Any = None) -> None:
        cell = Cell(self._notebook.cell_number, self._now())
        with self._lock:
            self._current = cell
        self._of_context.set(cell)

    def _end(self, result: Any = None) -> None:
        with self._lock:
            self._current.ended = True
            self._tell(self._current)

    # -- showing ------------------------------------------------------------------------------------

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
            if cell.limits[line.level in LOUD].take(self._now()):
                self._tell(cell)
                self._write(cell, displays.log_line_text(line, colour=self._colour, cell=self._told_of(cell)))
            elif cell.ended and not cell.waits:
                cell.waits = True
                self._later(lambda: self._tell_late(cell))

    def _told_of(self, cell: Cell) -> str:
        """The name of a cell whose output stands elsewhere: a terminal has one place for all."""
        elsewhere = cell is not self._current and not self._notebook.has_kernel
        return cell.name if elsewhere else ""

    def _tell(self, cell: Cell) -> None:
        count = sum(limit.told() for limit in cell.limits.values())
        if count:
            self._write(cell, displays.left_out_text(count, logs.LOGGER, colour=self._colour))

    def _tell_late(self, cell: Cell) -> None:
        with self._lock:
            cell.waits = False
            self._tell(cell)

    def _write(self, cell: Cell, text: str) -> None:
        # A copy: another thread may be writing in the context itself at this moment.
        cell.context.copy().run(sys.stdout.write, text)

    @property
    def _colour(self) -> bool:
        shell: Any = self._notebook.shell
        wanted = str(getattr(shell, "colors", "")).lower() != "nocolor" and "NO_COLOR" not in os.environ
        return wanted and (self._notebook.has_kernel or sys.stdout.isatty())


def _in_a_while(call: Callable[[], None]) -> None:
    timer = threading.Timer(LATER, call)
    timer.daemon = True
    timer.start()


def show_logs(notebook: Notebook) -> Callable[[], None]:
    """Show what models log under their cells; what this returns ends it."""
    return CellLog(notebook).install()
