"""Commands of ``python -m bls_notebook``, and the types of their options and of those of magics."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from .records.base import Record
from .records.units import seconds_in


@dataclass(frozen=True)
class Command:
    """A command: its line in the list, what adds its arguments, and what runs it and returns the status."""

    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def print_record(record: Record, as_json: bool) -> None:
    """Print a record as text, or as JSON."""
    if as_json:
        print(json.dumps(record.to_dict(), indent=2))
    else:
        from .display import render

        print(render(record, width=min(shutil.get_terminal_size().columns, 120)).text)


def whole_number(least: int) -> Callable[[str], int]:
    """Return a converter to whole numbers."""

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
    """Read numbers of instances."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= 64 for word in words):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected counts from 1 to 64, such as 1,2,4")
    return tuple(int(word) for word in words)


def number(text: str) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number such as 1e-6") from None


def names(text: str) -> list[str]:
    """Return the names of a list with commas."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected names with commas between, such as A,B")
    return found


def key_and_value(text: str) -> tuple[str, str]:
    """Return what stands before and after the first equals sign."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected KEY=VALUE, such as engine_dir=/models/llm")
    return key, value


def seconds(text: str) -> float:
    """Read a time, in seconds. A number without a unit is refused: it could be any unit."""
    found = seconds_in(text)
    if found is None or (found and text.strip()[-1].isdigit()):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a time with its unit, such as 500ms or 2s")
    return found


def add_tolerance(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how far the floats of two answers may be apart."""
    parser.add_argument(
        "--tolerance", type=number, default=0.0, metavar="X",
        help="floats may differ by X, absolutely or in proportion (default: not at all)",
    )  # fmt: skip
    ulps = "or by N neighbouring floats"
    parser.add_argument("--ulps", type=whole_number(0), default=0, metavar="N", help=ulps)
