"""Two sessions compared, as tables: what got faster, what moved, and whether it was the same code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import text
from bls_notebook.display.units import factor, ns
from bls_notebook.profiling.analysis.difference import Change, Difference, EdgeChange, ModelChange
from bls_notebook.profiling.records.session import SideBySide
from bls_notebook.profiling.timeline.block import timeline_block

from .difference_picture import by_time, difference_picture
from .verdict import verdict_words

_HEADS = (("", ""), ("before", "t"), ("", "r"), ("after", "t"), ("", "r"))
_COLUMNS = [*(doc.Column(*each) for each in _HEADS), *map(doc.Column, ("change", "queue", "moved"))]
_VERDICTS = {"faster": "▲", "slower": "▼", "same": "≈", "": ""}
_NONE = "no requests in either session"


def difference_document(difference: Difference) -> doc.Document:
    """Describe what changed from one session to another: on the whole, of each model, of each call."""
    if not difference.models:
        return doc.Document([*_top(difference), doc.Words(parts.quiet(_NONE), indent="  ")], styles="session")
    changed = doc.Both(lambda _: (), difference_picture(difference))
    return doc.Document([*_top(difference), changed, *_changes(difference)], styles="figure session")


def beside_document(both: SideBySide, *, widget: Any = None) -> doc.Document:
    """Describe two sessions on one axis of time, and what changed; a `widget` covers their picture."""
    difference = both.diff()
    sessions = [
        session if session.name else replace(session, name=name)
        for session, name in ((both.before, "before"), (both.after, "after"))
    ]
    blocks: list[doc.Block] = _top(difference)
    blocks += verdict_words(both.after.verdict())
    if both.before.spans or both.after.spans:
        blocks.append(timeline_block(sessions, widget=widget, gap=True))
    if difference.models:
        blocks += _changes(difference)
    return doc.Document(blocks, styles="figure session")


def _top(difference: Difference) -> list[doc.Block]:
    names = f"{difference.before or 'before'} → {difference.after or 'after'}"
    return [
        doc.Line([parts.name(names), parts.quiet(parts.dots(*_whole(difference), by="  "))]),
        doc.Words(parts.quiet(code_sentence(difference)), "facts", "  "),
    ]


def _changes(difference: Difference) -> list[doc.Block]:
    """What changed, of each model and of each call."""
    models = [_row(parts.name(m.name), m, _moved_model(m)) for m in by_time(difference.models)]
    calls = [
        _row(parts.code(f"{e.caller or 'notebook'} → {e.callee}"), e, ", ".join(e.moved))
        for e in by_time(difference.edges)
    ]
    groups = [doc.Group(title, rows) for title, rows in (("models", models), ("calls", calls)) if rows]
    return [
        doc.Table("What changed", _COLUMNS, groups, last="wrap"),
        doc.Both(lambda _: ["  before, after: median of a request ± half of the IQR"]),
    ]


def code_sentence(difference: Difference) -> str:
    """Return whether the two sessions ran the same code."""
    changed = [m.name for m in difference.models if m.code == "changed"]
    configured = [m.name for m in difference.models if m.config == "changed" and m.code != "changed"]
    if changed or configured:
        said = [f"code of {', '.join(changed)}"] if changed else []
        said += [f"configuration of {', '.join(configured)}"] if configured else []
        return f"changed between the two: {' and '.join(said)}"
    if difference.code == "same":
        return "the same code and configuration of every model"
    one = [m.name for m in difference.models if not m.duration.before.count or not m.duration.after.count]
    if one:
        return f"in one of the two only: {', '.join(one)}"
    return "whether it was the same code is not known"


def _whole(difference: Difference) -> list[str]:
    before, after = difference.span_before, difference.span_after
    change = factor(before / after) if after and before else ""
    return [f"first request to last answer {ns(before)} → {ns(after)}", change]


def _moved_model(model: ModelChange) -> str:
    words = list(model.moved)
    words += ["new code"] if model.code == "changed" else []
    words += ["new configuration"] if model.config == "changed" else []
    return ", ".join(words)


def _row(head: doc.Piece, changed: ModelChange | EdgeChange, moved: str) -> doc.Row:
    before, after, queue = changed.duration.before, changed.duration.after, changed.queue
    waited = f"{ns(queue.before.median)} → {ns(queue.after.median)}"
    verdict = changed.duration.verdict
    cells = (
        (ns(before.median) if before.count else "", "num"),
        (f"±{ns(before.iqr / 2)}" if before.iqr else "", "num dim"),
        (ns(after.median) if after.count else "", "num"),
        (f"±{ns(after.iqr / 2)}" if after.iqr else "", "num dim"),
        (_change(changed.duration), f"session-{verdict}" if verdict else "dim"),
        (waited if queue.before.median or queue.after.median else "", ""),
        (moved, "session-remarks"),
    )
    return doc.Row([head, *(doc.Piece(said, text(said), kind) for said, kind in cells)])


def _change(change: Change) -> str:
    if change.verdict == "same":
        return "≈ within the spread"
    if not change.verdict:
        return "not in both"
    return f"{_VERDICTS[change.verdict]} {factor(change.factor)}"
