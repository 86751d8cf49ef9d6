"""Two sessions compared, as a picture and tables: which models and calls became faster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import log10
from typing import Any, TypeVar

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.as_text import clip
from bls_notebook.display.html import Html, text
from bls_notebook.display.palette import ALARM, model_inks
from bls_notebook.display.pen import DIM, Look, Pen, SvgPen, picture_html
from bls_notebook.display.units import factor, ns
from bls_notebook.profiling.analysis.difference import Difference, EdgeChange, ModelChange, TimeChange
from bls_notebook.profiling.records.session import SideBySide
from bls_notebook.profiling.timeline.picture import timeline_block
from bls_notebook.records.measurements import Quartiles

from .session_report import verdict_words

_Changed = TypeVar("_Changed", ModelChange, EdgeChange)
_MOST = 30  # rows
_TOP, _ROW, _LEFT, _RIGHT = 24.0, 44.0, 180.0, 140.0  # px
_GREY, _GREEN = "#8a8a8a", "#007a59"


def by_time(changes: Iterable[_Changed]) -> list[_Changed]:
    """Return models or calls in the order of their requests' times, the longest first."""
    return sorted(changes, key=lambda c: -max(c.duration.before.q3, c.duration.after.q3))


def difference_picture(difference: Difference) -> Html:
    """Draw what changed for a display whose styles have ``figure``.

    A pair of bars for each model, from the first to the third quartile of its requests' times with the median
    marked, grey before and in the model's colour after; those that took longest first.
    """
    pen = SvgPen(1.0, _LEFT, _RIGHT)
    return picture_html(pen.document(*_draw(pen, difference)), difference_alt(difference))


def difference_alt(difference: Difference) -> str:
    """Say what the picture shows."""
    said = [
        f"{m.name} {ns(m.duration.before.median)} to {ns(m.duration.after.median)}"
        for m in difference.models
        if m.duration.verdict
    ]
    return "Median time of a request before and after: " + (", ".join(said) or "no model is in both")


def _draw(pen: Pen, difference: Difference) -> tuple[float, float]:
    """Draw everything, and return how high it is, and how far down the lines of the axis go."""
    models = by_time(difference.models)[:_MOST]
    shown = [spread for m in models for spread in (m.duration.before, m.duration.after) if spread.count]
    axis = _LogAxis(shown)
    pen.ticks = axis.ticks
    inks = model_inks(m.name for m in models)
    before, after = clip(difference.before or "before", 24), clip(difference.after or "after", 24)
    pen.words(f"time of a request: {before} (grey), then {after} (coloured)", 0, 8, colour="#333333")
    y = _TOP
    for model in models:
        _bar(pen, axis, y + 6, model.duration.before, _GREY)
        _bar(pen, axis, y + 22, model.duration.after, inks[model.name].light)
        pen.words(clip(model.name, 26), 0, y + 20, right=-8, align="end")
        _say(pen, y + 20, model.duration)
        y += _ROW
    for x, words in pen.ticks:
        pen.words(words, x, y + 8, align="middle", size=10, colour="#555555")
    return y + 20, y


class _LogAxis:
    """Where times are on an axis from 0 to 1, each tenfold as wide as every other."""

    def __init__(self, shown: Sequence[Quartiles]) -> None:
        self._low = log10(min((max(spread.q1, 1.0) for spread in shown), default=1e3) / 1.35)
        self._high = log10(max((max(spread.q3, 1.0) for spread in shown), default=1e6) * 1.35)

    def at(self, time: float) -> float:
        place = (log10(max(time, 1.0)) - self._low) / (self._high - self._low)
        return min(max(place, 0.0), 1.0)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """The tens, or where there is hardly one of them, their halves and fifths too."""
        steps = (1,) if self._high - self._low > 2 else (1, 2, 5)
        powers = range(int(self._low), int(self._high) + 2)
        all_ = [log10(step) + power for power in powers for step in steps]
        return [(self.at(10**t), ns(10**t)) for t in all_ if self._low <= t <= self._high]


def _bar(pen: Pen, axis: _LogAxis, y: float, spread: Quartiles, colour: str) -> None:
    if not spread.count:
        return
    pen.line([(axis.at(spread.least), y + 6), (axis.at(spread.most), y + 6)], Look(colour, 0.55), 1)
    low, high = axis.at(spread.q1), axis.at(spread.q3)
    pen.boxes([(low, y, high - low, 12)], Look(colour, 0.75))
    pen.stems([(axis.at(spread.median), y - 2, y + 14)], Look(colour), 2.4)


def _say(pen: Pen, y: float, change: TimeChange) -> None:
    told = {"same": "within the spread", "": "not in both"}.get(change.verdict) or factor(change.factor)
    colour = {"faster": _GREEN, "slower": ALARM.light}.get(change.verdict, DIM)
    pen.words(told, 1.0, y, right=10, colour=colour)


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


def _change(change: TimeChange) -> str:
    if change.verdict == "same":
        return "≈ within the spread"
    if not change.verdict:
        return "not in both"
    return f"{_VERDICTS[change.verdict]} {factor(change.factor)}"


def beside_widget(both: SideBySide, width: int) -> Any:
    """Return the interactive timeline of two sessions; None if both are empty."""
    if not (both.before.spans or both.after.spans):
        return None
    from bls_notebook.profiling.timeline.widget import Timeline  # needs anywidget

    return Timeline(both.before, both.after)
