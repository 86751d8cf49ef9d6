"""A session as the browser gets it: columns of numbers as bytes, and the few names that they refer to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

from bls_notebook.display.browser.column_bytes import Names, pack_columns
from bls_notebook.display.palette import Ink
from bls_notebook.display.timeline.lanes import lay_out
from bls_notebook.display.timeline.places import WIDGET, Panel
from bls_notebook.display.timeline.ranges import titles
from bls_notebook.display.units import count, duration
from bls_notebook.observe.analysis.critical_path import Step
from bls_notebook.observe.analysis.intervals import Interval, levels, total, union
from bls_notebook.observe.analysis.span_tree import SpanTree
from bls_notebook.observe.records.session import Session, Span
from bls_notebook.observe.visible import visible

__all__ = ["path_columns", "session_columns"]

_CROWD = 12  # rows of queued requests: of more only their number is drawn


def session_columns(
    session: Session, inks: dict[str, Ink], top: float = 0.0, *, titled: bool = False
) -> dict[str, Any]:
    """Encode a session for ``widgets/timeline.js``.

    Parameters
    ----------
    session : Session
        What was recorded.
    inks : dict of str to Ink
        The ink of each model by its name.
    top : float
        Where it begins on the page, px; every height below counts from there on.
    titled : bool
        Whether there is room for its name above it.

    Returns
    -------
    dict
        JSON-able but for ``data`` (the columns, as `pack_columns` lays them out) and ``texts`` (request IDs
        and errors in UTF-8, one after the other, ending where the column ``text_end`` says), which are bytes.
        All text is made visible, so that none of it can pose as something else. A strip is a row of what lies
        side by side: requests that run or wait, device time; those of strip ``k`` are in ``strip_of`` from
        ``strip_at[k]`` to ``strip_at[k + 1]``; likewise ``calls`` (of the first request of each batch) and
        the pieces of self time of those that called. A curve is a part of ``curve_ns`` and ``curve_level``.
    """
    spans = session.spans
    tree = SpanTree(session)
    panel = Panel.of(session, lay_out(session), top, WIDGET, titled=titled, number=0)
    layout = panel.layout
    models, kinds, states, devices, texts = (Names() for _ in range(5))
    texts.of([""])
    title = titles(session)
    strips = _strips(panel)
    curves = _Curves()
    working = tree.working()
    lanes = [
        {
            "kind": place.lane.kind,
            "label": visible(place.lane.label),
            "name": visible(place.lane.name),
            "model": -1 if place.lane.kind == "gpu" else models.of([title(place.lane)])[0],
            "y": place.middle - 9,
            "top": place.waits,
            "blocks": place.blocks,
            "bottom": place.bottom,
            "depth": curves.add(_waits(panel, number)) if place.lane.waits > _CROWD else None,
            "share": _share(panel, number, strips),
        }
        for number, place in enumerate(panel.places)
    ]
    # One pass in C over the fields: a session may hold 100,000 spans.
    plain = list(zip(*map(attrgetter(*_FIELDS), spans), strict=True)) or [()] * len(_FIELDS)
    of = dict(zip(_FIELDS, plain, strict=True))
    blocks = list(map(panel.block, range(len(spans))))
    arrivals = [
        panel.arrival(i) if wait >= 0 else block
        for i, (wait, block) in enumerate(zip(layout.wait, blocks, strict=True))
    ]
    queued = [(span.queued, span.started) for span in spans if span.queued < span.started]
    shown = {"working": curves.add(working), "queued": curves.add(queued)}
    facts = [
        count(len(spans), "request"),
        duration(session.wall / 1e9),
        f"{total(working) / max(session.wall, 1):.1f} at work on average, {shown['working']['most']} at most"
        if working
        else "",
        f"{duration(total(queued) / 1e9)} queued in all" if total(queued) > session.wall / 1000 else "",
        f"{count(session.dropped, 'request')} not recorded" if session.dropped else "",
    ]
    columns: dict[str, tuple[str, Iterable[float]]] = {
        **{name: ("f8", of[name]) for name in _FLOATS},
        **{name: ("u4", map(_most, of[name])) for name in _COUNTS},
        "parent": ("i4", layout.parent),
        "lane": ("u4", layout.lane),
        "first": ("u4", layout.first),
        "parts": ("u4", layout.parts),
        "waits": ("u1", [wait >= 0 for wait in layout.wait]),
        "y": ("f4", [y for y, _ in blocks]),
        "height": ("f4", [height for _, height in blocks]),
        "from_y": ("f4", [y for y, _ in arrivals]),
        "from_height": ("f4", [height for _, height in arrivals]),
        "strip_at": ("u4", accumulate(map(len, strips.values()), initial=0)),
        "strip_of": ("u4", chain(*strips.values())),
        "model": ("u4", models.of(map(title, spans))),
        "device": ("u4", devices.of(of["device"])),
        "kind": ("u1", kinds.of(of["kind"])),
        "state": ("u1", states.of(of["state"])),
        "request": ("u4", texts.of(of["request_id"])),
        "error": ("u4", texts.of(of["error"])),
        **_calls(spans, tree),
        **_marks(spans),
        "curve_ns": ("f8", curves.ns),
        "curve_level": ("u4", curves.level),
    }
    joined = [text.encode("utf-8", "replace") for text in texts.shown]
    columns["text_end"] = ("u4", accumulate(map(len, joined)))
    data, where = pack_columns(columns)
    inks_of = {title(span): inks[span.model] for span in spans}
    return {
        "name": visible(session.name),
        "wall": session.wall,
        "dropped": session.dropped,
        "facts": " · ".join(filter(None, facts)),
        "models": [{"name": visible(name), **asdict(inks_of[name])} for name in models.numbers],
        "lanes": lanes,
        "strips": [_strip(panel, *key) for key in strips],
        "curves": shown,
        "work": panel.work,
        "bottom": top + panel.height,
        "kinds": kinds.shown,
        "states": states.shown,
        "devices": devices.shown,
        "columns": where,
        "data": data,
        "texts": b"".join(joined),
    }


def path_columns(session: Session, critical: Iterable[Step]) -> dict[str, Any]:
    """Encode a critical path for ``widgets/timeline.js``.

    Parameters
    ----------
    session : Session
        Whose path it is.
    critical : iterable of Step
        Its steps in order; those of spans that the session does not have are left out, the notebook's stay.

    Returns
    -------
    dict
        As that of `session_columns`: ``columns``, ``data``, the names of the ``phases``, and as ``shares``
        what the time was spent on, the most first: (what, of which model, ns).
    """
    number = {span.id: i for i, span in enumerate(session.spans)}
    steps = [step for step in critical if step.span in number or not step.span]
    title = titles(session)
    spent: Counter[tuple[str, str]] = Counter()
    for step in steps:
        model = title(session.spans[number[step.span]]) if step.span else ""
        phase = step.phase.removeprefix("compute_")
        aside = f" ({phase})" if model and phase != "infer" else ""
        spent[f"{model or 'the notebook'}{aside}", model] += step.end - step.begin
    phases = Names()
    data, where = pack_columns(
        {
            "span": ("i4", [number.get(step.span, -1) for step in steps]),
            "begin": ("f8", [step.begin for step in steps]),
            "end": ("f8", [step.end for step in steps]),
            "phase": ("u1", phases.of(step.phase for step in steps)),
        }
    )
    most = [(*key, ns) for key, ns in spent.most_common() if ns >= session.wall / 200]
    shares = [(visible(what), visible(model), ns) for what, model, ns in most]
    return {"columns": where, "data": data, "phases": phases.shown, "shares": shares}


class _Curves:
    """How many of some intervals there are from moment to moment, one curve after the other."""

    def __init__(self) -> None:
        self.ns: list[int] = []
        self.level: list[int] = []

    def add(self, intervals: Iterable[Interval]) -> dict[str, int]:
        steps = levels(intervals)
        at = len(self.ns)
        self.ns += [ns for ns, _ in steps]
        self.level += [level for _, level in steps]
        return {"at": at, "end": len(self.ns), "most": max(self.level[at:], default=0)}


_Strip = tuple[int, str, int]  # lane, what, row


def _strips(panel: Panel) -> dict[_Strip, list[int]]:
    """The spans of each row of each lane, from top to bottom and from left to right."""
    spans, layout = panel.session.spans, panel.layout
    found: dict[_Strip, list[int]] = {}
    for i, lane in enumerate(layout.lane):
        kind, waits = layout.lanes[lane].kind, layout.lanes[lane].waits
        if layout.part[i] == 0:
            found.setdefault((lane, "refused" if kind == "refused" else "run", layout.row[i]), []).append(i)
        if layout.wait[i] >= 0 and waits <= _CROWD:
            found.setdefault((lane, "wait", layout.wait[i]), []).append(i)
        if layout.device[i] >= 0:
            found.setdefault((layout.device[i], "gpu", layout.device_row[i]), []).append(i)
    for (_, what, _), row in found.items():
        began = attrgetter("started" if what in ("run", "gpu") else "sent")
        row.sort(key=lambda i: int(began(spans[i])))
    return dict(sorted(found.items()))


def _strip(panel: Panel, lane: int, what: str, row: int) -> dict[str, Any]:
    place = panel.places[lane]
    if what == "wait":
        top, height = place.blocks - 2 - (row + 1) * place.wait, place.wait - 1
    else:
        top, height = place.blocks + row * place.row, place.row - 1
    return {"lane": lane, "what": what, "top": top, "height": height}


def _waits(panel: Panel, lane: int) -> list[Interval]:
    places = zip(panel.session.spans, panel.layout.lane, panel.layout.wait, strict=True)
    return [(span.sent, span.started) for span, its, wait in places if its == lane and wait >= 0]


def _share(panel: Panel, lane: int, strips: dict[_Strip, list[int]]) -> str:
    """The part of the time in which a lane is busy."""
    spans = panel.session.spans
    if panel.layout.lanes[lane].kind in ("refused", "idle"):
        return ""
    busy = [
        (spans[i].started, spans[i].started + spans[i].device_ns if what == "gpu" else spans[i].ended)
        for (its, what, _), row in strips.items()
        if its == lane and what in ("run", "gpu")
        for i in row
    ]
    share = total(union(busy)) / max(panel.session.wall, 1)
    return "idle" if not share else "<1%" if share < 0.01 else f"{share:.0%}"


def _calls(spans: Sequence[Span], tree: SpanTree) -> dict[str, tuple[str, Iterable[float]]]:
    """What each request sent, and when its model was at work itself meanwhile: under the first of a batch."""
    number = {span.id: i for i, span in enumerate(spans)}
    sent = [tree.children.get(span.id, ()) for span in spans]
    own = [tree.self_time(span.id) if sent[i] else () for i, span in enumerate(spans)]
    return {
        "calls_at": ("u4", accumulate(map(len, sent), initial=0)),
        "calls": ("u4", [number[call.id] for calls in sent for call in calls]),
        "own_at": ("u4", accumulate(map(len, own), initial=0)),
        "own_from": ("f8", [begin for pieces in own for begin, _ in pieces]),
        "own_to": ("f8", [end for pieces in own for _, end in pieces]),
    }


_FLOATS = ("id", "sent", "queued", "started", "inferred", "ended", "bytes_in", "bytes_out", "device_ns")
_COUNTS = ("batch", "rows", "crossings")
_FIELDS = (*_FLOATS, *_COUNTS, "model", "version", "device", "kind", "state", "request_id", "error")


def _most(number: int) -> int:
    return min(max(number, 0), 0xFFFFFFFF)


def _marks(spans: Sequence[Span]) -> dict[str, tuple[str, Iterable[float]]]:
    final = {"response": 0, "final": 1, "cancelled": 2}
    found = [(i, mark) for i, span in enumerate(spans) if span.marks for mark in span.marks]
    return {
        "mark_span": ("u4", [i for i, _ in found]),
        "mark_ns": ("f8", [mark.ns for _, mark in found]),
        "mark_kind": ("u1", [final.get(mark.kind, 0) for _, mark in found]),
    }
