"""`Logger`: the server's log, from inside a model."""

from __future__ import annotations

import enum
import sys
from typing import ClassVar

from ._runtime import caller_var, find_caller

__all__ = ["LogLevel", "Logger"]


class LogLevel(enum.Enum):
    """Levels of `Logger.log`."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    VERBOSE = "verbose"


_Level = LogLevel  # inside Logger, the name is the class attribute that Triton has


def _write(level: LogLevel, message: object) -> None:
    if isinstance(message, bytes):  # pybind takes bytes where it wants text
        message = message.decode()
    if not isinstance(message, str):
        raise TypeError(f"Logger: incompatible function arguments; message must be str, got {message!r}")
    frame = sys._getframe(2)
    caller = caller_var.get() or find_caller(frame)
    if caller is not None:
        caller.log(level.value, message, frame.f_code.co_filename, frame.f_lineno)
    else:  # as the real stub does where its log service is not up
        print(f"[{level.value}] {message}", file=sys.stderr)


class Logger:
    """Writes to the server's log; every method is static.

    Raises
    ------
    TypeError
        A message that is not text.
    """

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
