"""`PuzzleCheck`: judgements on a replacement of a puzzle's model, with a picture of the first violated constraint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bls_notebook.display import document as doc
from bls_notebook.display import message_document, parts
from bls_notebook.lifetimes.display.report import chart_block
from bls_notebook.lifetimes.records import Lifetimes
from bls_notebook.profiling.session import Session
from bls_notebook.profiling.timeline.picture import timeline_block
from bls_notebook.records import BLSError, MessageRecord, Record, count
from bls_notebook.testing.claim_checks import Judgement, judgement_document

from .puzzle_card import card_svg
from .puzzle_text import PuzzleData, puzzle_names

SAME = "same answers"
CALLEES = "callees are used"


@dataclass(frozen=True, slots=True, repr=False)
class PuzzleCheck(Record):
    """The result of `Puzzle.check`: a judgement on the answers and on each constraint; true if all hold.

    ``sessions`` are recorded from the same request, with the replacement and with the reference solution; ``memory``
    are its lifetimes, if a constraint is about memory. The request is one for which the constraint ``violated`` does
    not hold, with marks at the violation, or else the last measured one. ``request``, ``got`` and ``expected`` describe
    the smallest request with another answer. ``waits`` counts the calls that the model waited for in turn,
    ``lines_changed`` the lines that differ from the naive model. ``printed`` is what the model printed, ``source``
    the text of its model.py.
    """

    puzzle: str
    title: str
    seed: int
    judgements: tuple[Judgement, ...]
    sessions: tuple[Session, ...] = ()
    memory: tuple[Lifetimes, ...] = ()
    violated: str = ""
    request: str = ""
    got: str = ""
    expected: str = ""
    waits: int = 0
    lines_changed: int = 0
    printed: str = ""
    source: str = ""

    @property
    def solved(self) -> bool:
        """Return whether the answers are the same and every constraint holds."""
        return bool(self.judgements) and all(self.judgements)

    @property
    def hint(self) -> str:
        """The hint of the first judgement that does not hold; empty if the puzzle is solved."""
        return next((judgement.hint or judgement.seen for judgement in self.judgements if not judgement), "")

    def __bool__(self) -> bool:
        return self.solved

    @property
    def is_fake(self) -> bool:
        """Return whether the model does the work of a callee, and calls it for show."""
        return any(judgement.claim == CALLEES and not judgement for judgement in self.judgements)

    def card(self) -> str:
        """Return a card to share, an SVG document: the solver's own timeline and figures.

        Raises
        ------
        BLSError
            The puzzle is not solved.
        """
        if not self.solved:
            raise BLSError(f"card: puzzle {self.puzzle!r} is not solved: {self.hint}")
        names = puzzle_names()
        place = f" · {names.index(self.puzzle) + 1} of {len(names)}" if self.puzzle in names else ""
        variant = f" · variant {self.seed}" if self.seed else ""
        return card_svg(f"BLS Puzzles{place}{variant}", self.title, figures(self), self.sessions[0])


def puzzle_document(puzzle: PuzzleData) -> doc.Document:
    """Show a puzzle: its story, its constraints, and its models."""
    models = [puzzle.naive, *puzzle.callees]
    rows = [doc.Row([parts.name(model.name), parts.code(model.signature)]) for model in models]
    claims = " and ".join(f"`{claim}`" for claim in puzzle.constraints)
    return doc.Document(
        [
            doc.Line([parts.name(f"{puzzle.number}. {puzzle.title}")]),
            doc.Words(parts.coded(puzzle.story), "message-more", indent="  "),
            doc.Words(parts.coded(f"Same answers, and {claims}."), "message-more", indent="  "),
            doc.Table("Models", [doc.Column("model"), doc.Column("signature")], rows, last="wrap"),
        ],
        styles="message",
    )


def is_about_memory(claim: str) -> bool:
    """Return whether a claim is shown by lifetimes, not by a timeline."""
    return claim.startswith(("peak", "nothing_left"))


def check_document(check: PuzzleCheck, *, widget: Any = None) -> doc.Document:
    """Show the judgements, the smallest request that differs, and the picture of the first violated constraint."""
    blocks: list[doc.Block] = []
    if check.solved:
        blocks += message_document(MessageRecord(f"{check.title}: solved with {figures(check)}", "done")).blocks
    blocks += [block for judgement in check.judgements for block in judgement_document(judgement).blocks]
    if check.request:
        pairs = [("request", check.request), ("got", check.got), ("expected", check.expected)]
        rows = [doc.Row([label, replace(parts.code(text), cls="wrap")]) for label, text in pairs]
        columns = [doc.Column(), doc.Column()]
        blocks.append(doc.Table("The smallest request that differs", columns, rows, heads=False, last="wrap"))
    if check.printed:
        blocks.append(doc.Fold("What the model printed", [doc.Words(line) for line in check.printed.splitlines()]))
    if check.sessions:
        blocks += _picture(check, widget)
    return doc.Document(blocks, styles="message figure")


def figures(check: PuzzleCheck) -> str:
    """Return the solver's figures in a few words."""
    calls = sum(1 for span in check.sessions[0].spans if span.parent)
    facts = [count(check.waits, "wait"), count(calls, "call"), f"{count(check.lines_changed, 'line')} changed"]
    return ", ".join(facts)


def _picture(check: PuzzleCheck, widget: Any) -> list[doc.Block]:
    """Return the timeline, or the lifetimes for a claim about memory, above the reference solution's."""
    if not is_about_memory(check.violated):
        return [timeline_block(check.sessions, widget=widget, gap=True)]
    blocks: list[doc.Block] = []
    for record in check.memory:
        title = doc.Words(parts.name(record.name), gap=True)
        blocks += [title, chart_block(record, widget=None if blocks else widget)]
    return blocks


def check_widget(check: PuzzleCheck, width: int) -> Any:
    """Return the interactive timelines; or the lifetimes, at the largest block to blame; None without a session."""
    if not check.sessions:
        return None
    if not is_about_memory(check.violated):
        from bls_notebook.profiling.session_report import timeline_widget

        return timeline_widget(*check.sessions)
    from bls_notebook.lifetimes.display.widget import LifetimesWidget  # needs anywidget

    own = check.memory[0]
    shown = LifetimesWidget(own, width)
    to_blame = own.left_behind() or tuple(life for device in own.devices for life in own.peak(device.name).lives)
    shown.selected = max(to_blame, key=lambda life: life.bytes).id if to_blame else 0
    return shown
