"""What requests waited for: the sentence of a verdict, and a table of the requests of a cell by kind."""

from __future__ import annotations

from bls_notebook.display import parts
from bls_notebook.display.document import Block, Column, Row, Table, Words
from bls_notebook.display.units import ns, percent, size, some_ns
from bls_notebook.profiling.analysis.cells.kinds import RequestKind
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import NOTEBOOK
from bls_notebook.profiling.records.verdicts import Verdict

_COLUMNS = (
    ("requests", "r", "how many were sent, those of models left out"),
    ("median", "t", "of a request, from when it was sent until its last answer"),
    ("together", "t", "the times of all of them"),
    ("of the time", "r", "the part of the wall time in which one of them was under way"),
    ("queued", "t", "they and their calls waited for an instance, all together"),
    ("waited for", "", "what most of their time went on"),
)
_CAUSES = {
    "queue": "in the queue of",
    "gil": "on Python's lock (GIL), by",
    "cached": "answered by the cache of",
    "failed": "failed in",
    "work": "at work in",
}


def verdict_words(verdict: Verdict) -> list[Block]:
    """Return the sentence, what to do, and what makes the figures rough."""
    said = [
        (parts.coded(verdict.sentence), "session-verdict"),
        (parts.coded(verdict.advice), "session-advice"),
    ]
    said.append((parts.quiet(verdict.note), ""))
    texts = (verdict.sentence, verdict.advice, verdict.note)
    return [Words(piece, style, "  ") for text, (piece, style) in zip(texts, said, strict=True) if text]


def kinds_table(session: Session) -> list[Block]:
    """Return a table of the requests by model and size; none where all are alike."""
    kinds = session.kinds()
    if len(kinds) < 2:
        return []
    whose = "the cell" if session.sender == NOTEBOOK else session.sender
    columns = [Column(f"requests of {whose}"), *(Column(head, how, what) for head, how, what in _COLUMNS)]
    rows = [
        Row(
            [
                parts.name(_name(kind)),
                f"{kind.requests:,}",
                ns(kind.took.median),
                ns(kind.took.total),
                percent(kind.under_way, session.wall),
                some_ns(kind.queued),
                _waited_for(kind),
            ]
        )
        for kind in kinds
    ]
    return [Table(f"Requests of {whose}, by kind", columns, rows, last="wrap")]


def _name(kind: RequestKind) -> str:
    name = kind.model if kind.version == 1 else f"{kind.model}/{kind.version}"
    return name if kind.bytes_in < 0 else f"{name}, {size(kind.bytes_in)}"


def _waited_for(kind: RequestKind) -> str:
    return f"{kind.part:.0%} {_CAUSES[kind.cause]} {kind.of}" if kind.cause else ""
