"""Displays of cases, of checks of a fix, and of the score."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.display import document as doc
from bls_notebook.display import message_document, parts, tag
from bls_notebook.records import MessageRecord, Record
from bls_notebook.testing.claim_checks import judgement_document

from .case_entry import CaseCheck, CourseCase
from .case_text import CaseModel
from .puzzle_check import is_about_memory


@dataclass(frozen=True, slots=True, repr=False)
class CaseScore(Record):
    """The progress with one case: how many causes were named until the right one, and whether a fix works.

    ``shown``: the solution was shown before. ``given``: the cell that named the cause also shows the solution.
    """

    number: int
    title: str
    seed: int = 0
    tries: int = 0
    named: bool = False
    fixed: bool = False
    shown: bool = False
    given: bool = False

    @property
    def points(self) -> int:
        """Two for the right cause at once, one for it later, two for the reader's own fix."""
        return (1 + (self.tries == 1)) * (self.named and not self.given) + 2 * (self.fixed and not self.shown)


@dataclass(frozen=True, slots=True, repr=False)
class CaseScores(Record):
    """The progress with all cases."""

    rows: tuple[CaseScore, ...]

    @property
    def points(self) -> int:
        """The sum of the points."""
        return sum(row.points for row in self.rows)


@doc.document("message tried table")
def case_document(case: CourseCase):  # type: ignore[no-untyped-def]
    """Show the story, how to send its requests, the possible causes, and the code of the models."""
    seed = f", variant {case.seed}" if case.seed else ""
    yield doc.Line([parts.name(f"Case {case.number}: {case.title}"), parts.quiet(seed.lstrip(", "))])
    story = parts.coded(case.story)
    yield doc.Words(doc.Piece(story.text, tag("span", story.html)), indent="  ")
    yield doc.Words(parts.quiet("send its requests, and see them:"), gap=True)
    is_leak = any(map(is_about_memory, case.claims))
    yield parts.pasted("%%blsmemory\ncase.send();" if is_leak else "%%blsprofile\ncase.send()")
    yield doc.Words(parts.quiet(parts.coded("name the cause with `%blscase --cause NAME`:")))
    rows = [doc.Row([parts.name(cause.name), parts.coded(cause.meaning)]) for cause in case.causes]
    yield doc.Table("Causes", [doc.Column("cause"), doc.Column("meaning")], rows, heads=False, last="wrap")
    how = "change a model (`%blscase --code MODEL` and `--pbtxt MODEL` open it), and check: `%blscase --check`"
    yield doc.Words(parts.quiet(parts.coded(how)))
    names = ", ".join(f"`{model.name}`" for model in case.models)
    yield doc.Forms([doc.Words(f"models: {names}")], [doc.Fold(m.name, [_code(m)]) for m in case.models])


def _code(model: CaseModel) -> doc.Block:
    return parts.pasted(f"# config.pbtxt\n{model.config}\n# 1/model.py\n{model.source}")


def case_check_document(check: CaseCheck) -> doc.Document:
    """Show the judgements on a fix."""
    blocks = [block for judgement in check.judgements for block in judgement_document(judgement).blocks]
    if check:
        blocks += message_document(MessageRecord(f"{check.title}: solved", "done")).blocks
    return doc.Document(blocks, styles="message")


def scores_document(scores: CaseScores) -> doc.Document:
    """Show a row for each case, and the sum of the points."""
    rows = [
        doc.Row([str(row.number), row.title, _tries(row), ("shown" if row.shown else "✓") * row.fixed, str(row.points)])
        for row in scores.rows
    ]
    head = doc.Line([parts.name(f"{scores.points} of {4 * len(scores.rows)} points"), parts.quiet(POINTS)])
    table = doc.Table("The score of each case", doc.columns("case:r|pipeline|cause named|fixed|points:r"), rows)
    return doc.Document([head, table], styles="table")


POINTS = "2 for the cause at once (1 later), 2 for your fix"


def _tries(row: CaseScore) -> str:
    if row.given:
        return "given"
    if not row.named:
        return "not yet" if row.tries else ""
    return "at once" if row.tries == 1 else f"at try {row.tries}"
