"""``python -m bls_notebook grade``: judge a cell, or a class, in a process that runs no other code of learners."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from pathlib import Path

from bls_notebook.operations import OperationSpec, new_file_with, option, whole_number
from bls_notebook.records import write_file

from .class_grades import ClassGrades, cell_of, grade_class, without_magic
from .puzzle_check import PuzzleCheck
from .puzzle_entry import puzzle


def _grade(
    puzzle_name: str, files: Sequence[str] = (), seed: int = 0, csv: str = "", page: str = ""
) -> Generator[PuzzleCheck | ClassGrades, None, None]:
    """Check the text of a cell or a model.py, or the texts of a class."""
    if len(files) < 2 and not (csv or page) and not (files and Path(files[0]).is_dir()):
        text = without_magic(sys.stdin.read()) if list(files) in ([], ["-"]) else cell_of(Path(files[0]), puzzle_name)
        yield puzzle(puzzle_name, seed).check(text)
        return
    grades = grade_class(puzzle_name, seed, list(files))
    for file, write in ((csv, grades.csv), (page, grades.page)):
        if file:
            write_file(Path(file), write().encode(), "grade")
    yield grades


GRADE = OperationSpec(
    """Check the text of a cell or of a model.py as a replacement of a puzzle's model, for the hidden test of a grader:
    nothing that the learner's notebook defines or replaces has an effect here. The exit status is 0 if the puzzle is
    solved, else 1. Of several files or a folder, which are named after the learners, it shows a table: a point for the
    right answers, one for each constraint, and one if all of this also holds for other requests, answers and times of
    the callees. Guide: docs/guides/teaching.md.""",
    options=(
        option("puzzle_name", "PUZZLE", "a puzzle, such as: gather"),
        option("files", "FILE", "notebooks, cells or model.py files, or a folder of them (default: stdin)", nargs="*"),
        option("--seed", "N", "a variant of the puzzle: other names, values and sizes (default: 0)", whole_number(0)),
        option("--csv", "FILE", "write the table of a class as .csv", new_file_with(".csv")),
        option("--page", "FILE", "write the table of a class as an .html page", new_file_with(".html")),
    ),
    shell=_grade,
    failed=lambda check: not check,
)
