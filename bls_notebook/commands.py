"""What a command of ``python -m bls_notebook`` is."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from .records.base import Record


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
