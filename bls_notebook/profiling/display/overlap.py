"""What sending the calls of a model ahead would bring, and brought: sentence, proof, figures, timelines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bls_notebook.display import parts
from bls_notebook.display.document import Block, Both, Document, Fold, Forms, Line, Tiles, Words
from bls_notebook.display.html import Html, prose, tag
from bls_notebook.display.records.changes import change_block
from bls_notebook.display.units import count, ns
from bls_notebook.profiling.analysis.verdict_text import times
from bls_notebook.profiling.records.overlap import CodeChange, Overlap
from bls_notebook.profiling.timeline.picture import timeline_block
from bls_notebook.records.visible import visible

_IN_TEXT = 40  # lines of a change


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
    blocks += _code(overlap)
    for why in overlap.kept:
        blocks.append(Words(parts.quiet(f"left as it is written: {why}"), indent="  "))
    if overlap.written.spans:
        blocks.append(Tiles(_figures(overlap)))
        both = (overlap.written, overlap.ahead) if overlap.rounds else (overlap.written,)
        blocks.append(timeline_block(both, widget=widget, gap=True))
    return Document(blocks, styles="session figure changes")


def _code(overlap: Overlap) -> Iterator[Block]:
    """The lines concerned, and what to write in their place."""
    code = overlap.code
    if code is None:
        return
    title = f"the code to write: {_lines(code)} of {code.file}" if code.lines else "the code to write"
    inner: list[Block]
    if code.change is not None:
        inner = [change_block(code.change, _IN_TEXT)]
    else:
        why = f"Not changed for you, as {code.reason}. By hand, where the models have these names:"
        waiting = [
            Line([parts.quiet(f"{each.line}"), parts.code(each.text)], indent="    ") for each in code.lines
        ]
        shown = Both(
            lambda _: [f"    {visible(line)}" for line in code.template.splitlines()], _pre(code.template)
        )
        inner = [*waiting, Words(parts.coded(why), "session-advice", "  "), shown]
    yield Forms([Words(title, indent="  "), *inner], [Fold(title, inner, is_open=True)])
    if code.proof:
        yield Words(parts.coded(code.proof), "session-verdict", "  ")


def _lines(code: CodeChange) -> str:
    numbers = [str(each.line) for each in code.lines]
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    return f"lines {', '.join(numbers[:-1])} and {numbers[-1]}"


def _pre(text: str) -> Html:
    return tag("pre", prose(text), cls="changes-lines")


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


def overlap_widget(overlap: Overlap, width: int) -> Any:
    """Return the interactive timeline of the runs; None if nothing was recorded."""
    if not overlap.written.spans:
        return None
    from bls_notebook.profiling.timeline.widget import Timeline  # needs anywidget

    both = (overlap.written, overlap.ahead) if overlap.rounds else (overlap.written,)
    return Timeline(*both)
