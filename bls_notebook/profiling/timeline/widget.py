"""The timeline as an interactive widget: zoom, hover, search and select in the browser.

The browser gets a session as binary columns of numbers, and the names that the numbers refer to. Importing this
module imports anywidget (the extra ``widgets``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any

import anywidget
import numpy as np
import traitlets

from bls_notebook.display import (
    NOTEBOOK,
    Ink,
    Names,
    model_inks,
    new_place,
    output,
    pack_columns,
    readable,
    widget_source,
    with_view,
)
from bls_notebook.profiling.analysis.critical_path import Step
from bls_notebook.profiling.analysis.span_tree import SpanTree, lock_waits
from bls_notebook.profiling.intervals import Interval, total, union
from bls_notebook.profiling.session import Session, Source, Span
from bls_notebook.records import ModelSeen, TensorSeen, count, duration, visible

from .lanes import Panel, TimelineLayout, notebook_time, requests_and_calls, titles
from .picture import UNAWAITED, timeline_block, timeline_lines, timeline_signs

_CROWD = 12  # the most rows of queued requests that are drawn; beyond that only their number is


def session_columns(
    session: Session, inks: dict[str, Ink], top: float = 0.0, *, titled: bool = False
) -> dict[str, Any]:
    """Encode a session for ``widgets/timeline.js``: JSON-able except ``data`` and ``texts``, which are bytes.

    ``top`` is its vertical position on the page (px), added to every height; ``titled`` reserves room for its
    name. ``data`` has the columns in the layout of `pack_columns`, ``texts`` the request IDs and errors in
    UTF-8, one after the other; the column ``text_end`` has their ends. Control characters in texts are made
    visible. Differences make the numbers small, to save bytes: a time is relative to the previous time, a
    caller (``back``) and the first span of a batch (``lead``) are numbers of spans back. A strip is a row of
    boxes side by side (runs, waits, device time, the notebook's waits); the boxes of strip ``k`` are
    ``strip_of`` from ``strip_at[k]`` to ``strip_at[k + 1]``. A curve is a part of ``curve_ns`` and ``curve_level``.
    """
    spans = session.spans
    tree = SpanTree.of(session)
    panel = Panel.of(session, TimelineLayout(session), top, titled=titled, scrolls=True)
    layout = panel.layout
    models, kinds, states, devices, texts = (Names() for _ in range(5))
    shapes: dict[tuple[TensorSeen, ...], int] = {(): 0}
    texts.of([""])
    title = titles(session)
    # One pass in C over the fields: a session may hold 100,000 spans.
    plain = list(zip(*map(attrgetter(*_FIELDS), spans), strict=True)) or [()] * len(_FIELDS)
    of = dict(zip(_FIELDS, plain, strict=True))
    times = {name: np.array(of[name], np.float64) for name in _TIMES}
    number = np.arange(len(spans))
    parent, first = np.array(layout.parent, np.int64), np.array(layout.first, np.int64)
    strips = _strips(panel, times)
    curves = _Curves()
    _, waiting = notebook_time(session, tree)
    pieces = _own(spans, tree, layout)
    named = {known: title(span) for known, span in {(s.model, s.version): s for s in spans}.items()}
    lanes = [
        {
            "kind": place.lane.kind,
            "label": visible(place.lane.label),
            "count": place.lane.count,
            "loop": place.lane.waits_for_loop,
            "name": visible(place.lane.name),
            "title": visible(place.lane.title),
            "model": models.of([title(place.lane)])[0] if place.lane.model else -1,
            "y": place.middle - 9,
            "top": place.waits,
            "blocks": place.blocks,
            "bottom": place.bottom,
            "depth": curves.add(*_waits(panel, number, times)) if place.lane.waits > _CROWD else None,
            "share": _share(panel, number, strips, times, waiting),
        }
        for number, place in enumerate(panel.places)
    ]
    events = np.array(tree.working_events(), np.float64)
    begun = events % 2 == 1
    working = (events[begun] - 1) / 2, events[~begun] / 2
    at_work = (working[1].sum() - working[0].sum()) / max(session.wall, 1)
    shown = {"working": curves.add(*working), "queued": curves.add(times["queued"], times["started"])}
    in_queue = (times["started"] - times["queued"]).sum()
    facts = [
        requests_and_calls(session),
        duration(session.wall / 1e9),
        f"{at_work:.1f} at work on average, {shown['working']['most']} at most" if len(events) else "",
        f"{duration(in_queue / 1e9)} queued in all" if in_queue > session.wall / 1000 else "",
        f"{count(session.dropped, 'request')} not recorded" if session.dropped else "",
    ]
    wanted = session.lock or session.marks or session.samples
    numbers = {span.id: i for i, span in enumerate(spans)} if wanted else {}
    columns: dict[str, tuple[str, Any]] = {
        "sent": ("n", np.diff(times["sent"], prepend=0)),
        **{f"to_{b}": ("n", times[b] - times[a]) for a, b in pairwise(_TIMES[:5])},
        "device_ns": ("n", times["device_ns"] + 1),
        **{name: ("n", of[name]) for name in _COUNTS},
        "back": ("n", np.where(parent < 0, 0, number - parent)),
        "lane": ("n", layout.lane),
        "turn_call": ("n", [layout.turns.get(i, (0, 0))[0] for i in range(len(spans))]),
        "turn_response": ("n", [layout.turns.get(i, (0, 0))[1] for i in range(len(spans))]),
        "lead": ("n", number - first),
        "parts": ("n", layout.parts),
        "waits": ("u1", np.array(layout.wait, np.int64) >= 0),
        "strip_at": ("u4", accumulate(map(len, strips.values()), initial=0)),
        "strip_of": ("u4", np.concatenate([*strips.values(), number[:0]])),
        "model": ("n", models.of(map(named.__getitem__, zip(of["model"], of["version"], strict=True)))),
        "device": ("n", devices.of(of["device"])),
        "shape": ("n", [shapes.setdefault(each, len(shapes)) for each in of["inputs"]]),
        **_samples(session, numbers),
        "kind": ("u1", kinds.of(of["kind"])),
        "state": ("u1", states.of(_states(spans, tree))),
        "request": ("n", texts.of(of["request_id"])),
        "error": ("n", texts.of(of["error"])),
        **pieces,
        **_marks(spans),
        "named_ns": ("f8", [mark.ns for mark in session.marks]),
        "named_span": ("i4", [numbers.get(mark.span, -1) for mark in session.marks]),
        **_ghosts(layout),
        **_locks(session, numbers),
        "wait_from": ("f8", [begin for begin, _ in waiting]),
        "wait_to": ("f8", [end for _, end in waiting]),
        "curve_ns": ("n", np.concatenate(curves.ns)),
        "curve_level": ("n", np.concatenate(curves.level)),
    }
    joined = [text.encode("utf-8", "replace") for text in texts.shown]
    columns["text_end"] = ("u4", accumulate(map(len, joined)))
    data, where = pack_columns(columns)
    served = {name: key for key, name in named.items()}
    seen = {(each.name, each.version): each for each in session.models}
    return {
        "name": visible(session.name),
        "sender": visible(session.sender),
        "wall": session.wall,
        "dropped": session.dropped,
        "facts": " · ".join(filter(None, facts)),
        "models": [
            {
                "name": visible(name),
                "of": [visible(model), version],
                **asdict(inks[model]),
                "words": {"light": readable(inks[model].light), "dark": readable(inks[model].dark)},
                **_tensors(seen.get((model, version))),
            }
            for name, (model, version) in ((name, served[name]) for name in models.numbers)
        ],
        "notebook": asdict(NOTEBOOK),
        "marks": [visible(mark.name) for mark in session.marks],
        "sources": [_source(source) for source in session.sources],
        "stacks": [[(at.source, at.line, visible(at.function)) for at in stack.lines] for stack in session.stacks],
        "shapes": [_plain_tensors(inputs) for inputs in shapes],
        "lanes": lanes,
        "signs": list(timeline_signs(session, layout).items()),
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


def _ghosts(layout: TimelineLayout) -> dict[str, tuple[str, Any]]:
    of, begin, end, part, parts = zip(*layout.ghosts, strict=True) if layout.ghosts else [()] * 5
    times = {"ghost_from": ("f8", begin), "ghost_to": ("f8", end)}
    return {"ghost_span": ("u4", of), **times, "ghost_part": ("u4", part), "ghost_parts": ("u4", parts)}


def _locks(session: Session, numbers: Mapping[int, int]) -> dict[str, tuple[str, Any]]:
    rows = [(numbers[w.span], *piece, w.queued) for w in lock_waits(session) for piece in w.pieces]
    of, begin, end, queued = zip(*rows, strict=True) if rows else ((), (), (), ())
    return {"lock_span": ("u4", of), "lock_from": ("f8", begin), "lock_to": ("f8", end), "lock_queued": ("u1", queued)}


def path_columns(session: Session, critical: Iterable[Step]) -> dict[str, Any]:
    """Encode a session's critical path for ``widgets/timeline.js``; ``columns`` and ``data`` as in `session_columns`.

    Steps of spans that are not in the session are left out. ``phases`` are the names of phases; ``shares``
    sum the time by model and phase, the largest first: (label, model, ns).
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
    data, where = pack_columns({
        "span": ("i4", [number.get(step.span, -1) for step in steps]),
        "begin": ("f8", [step.begin for step in steps]),
        "end": ("f8", [step.end for step in steps]),
        "phase": ("u1", phases.of(step.phase for step in steps)),
    })  # fmt: skip
    most = [(*key, ns) for key, ns in spent.most_common() if ns >= session.wall / 200]
    shares = [(visible(label), visible(model), ns) for label, model, ns in most]
    return {"columns": where, "data": data, "phases": phases.shown, "shares": shares}


class _Curves:
    """Curves of the number of overlapping intervals, one curve after the other.

    A time is relative to the one before; each curve begins at 0.
    """

    def __init__(self) -> None:
        self.ns: list[Any] = []
        self.level: list[Any] = []
        self._count = 0

    def add(self, begins: Any, ends: Any) -> dict[str, int]:
        at = np.concatenate([begins, ends])
        step = np.repeat([1, -1], len(at) // 2)
        order = np.argsort(at, kind="stable")
        at, level = at[order], np.cumsum(step[order])
        # Keep only the last level of each moment.
        last = np.append(at[1:] != at[:-1], True)[: len(at)]
        at, level = at[last], level[last]
        news = np.diff(level, prepend=0) != 0
        at, level = at[news], level[news]
        self.ns.append(np.diff(at, prepend=0))
        self.level.append(level)
        begin, self._count = self._count, self._count + len(at)
        return {"at": begin, "end": self._count, "most": int(level.max(initial=0))}


_Strip = tuple[int, str, int]  # lane, kind, row


def _strips(panel: Panel, times: dict[str, Any]) -> dict[_Strip, Any]:
    """Return the spans of each strip (a row of a lane), strips from top to bottom, spans from left to right."""
    layout = panel.layout
    lane, row, part, wait = (np.array(of, np.int64) for of in (layout.lane, layout.row, layout.part, layout.wait))
    device, device_row = np.array(layout.device, np.int64), np.array(layout.device_row, np.int64)
    refused = np.array([each.kind == "refused" for each in layout.lanes], bool)[lane]
    crowded = np.array([each.waits > _CROWD for each in layout.lanes], bool)[lane]
    strips: dict[_Strip, Any] = {}
    for kind, which, lanes, rows, began in (
        ("run", (part == 0) & ~refused, lane, row, "started"),
        ("refused", (part == 0) & refused, lane, row, "sent"),
        ("wait", (wait >= 0) & ~crowded, lane, wait, "sent"),
        ("gpu", device >= 0, device, device_row, "started"),
    ):
        chosen = np.flatnonzero(which)
        chosen = chosen[np.lexsort((times[began][chosen], rows[chosen], lanes[chosen]))]
        ends = np.flatnonzero(np.diff(lanes[chosen]) | np.diff(rows[chosen])) + 1
        for strip in np.split(chosen, ends) if len(chosen) else ():
            strips[int(lanes[strip[0]]), kind, int(rows[strip[0]])] = strip
    if layout.lanes and layout.lanes[0].kind == "notebook":
        # Each wait of the notebook is represented by the first request of that wait.
        mine = np.flatnonzero(np.array(layout.parent, np.int64) < 0)
        mine = mine[np.argsort(times["sent"][mine], kind="stable")]
        until = np.maximum.accumulate(times["ended"][mine])
        real = times["ended"][mine] > times["sent"][mine]
        mine, until = mine[real], until[real]
        strips[0, "notebook", 0] = mine[np.append(True, times["sent"][mine][1:] > until[:-1])[: len(mine)]]
    return dict(sorted(strips.items()))


def _strip(panel: Panel, lane: int, kind: str, row: int) -> dict[str, Any]:
    place = panel.places[lane]
    if kind == "wait":
        top, height = place.blocks - 2 - (row + 1) * place.wait, place.wait - 1
    else:
        top, height = place.blocks + row * place.row, place.row - 1
    return {"lane": lane, "what": kind, "top": top, "height": height}


def _waits(panel: Panel, lane: int, times: dict[str, Any]) -> tuple[Any, Any]:
    its = (np.array(panel.layout.lane, np.int64) == lane) & (np.array(panel.layout.wait, np.int64) >= 0)
    return times["sent"][its], times["started"][its]


def _share(
    panel: Panel, lane: int, strips: dict[_Strip, Any], times: dict[str, Any], waiting: Sequence[Interval]
) -> str:
    """Return the fraction of the time in which a lane is busy; for the notebook, in which it does not wait."""
    kind, wall = panel.layout.lanes[lane].kind, max(panel.session.wall, 1)
    if kind in ("refused", "idle"):
        return ""
    if kind == "notebook":
        return f"{1 - total(waiting) / wall:.0%}"
    row = np.concatenate([r for (its, what, _), r in strips.items() if its == lane and what in ("run", "gpu")])
    begins = times["started"][row]
    ends = begins + times["device_ns"][row] if kind == "gpu" else times["ended"][row]
    share = total(union(zip(begins.tolist(), ends.tolist(), strict=True))) / wall
    return "idle" if not share else "<1%" if share < 0.01 else f"{share:.0%}"


def _own(spans: Sequence[Span], tree: SpanTree, layout: TimelineLayout) -> dict[str, tuple[str, Any]]:
    """Return the self times of requests that sent others, as intervals; for a batch, its first span has them.

    An interval is its distance from the end of the previous one (or from the start of the request) and its length.
    """
    counts, gaps, lengths = [0] * len(spans), [], []
    for i, span in enumerate(spans):
        if layout.first[i] != i or span.id not in tree.children:
            continue
        pieces, last = tree.self_time(span.id), span.started
        counts[i] = len(pieces)
        for begin, end in pieces:
            gaps.append(begin - last)
            lengths.append(end - begin)
            last = end
    return {"own_count": ("n", counts), "own_after": ("n", gaps), "own_ns": ("n", lengths)}


def _tensors(seen: ModelSeen | None) -> dict[str, Any]:
    if seen is None:
        return {"inputs": [], "outputs": [], "batches": False}

    inputs, outputs = _plain_tensors(seen.inputs), _plain_tensors(seen.outputs)
    return {"inputs": inputs, "outputs": outputs, "batches": seen.max_batch_size > 0}


def _plain_tensors(tensors: Sequence[TensorSeen]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(visible(tensor.name), tensor.dtype, tensor.dims) for tensor in tensors]


def _samples(session: Session, numbers: Mapping[int, int]) -> dict[str, tuple[str, Any]]:
    rows = [(numbers[each.span], each.stack, each.samples, each.ns, each.waits) for each in session.samples]
    of, stack, samples, time, waits = zip(*rows, strict=True) if rows else [()] * 5
    named = {"span": of, "stack": stack, "count": samples, "ns": time, "waits": waits}
    return {f"sample_{name}": ("n", column) for name, column in named.items()}


def _source(source: Source) -> dict[str, Any]:
    title = source.model if source.version in (0, 1) else f"{source.model} v{source.version}"
    if source.model and not source.execute:
        title = f"{title}, {source.name}"
    text = "\n".join(visible(line.expandtabs()) for line in _LINES.split(source.text.rstrip("\r\n")))
    of = [visible(source.model), source.version]
    return {"title": visible(title or source.name), "text": text, "execute": source.execute, "of": of}


_LINES = re.compile("\r\n|\r|\n")  # the line ends of Python source
_TIMES = ("sent", "queued", "started", "inferred", "ended", "device_ns")
_COUNTS = ("id", "bytes_in", "bytes_out", "batch", "rows", "crossings", "source", "line", "stack")
_FIELDS = (*_TIMES, *_COUNTS, "model", "version", "device", "kind", "state", "request_id", "error", "inputs")


def _states(spans: Sequence[Span], tree: SpanTree) -> list[str]:
    """Return the states of requests as the details show them; one that is not plainly ``ok`` gets a frame."""
    unawaited = tree.unawaited()
    return [UNAWAITED if span.state == "ok" and span.id in unawaited else span.state for span in spans]


def _marks(spans: Sequence[Span]) -> dict[str, tuple[str, Iterable[float]]]:
    final = {"response": 0, "final": 1, "cancelled": 2, "abandoned": 3}
    rows = [(i, mark) for i, span in enumerate(spans) if span.marks for mark in span.marks]
    return {
        "mark_span": ("u4", [i for i, _ in rows]),
        "mark_ns": ("f8", [mark.ns for _, mark in rows]),
        "mark_kind": ("u1", [final.get(mark.kind, 0) for _, mark in rows]),
    }


_AT_ONCE = 3_000  # the most requests for which the critical path is computed in advance


class Timeline(anywidget.AnyWidget):
    """One session, or two on one axis.

    `records`: the sessions, from top to bottom.
    `session`: a `Session`, or an object with one as its ``record``, such as a `Profile`.
    `other`: a second session to draw below it on the same axis, such as the gathered run of a comparison.
    `titled`: whether a single session has its name and figures above it; two always have.
    `selection`: the time range selected in the browser: ``begin`` and ``end`` in ns, and for each of the
        ``sessions`` the number of ``requests`` in flight in that range, how many of these ``failed``, their
        total time ``queued`` and the ``work`` done for them (ns); the same for each of the ``models``, with
        its ``busy`` time instead of ``work``. Empty if nothing is selected.
    `focus`: the request that was clicked or reached by keys: the number of its ``session`` and its span's
        ``id``; empty if there is none.
    """

    _esm = widget_source("timeline.js")
    _css = widget_source("chart.css") + widget_source("timeline.css")

    place = traitlets.Unicode().tag(sync=True)
    report = traitlets.Unicode().tag(sync=True)
    sessions: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    paths: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    wants_paths = traitlets.Bool(False).tag(sync=True)
    lit = traitlets.Bool(False).tag(sync=True)
    titled = traitlets.Bool(True).tag(sync=True)
    selection = traitlets.Dict().tag(sync=True)
    focus = traitlets.Dict().tag(sync=True)

    def __init__(self, session: Any, other: Any = None, *, titled: bool = True) -> None:
        records = [session.record] if other is None else [session.record, other.record]
        inks = model_inks({"", *(span.model for record in records for span in record.spans)})
        self.records: tuple[Session, ...] = tuple(records)
        drawn: list[dict[str, Any]] = []
        for record in records:
            top = drawn[-1]["bottom"] if drawn else 0.0
            drawn.append(session_columns(record, inks, top, titled=len(records) > 1))
        super().__init__(place=new_place(), sessions=drawn, titled=titled)
        if sum(len(record.spans) for record in records) <= _AT_ONCE:
            self._find_paths()

    @traitlets.observe("wants_paths")
    def _find_paths(self, change: Any = None) -> None:
        if self.paths:
            return
        self.paths = [path_columns(record, record.critical_path()) for record in self.records]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> Any:
        text = "\n".join(timeline_lines(*self.records))
        html = output(timeline_block(self.records, widget=self).html, styles="figure")
        return with_view({"text/plain": text, "text/html": html}, self)
