"""Where models' messages go: to Python's logging, and to whoever shows them.

Guarantees: Python's logging gets every message, whatever those who show them do; one that raises is
reported once and asked no more. A message is shown in the context (`contextvars`) of the request that caused
it, on the thread that logged it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bls_notebook.observe.records.logs import LogLine

__all__ = ["LOGGER", "add_display", "remove_display", "write"]

LOGGER = "bls_notebook.model"  # and below it, one for each model
_LEVELS = {
    "verbose": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_displays: list[Callable[[LogLine], None]] = []


def add_display(show: Callable[[LogLine], None]) -> None:
    """Have every message shown, beside being logged."""
    if show not in _displays:
        _displays.append(show)


def remove_display(show: Callable[[LogLine], None]) -> None:
    """Show no more there."""
    if show in _displays:
        _displays.remove(show)


def write(line: LogLine) -> None:
    """Log a message with the logger of its model, and have it shown."""
    logger = logging.getLogger(f"{LOGGER}.{line.model}")
    number = _LEVELS[line.level]
    if logger.isEnabledFor(number):
        logger.handle(logger.makeRecord(logger.name, number, line.file, line.line, line.message, (), None))
    for show in tuple(_displays):
        try:
            show(line)
        except Exception:
            remove_display(show)
            logging.getLogger("bls_notebook").exception("messages of models are shown no more")
