"""Server functions for models: load, unload and check models, and write to the server's log."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import ClassVar

from ._runtime import caller_var, current_caller, find_caller
from .errors import ServerEnum, TritonModelException, plain_text


def _text(function: str, argument: str, value: object) -> str:
    text = plain_text(value)
    if text is None:
        raise TypeError(f"{function}(): {argument} must be str that has a UTF-8 form, got {value!r}")
    return text


def load_model(model_name: str, config: str = "", files: Mapping[str, bytes] | None = None) -> None:
    """Load or reload a model.

    Parameters
    ----------
    model_name : str
    config : str
        Configuration as JSON text, which replaces config.pbtxt.
    files : mapping of str to bytes
        Contents by ``file:<version>/<name>``, which replace the files on disk; needs `config`.

    Raises
    ------
    TritonModelException
        The model could not be loaded; the message says why. Or `files` is no dict.
    TypeError
        An argument has the wrong type.
    """
    _text("load_model", "model_name", model_name)
    _text("load_model", "config", config)
    contents: dict[str, bytes] | None = None
    if files is not None:
        if not isinstance(files, dict):
            raise TritonModelException(
                f"failed to load model '{model_name}', files should be a dictionary of file paths and file contents"
            )
        for name, data in files.items():
            if not isinstance(name, str) or not isinstance(data, bytes):
                raise TypeError(f"load_model(): files must map str to bytes, got {type(data).__name__} for {name!r}")
        contents = dict(files)
    caller = current_caller()
    caller.note_warnings(caller.server.load_for_model(caller.instance_name, model_name, config, contents))


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model; TritonModelException if that fails. Do nothing for a model that is not loaded."""
    _text("unload_model", "model_name", model_name)
    caller = current_caller()
    caller.server.unload_for_model(caller.instance_name, model_name, bool(unload_dependents))


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Return whether a model is ready: its newest version, or `model_version`, a number as text."""
    _text("is_model_ready", "model_name", model_name)
    _text("is_model_ready", "model_version", model_version)
    caller = current_caller()
    ready: bool = caller.server.is_ready_for_model(caller.instance_name, model_name, model_version)
    return ready


def get_model_dir() -> str:
    """Return the folder of the running model's version, which contains its model.py."""
    try:
        return current_caller().model_directory()
    except TritonModelException:
        frame = sys._getframe(1)  # outside any model: the folder of the caller's file
        return os.path.dirname(os.path.abspath(frame.f_globals.get("__file__") or frame.f_code.co_filename))


class LogLevel(ServerEnum):
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
    else:  # as the real stub does before its connection to the server exists
        print(f"[{level.name.lower()}] {text}", file=sys.stderr)


class Logger:
    """Writes to the server's log, by static methods; TypeError for a message that is not text."""

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
