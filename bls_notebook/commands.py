"""Commands of ``python -m bls_notebook``, and the types of options in commands and magics."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .records.base import Record
from .records.units import seconds_in


@dataclass(frozen=True)
class Command:
    """A command: its one-line help, a function that adds its arguments, and one that runs it and returns the status."""

    summary: str
    arguments: Callable[[argparse.ArgumentParser], object]
    run: Callable[[argparse.Namespace], int]


def print_record(record: Record, as_json: bool) -> None:
    if as_json:
        print(json.dumps(record.to_dict(), indent=2))
    else:
        from .display import render

        print(render(record, width=min(shutil.get_terminal_size().columns, 120)).text)


def whole_number(least: int) -> Callable[[str], int]:
    """Return a converter of text to whole numbers from `least`."""

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or number >= 2**63:
            raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number from {least}")
        return number

    return convert


def counts(text: str) -> tuple[int, ...]:
    """Convert text such as ``1,2,4`` to numbers of instances."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= 64 for word in words):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected counts from 1 to 64, such as 1,2,4")
    return tuple(int(word) for word in words)


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number such as 1e-6") from None


def names(text: str) -> list[str]:
    """Convert comma-separated text to names."""
    parts = [name.strip() for name in text.split(",") if name.strip()]
    if not parts:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected names separated by commas, such as A,B")
    return parts


def key_and_value(text: str) -> tuple[str, str]:
    """Convert ``KEY=VALUE`` to the text before and after the first equals sign."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected KEY=VALUE, such as engine_dir=/models/llm")
    return key, value


def seconds(text: str) -> float:
    """Convert a time with a unit to seconds. A number without a unit is an error, because it would be ambiguous."""
    duration = seconds_in(text)
    if duration is None or (duration and text.strip()[-1].isdigit()):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a time with its unit, such as 500ms or 2s")
    return duration


_KINDS: dict[str, Callable[[str], object]] = {
    "": str, "0..": whole_number(0), "1..": whole_number(1), "counts": counts, "int": int, "names": names,
    "number": number, "pair": key_and_value, "seconds": seconds,
}  # fmt: skip


def help_section(module: str, name: str) -> str:
    """Return the section ``== name`` of the help.txt beside the file of a module."""
    text = Path(module).with_name("help.txt").read_text("utf-8")
    return text.partition(f"== {name}\n")[2].partition("\n== ")[0].rstrip()


def add_options(parser: argparse.ArgumentParser, module: str, *names: str, **kinds: Callable[[str], object]) -> None:
    """Add the arguments in the sections ``options of NAME`` of the help.txt beside the file of a module.

    A line is such as ``--timeout TIME | seconds = 1s | how long to wait``: the option, or the name of a positional
    argument, with the placeholder of its value; the kind of the value and its default; the help. A ``flag`` has no
    value; ``*``, ``+`` and ``?`` after the kind
    say how many values an argument takes, as in a pattern. `kinds` has converters besides `_KINDS`.
    """
    converters = {**_KINDS, **kinds}
    for line in (line for name in names for line in help_section(module, f"options of {name}").splitlines()):
        words, kind, text = (part.strip() for part in line.split("|", 2))
        if kind == "flag":
            parser.add_argument(*words.split(), action="store_true", help=text)
            continue
        *flags, metavar = words.split()
        kind, equals, default = (part.strip() for part in kind.partition("="))
        keywords: dict[str, Any] = {"default": default} if equals else {}
        if many := kind[-1:] if kind[-1:] in ("*", "+", "?") else "":
            keywords |= {"action": "append", "default": []} if flags[0][0] == "-" else {"nargs": many}
        parser.add_argument(*flags, metavar=metavar, type=converters[kind.rstrip("*+?")], help=text, **keywords)
