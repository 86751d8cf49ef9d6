"""Errors: the base class of this package's exceptions, and the record of an error with its origin."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Record
from .remedy_words import Remedy


class BLSError(Exception):
    """Base class of this package's errors: one line with the problem, the place, got, expected, and the remedy."""


class FileError(BLSError, ValueError):
    """A file of a record cannot be read or written, or has other content."""


@dataclass(frozen=True, slots=True, repr=False)
class FrameRecord(Record):
    """One frame of a traceback; `model` is empty for code outside models.

    `source` has the numbered lines around `line`.
    """

    model: str
    version: int = 0
    file: str = ""
    line: int = 0
    function: str = ""
    source: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class InputSeen(Record):
    """An input of a request, without its values."""

    name: str
    datatype: str
    shape: tuple[int, ...] = ()
    device: str = "cpu"


@dataclass(frozen=True, slots=True, repr=False)
class ErrorRecord(Record):
    """An error as its caller received it.

    `chain` names the models that the error passed, outermost first. `kind` is the exception's class name, or empty.
    `frames` are in Python's order, the failing call last. `hint` is the remedy. `stage` is empty if the model failed,
    ``refused`` if the request reached no model, ``returned`` if the model returned an error response, or ``cancelled``.
    `inputs` are those of the request to the last model. `unchecked` is the message of an earlier error response which
    the model received, and which this error hides. `debug` says that ``%debug`` opens at the last frame,
    or would if its code had not run in another `process`.
    """

    message: str
    code: str = ""
    chain: tuple[str, ...] = ()
    kind: str = ""
    frames: tuple[FrameRecord, ...] = ()
    hint: str | Remedy = ""
    stage: str = ""
    inputs: tuple[InputSeen, ...] = ()
    unchecked: str = ""
    debug: bool = False
    process: bool = False
