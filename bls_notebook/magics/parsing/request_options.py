"""Converts the options of ``%bls`` to what the public API takes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError

from bls_notebook import pb_utils

from .expressions import Variables, evaluate
from .words import split_words

_FLAGS = {
    "start": pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    "end": pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
}
Sequence = tuple[int | str, int]


def sequence(text: str) -> Sequence:
    """Return correlation ID and flags of ``ID``, ``ID:start``, ``ID:end`` or ``ID:start,end``."""
    before, colon, after = text.rpartition(":")
    words = [word.strip() for word in after.split(",")]
    if not colon or not all(word in _FLAGS for word in words):
        before, words = text, []
    if not before or (before.isdigit() and not 0 < int(before) < 2**64):
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected an ID (text, or a number from 1), then :start, :end or :start,end"
        )
    flags = 0
    for word in words:
        flags |= _FLAGS[word]
    return int(before) if before.isdigit() else before, flags


def parameters_of(text: str | None, variables: Variables) -> dict[str, Any] | None:
    """Return request parameters of ``name=value,...`` or of an expression for a dict; else raise a
    UsageError.
    """
    if text is None:
        return None
    where = "%bls: --parameters"
    pairs = [_pair(word.text.strip()) for word in split_words(text, lambda char: char == ",")]
    if any(pair is None for pair in pairs):
        value = evaluate(text, variables, where)
    else:
        value = {name: evaluate(of, variables, f"{where}: {name}") for name, of in filter(None, pairs)}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{where}: got {text!r} of type {type(value).__name__}, expected name=value,name=value or a dict."
        )
    for name, item in value.items():
        if not isinstance(name, str) or not isinstance(item, (str, int, bool)):
            raise UsageError(
                f"{where}: {name!r} is of type {type(item).__name__}; "
                "expected text, a whole number, True or False."
            )
    return dict(value)


def _pair(piece: str) -> tuple[str, str] | None:
    name, equals, value = piece.partition("=")
    return (name, value) if equals and name.isidentifier() and not value.startswith("=") else None
