"""Log messages of models: send them to Python's logging and to displays.

Guarantees: Python's logging gets every message; a display that raises is reported once and removed. A message is
shown in the context (`contextvars`) of the request that caused it, on the thread that logged it. As on the real
server, an error of a model whose requests have been answered already is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context

from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.records.messages import LogLine

from .core.execution import Execution
from .ticket import Ticket

LOGGER = "bls_notebook.model"  # each model has a logger below it
_LEVELS = {"verbose": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_displays: list[Callable[[LogLine], None]] = []
_silences: list[None] = []
_off: set[int] = set()  # levels of Python's logging


def add_display(show: Callable[[LogLine], None]) -> None:
    """Call a function with every message."""
    if show not in _displays:
        _displays.append(show)


def remove_display(show: Callable[[LogLine], None]) -> None:
    if show in _displays:
        _displays.remove(show)


@contextmanager
def silenced() -> Iterator[None]:
    """Suppress messages of models that fail on purpose."""
    _silences.append(None)
    try:
        yield
    finally:
        _silences.pop()


class LogLevels:
    """The levels of all log messages of this process, which the log settings of an endpoint change until `reset`."""

    def __init__(self) -> None:
        self._logger = logging.getLogger(LOGGER.partition(".")[0])
        self._before = self._logger.level
        self._logger.addFilter(self._passes)

    @staticmethod
    def _passes(record: logging.LogRecord) -> bool:
        return record.levelno not in _off

    @property
    def verbose(self) -> int:
        """Triton's verbose level at the beginning."""
        return int(self._logger.isEnabledFor(logging.DEBUG))

    def turn(self, level: str, on: bool) -> None:
        """Turn messages of a level of `pb_utils.Logger` on or off: those of models, and bls_notebook's own."""
        (_off.discard if on else _off.add)(_LEVELS[level])
        if level == "verbose":
            self._logger.setLevel(logging.DEBUG if on else self._before)

    def reset(self) -> None:
        _off.clear()
        self._logger.removeFilter(self._passes)
        self._logger.setLevel(self._before)


def write(line: LogLine) -> None:
    number = _LEVELS[line.level]
    if _silences or number in _off:
        return
    logger = logging.getLogger(f"{LOGGER}.{line.model}")
    if logger.isEnabledFor(number):
        logger.handle(logger.makeRecord(logger.name, number, line.file, line.line, line.message, (), None))
    for show in tuple(_displays):
        try:
            show(line)
        except Exception:
            remove_display(show)
            logging.getLogger("bls_notebook").exception("a display of models' messages failed and was removed")


def log_if_lost(execution: Execution, failed: InferenceResponse) -> None:
    """Log the error of an `execute` if one of its requests has been answered already."""
    for ticket in execution.tickets:
        if ticket.done and not ticket.cancelled and failed._error is not None:
            frames = failed._error._origin.frames if failed._error._origin is not None else ()
            own = next((f for f in reversed(frames) if f.model), None)
            where = ("", 0) if own is None else (own.file, own.line)
            log_lost(ticket, failed._error.message(), *where)
            return


def log_lost(ticket: Ticket, message: str, file: str = "", line: int = 0) -> None:
    """Log an error that came too late for a response."""
    context = copy_context() if ticket.context is None else ticket.context.copy()
    context.run(write, LogLine("error", ticket.model.name, message, file, line))
