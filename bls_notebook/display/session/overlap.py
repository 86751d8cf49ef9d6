"""What sending the calls of a model ahead would bring, and brought: sentence, proof, figures, timelines."""

from __future__ import annotations

from typing import Any

from bls_notebook.display import parts
from bls_notebook.display.document import Block, Document, Line, Tiles, Words
from bls_notebook.display.timeline.block import timeline_block
from bls_notebook.display.units import count, ns
from bls_notebook.observe.analysis.verdict_words import times
from bls_notebook.observe.records.profiles.overlap import Overlap


def overlap_document(overlap: Overlap, *, widget: Any = None) -> Document:
    """Describe what could have been in flight together, and what came of it.

    A `widget` covers the picture of both timelines while a kernel is there.
    """
    blocks: list[Block] = [
        Line([parts.name(overlap.model), parts.quiet(_what(overlap))]),
        Words(parts.coded(overlap.sentence or "Its calls could not be judged."), "session-verdict", "  "),
    ]
    if overlap.proof:
        blocks.append(Words(parts.coded(overlap.proof), "session-advice", "  "))
    if overlap.advice:
        blocks.append(Words(parts.coded(overlap.advice), "session-advice", "  "))
    for why in overlap.kept:
        blocks.append(Words(parts.quiet(f"left as it is written: {why}"), indent="  "))
    if overlap.written.spans:
        blocks.append(Tiles(_figures(overlap)))
        both = (overlap.written, overlap.ahead) if overlap.rounds else (overlap.written,)
        blocks.append(timeline_block(both, widget=widget, gap=True))
    return Document(blocks, styles="session figure")


def _what(overlap: Overlap) -> str:
    runs = f"{count(overlap.rounds, 'run')} of each, medians" if overlap.rounds else "as it is written"
    return f"{count(overlap.requests, 'request')}, exec as written against calls sent ahead; {runs}"


def _figures(overlap: Overlap) -> list[tuple[str, str, str]]:
    """Label, value, and what it means."""
    figures = [("as written", ns(overlap.measured.sequential), "")]
    if overlap.rounds and not overlap.problem:
        figures.append(("calls sent ahead", ns(overlap.measured.gathered), ""))
        figures.append(("speed-up", f"{times(overlap.speedup)}×", "with equal answers"))
    figures.append(("predicted", f"{times(overlap.predicted)}×", "from the run as it is written"))
    return figures
