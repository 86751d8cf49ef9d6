"""Errors: the base class of this package's exceptions, and the record of an error with its origin."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Record


class BLSError(Exception):
    """Base class: one clear line that says what, where, got, expected and what to do."""


class FileError(BLSError, ValueError):
    """A file of a record that cannot be read or written, or holds something else."""


@dataclass(frozen=True, slots=True, repr=False)
class FrameRecord(Record):
    """One frame of a traceback; an empty ``model`` means code that belongs to no model.

    ``source`` holds numbered lines around ``line``.
    """

    model: str
    version: int = 0
    file: str = ""
    line: int = 0
    function: str = ""
    source: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class InputSeen(Record):
    """What a request was sent with, without its values."""

    name: str
    datatype: str
    shape: tuple[int, ...] = ()
    device: str = "cpu"


@dataclass(frozen=True, slots=True, repr=False)
class ErrorRecord(Record):
    """An error as its caller got it.

    ``chain`` names the models that it came through, outermost first; ``kind`` is the exception's class name, or empty;
    ``frames`` are in Python's order, the failing call last; ``hint`` says how to fix it. ``stage`` is empty for a model
    that failed, refused for a request that reached none, returned for an error that is a model's answer, or cancelled.
    ``inputs`` are those of the last model's request. ``unchecked`` is the message of an error that the model was
    answered with before, and did not pass on. ``debug`` says that ``%debug`` opens at its last frame.
    """

    message: str
    code: str = ""
    chain: tuple[str, ...] = ()
    kind: str = ""
    frames: tuple[FrameRecord, ...] = ()
    hint: str = ""
    stage: str = ""
    inputs: tuple[InputSeen, ...] = ()
    unchecked: str = ""
    debug: bool = False
