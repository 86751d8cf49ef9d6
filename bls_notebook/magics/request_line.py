"""Parse a line such as that of ``%bls``: a model, ``INPUT=expression`` pairs, options; and convert them for
the public API.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from IPython.core.error import UsageError

from bls_notebook import pb_utils

from .arguments import Parser, Variables, Word, evaluate, expanded, split_words

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
                f"{where}: {name!r} is of type {type(item).__name__}; expected text, a whole number, True or False."
            )
    return dict(value)


def _pair(piece: str) -> tuple[str, str] | None:
    name, equals, value = piece.partition("=")
    return (name, value) if equals and name.isidentifier() and not value.startswith("=") else None


# Not `==`, and a name as tensors have it: letters, digits and what frameworks put between.
_INPUT = re.compile(r"([A-Za-z_][\w.:/\-]*)=(?!=)")
_OPTION = re.compile(r"(--[A-Za-z][\w-]*|-[A-Za-z])(?==|\d*$)")


@dataclass
class RequestLine:
    """What a line of ``%bls`` says: words for the parser (model and options), expressions by input name."""

    words: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)

    def values(self, variables: Variables, magic: str) -> dict[str, Any]:
        """Return what the expressions are worth, by input name; `magic` is whose line it is."""
        return {name: evaluate(of, variables, f"{magic}: input {name}") for name, of in self.inputs.items()}


def input_name(word: str) -> str:
    """Return the name where the word begins an input, else nothing."""
    found = _INPUT.match(word)
    return found[1] if found else ""


def option_in(parser: Parser, word: str) -> str:
    """Return the option where the word is one, else nothing; `-x` is one only where it is known."""
    found = _OPTION.match(word)
    return found[1] if found and (found[1].startswith("--") or found[1] in parser.options) else ""


def read_line(parser: Parser, line: str, variables: Variables) -> RequestLine:
    """Read a line; where it is wrong, a UsageError says what it is and what was expected.

    An expression ends where the next input or option begins, so `a + b` needs no brackets.
    """
    result = RequestLine()
    words = parser.words_of(line)
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if option_in(parser, word.text):
            position = _read_option(parser, words, position, result.words, variables)
        elif name := input_name(word.text):
            while position < len(words):
                if input_name(words[position].text) or option_in(parser, words[position].text):
                    break
                position += 1
            expression = line[word.start + len(name) + 1 : words[position - 1].end].strip()
            if not expression:
                parser.error(f"input {name!r} has no value; expected {name}=expression")
            if name in result.inputs:
                parser.error(f"input {name!r} is given twice")
            result.inputs[name] = expression
        elif (result.inputs or not parser.takes_several) and any(not w.startswith("-") for w in result.words):
            parser.error(f"got {word.text!r}, expected INPUT=expression, such as INPUT0=[1, 2]")
        else:
            result.words.append(expanded(word.plain, variables))
    return result


def _read_option(parser: Parser, words: list[Word], position: int, into: list[str], variables: Variables) -> int:
    """Read an option and its value, as one word for the parser; the position after it is returned."""
    word = words[position - 1].text
    option = option_in(parser, word)
    if option not in parser.options:
        parser.refuse(word)
    if not parser.takes_value(option) or word != option:
        into.append(expanded(word, variables))
        return position
    value = ""
    while position < len(words) and (not value or value.endswith(",")):  # a list may have spaces
        value += words[position].text
        position += 1
    if not value:
        parser.error(f"{option} needs a value")
    if option != "--parameters":  # whose braces are a dict's
        value = expanded(value, variables)
    into.append(f"{option}={value}" if option.startswith("--") else f"{option}{value}")
    return position
