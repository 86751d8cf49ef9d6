"""``python -m bls_notebook grade``: judge a learner's cell in a process that runs no other code of the learner."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

from bls_notebook.operations import OperationSpec, option, whole_number
from bls_notebook.records import BLSError

from .puzzle_check import PuzzleCheck
from .puzzle_entry import puzzle


def _grade(puzzle_name: str, file: str = "-", seed: int = 0) -> Generator[PuzzleCheck, None, None]:
    """Check the text of a cell or of a model.py."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise BLSError(f"file: {error}") from None
    first, _, rest = text.lstrip().partition("\n")
    yield puzzle(puzzle_name, seed).check(rest if first.startswith("%%") else text)


GRADE = OperationSpec(
    """Check the text of a cell or of a model.py as a replacement of a puzzle's model, for the hidden test of a grader:
    nothing that the learner's notebook defines or replaces has an effect here. The exit status is 0 if the puzzle is
    solved, else 1. Guide: docs/guides/teaching.md.""",
    options=(
        option("puzzle_name", "PUZZLE", "a puzzle, such as: gather"),
        option("file", "FILE", "a cell or a model.py; - reads stdin (default: -)", nargs="?"),
        option("--seed", "N", "a variant of the puzzle, with other names (default: 0)", whole_number(0)),
    ),
    shell=_grade,
    failed=lambda check: not check,
)
