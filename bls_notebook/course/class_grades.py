"""The grades of a class for one puzzle: a row for each learner, with a mark for each constraint."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bls_notebook.display import document as doc
from bls_notebook.display import document_html, parts
from bls_notebook.records import BLSError, Record, count

from .puzzle_check import SAME, PuzzleCheck
from .puzzle_entry import puzzle

OTHER = "also otherwise"  # the second look: other requests, answers and times of the callees


@dataclass(frozen=True, slots=True, repr=False)
class LearnerGrade(Record):
    """The marks of a learner, in the order of the table's columns, and the hint for the first that is missing."""

    learner: str
    marks: tuple[bool, ...]
    hint: str = ""

    @property
    def points(self) -> int:
        """One for each mark."""
        return sum(self.marks)


@dataclass(frozen=True, slots=True, repr=False)
class ClassGrades(Record):
    """The grades of a class; true if every learner has all points."""

    puzzle: str
    seed: int
    claims: tuple[str, ...]
    rows: tuple[LearnerGrade, ...]

    def __bool__(self) -> bool:
        return all(all(row.marks) for row in self.rows)

    def csv(self) -> str:
        """Return the table as CSV text, in which no cell is a formula."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["learner", "points", "of", *self.claims, "hint"])
        for row in self.rows:
            learner, hint = (f"'{cell}" if cell[:1] in "=+-@" and cell else cell for cell in (row.learner, row.hint))
            table.writerow([learner, row.points, len(self.claims), *map(int, row.marks), hint])
        return text.getvalue()

    def page(self) -> str:
        """Return the table as an HTML page."""
        return (
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Puzzle {self.puzzle}</title>\n'
            f"{document_html(grades_document(self))}\n</html>\n"
        )


def grade_class(name: str, seed: int, paths: list[str]) -> ClassGrades:
    """Check the submissions in files and folders with one worker, and return the table."""
    task = puzzle(name, seed)
    claims = (SAME, *task.constraints, OTHER)
    rows = []
    for file in _files(paths):
        source = cell_of(file, name)
        if source.strip():
            check = task.check(source)
            rows.append(LearnerGrade(file.stem, _marks(check, len(task.constraints)), check.hint))
        else:
            rows.append(LearnerGrade(file.stem, (False,) * len(claims), f"no cell with %%blspuzzle {name}"))
    if not rows:
        raise BLSError(f"grade: got no .ipynb or .py file in {', '.join(paths) or 'nothing'}")
    return ClassGrades(name, seed, claims, tuple(rows))


def _marks(check: PuzzleCheck, constraints: int) -> tuple[bool, ...]:
    """Return the marks for the answers, each constraint and the second look; none without the right answers."""
    first, *rest = check.judgements
    if not first or check.is_fake:
        return (False,) * (constraints + 2)
    marks = [bool(judgement) for judgement in rest[:constraints]]
    return (True, *marks, *[False] * (constraints - len(marks)), check.solved)


def _files(paths: list[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        yield from sorted(f for f in path.rglob("*") if f.suffix in (".ipynb", ".py")) if path.is_dir() else [path]


def cell_of(file: Path, name: str) -> str:
    """Return the last cell of a notebook that checks a puzzle, or the text of another file, without the magic."""
    try:
        text = file.read_text("utf-8")
        if file.suffix == ".ipynb":
            sources = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
            text = next((s for s in reversed(sources) if s.split()[:2] == ["%%blspuzzle", name]), "")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BLSError(f"{file.name}: {error}") from None
    return without_magic(text)


def without_magic(text: str) -> str:
    """Return the text of a cell without the line of a cell magic."""
    first, _, rest = text.lstrip().partition("\n")
    return rest if first.startswith("%%") else text


def grades_document(grades: ClassGrades) -> doc.Document:
    """Show a row for each learner, and the mean of the points."""
    most = len(grades.claims)
    mean = sum(row.points for row in grades.rows) / len(grades.rows)
    seed = f"variant {grades.seed}" if grades.seed else ""
    facts = parts.dots(count(len(grades.rows), "learner"), f"{mean:.3g} of {most} points on average", seed)
    columns = [doc.Column("learner"), doc.Column("points", "r"), *map(doc.Column, grades.claims), doc.Column("hint")]
    rows = []
    for row in grades.rows:
        hint = replace(parts.coded(row.hint), cls="wrap")
        rows.append(doc.Row([row.learner, str(row.points), *("✓" if mark else "✗" for mark in row.marks), hint]))
    head = doc.Line([parts.name(f"Puzzle {grades.puzzle}"), parts.quiet(facts)])
    return doc.Document([head, doc.Table("The points of each learner", columns, rows, last="wrap")], styles="table")
