"""`overlap_document`: which calls could be in flight together, the code to write, its proof, timelines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.records.models import change_block
from bls_notebook.display.units import count, ns
from bls_notebook.profiling.analysis.verdict_text import times
from bls_notebook.profiling.timeline.picture import timeline_block

from .findings import named, order
from .records import CodeChange, Overlap

_IN_TEXT, _CALLS = 40, 30  # lines of a change, rows of calls
_KINDS = {"control": " (decides)", "sequence": " (sequence)", "state": " (state)", "unknown": " (not known)"}


def overlap_document(overlap: Overlap, *, widget: Any = None) -> doc.Document:
    """Describe the result of `overlap`; a `widget` covers the picture of the timelines in a live notebook."""
    runs = f"{count(overlap.runs, 'run')} of the model in {overlap.seconds:.1f} s"
    asked = f"{count(overlap.callee_requests, 'request')} to its callees"
    what = f"{count(overlap.requests, 'request')}; {runs}, {asked}"
    blocks: list[doc.Block] = [
        doc.Line([parts.name(overlap.model), parts.quiet(what)]),
        doc.Words(parts.coded(overlap.sentence), "session-verdict", "  "),
    ]
    if len(overlap.stages) > 1 and (overlap.together or overlap.already):
        blocks.append(_words(f"Possible order: {order(overlap)}."))
    if overlap.advice:
        blocks.append(_words(overlap.advice))
    if overlap.code is not None:
        blocks += _code(overlap.code)
    blocks += [doc.Words(parts.quiet(parts.coded(f"note: {each}")), indent="  ") for each in overlap.notes]
    if len(overlap.calls) > 1 and not overlap.problem:
        blocks.append(_calls(overlap))
    if overlap.written.spans:
        blocks.append(doc.Tiles(_figures(overlap)))
        sessions = (overlap.written,) if overlap.changed is None else (overlap.written, overlap.changed)
        blocks.append(timeline_block(sessions, widget=widget, gap=True))
    return doc.Document(blocks, styles="session figure changes tried")


def _words(text: str) -> doc.Block:
    return doc.Words(parts.coded(text), "session-advice", "  ")


def _code(code: CodeChange) -> Iterator[doc.Block]:
    if code.change is not None:
        inner = [change_block(code.change, _IN_TEXT)]
    else:
        by_hand = " By hand, where the requests have these names:" * bool(code.template)
        inner = [_words(f"Not changed for you: {code.reason}.{by_hand}"), parts.pasted(code.template)]
    title = f"the code to write, in {code.file}" if code.file else "the code to write"
    yield parts.opened(title, inner)
    if code.proof:
        yield doc.Words(parts.coded(code.proof), "session-verdict", "  ")


def _calls(overlap: Overlap) -> doc.Block:
    rows = []
    for number, call in enumerate(overlap.calls[:_CALLS]):
        kinds: dict[str, list[int]] = {}
        for each in overlap.dependences:
            if each.later == number:
                kinds.setdefault(_KINDS.get(each.kind, ""), []).append(each.earlier)
        needs = ", ".join(named(overlap.calls, group) + kind for kind, group in kinds.items())
        line = str(call.line.line) if call.line is not None else ""
        rows.append(doc.Row([str(number + 1), parts.code(call.model), line, parts.coded(needs or "nothing")]))
    title = f"what each of the {len(overlap.calls)} calls needs"
    title += f" (the first {_CALLS})" * (len(overlap.calls) > _CALLS)
    return parts.opened(title, [doc.Table("calls", doc.columns("call:r|model|line:r|needs"), rows)], False)


def _figures(overlap: Overlap) -> list[tuple[str, str, str]]:
    figures = [("as written", ns(overlap.written.wall), "")]
    if overlap.together:
        figures.append(("predicted", f"{times(overlap.predicted)}×", "from the spans of the run as written"))
    if overlap.changed is not None:
        figures.append(("calls together", ns(overlap.changed.wall), "median"))
        figures.append(("speed-up", f"{times(overlap.speedup)}×", "with equal answers"))
    return figures


def overlap_widget(overlap: Overlap, width: int) -> Any:
    """Return the interactive timeline of the runs; None if nothing was recorded."""
    if not overlap.written.spans:
        return None
    from bls_notebook.profiling.timeline.widget import Timeline  # needs anywidget

    return Timeline(*((overlap.written,) if overlap.changed is None else (overlap.written, overlap.changed)))
