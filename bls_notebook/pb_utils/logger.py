"""`Logger`: the server's log, from inside a model."""

from __future__ import annotations

import enum
import sys
from typing import ClassVar

from ._runtime import caller_var, find_caller
from .errors import plain_text


class LogLevel(enum.IntEnum):
    """Levels of `Logger.log`, with Triton's numbers."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3

    def __str__(self) -> str:
        return f"LogLevel.{self.name}"  # as Triton prints it


_Level = LogLevel  # inside Logger, the name is the class attribute that Triton has


def _write(level: LogLevel, message: object) -> None:
    text = plain_text(message)
    if text is None:
        raise TypeError(
            f"Logger: incompatible function arguments; message must be str that has a UTF-8 form, got {message!r}"
        )
    frame = sys._getframe(2)
    caller = caller_var.get() or find_caller(frame)
    if caller is not None:
        caller.log(level.name.lower(), text, frame.f_code.co_filename, frame.f_lineno)
    else:  # as the real stub does where its log service is not up
        print(f"[{level.name.lower()}] {text}", file=sys.stderr)


class Logger:
    """Writes to the server's log; every method is static.

    Raises
    ------
    TypeError
        A message that is not text.
    """

    def __init__(self) -> None:
        raise TypeError("Logger: No constructor defined! Its methods are static: Logger.log_info(message)")

    LogLevel = LogLevel
    INFO: ClassVar[_Level] = _Level.INFO
    WARNING: ClassVar[_Level] = _Level.WARNING
    ERROR: ClassVar[_Level] = _Level.ERROR
    VERBOSE: ClassVar[_Level] = _Level.VERBOSE

    @staticmethod
    def log(message: str, level: _Level = _Level.INFO) -> None:
        """Write a message at a level (default INFO)."""
        if not isinstance(level, _Level):
            raise TypeError(f"Logger.log: level must be Logger.INFO, ..., got {level!r}")
        _write(level, message)

    @staticmethod
    def log_info(message: str) -> None:
        """Write a message at level INFO."""
        _write(LogLevel.INFO, message)

    @staticmethod
    def log_warn(message: str) -> None:
        """Write a message at level WARNING."""
        _write(LogLevel.WARNING, message)

    @staticmethod
    def log_error(message: str) -> None:
        """Write a message at level ERROR."""
        _write(LogLevel.ERROR, message)

    @staticmethod
    def log_verbose(message: str) -> None:
        """Write a message at level VERBOSE."""
        _write(LogLevel.VERBOSE, message)
