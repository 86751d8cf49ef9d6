"""A session as the browser gets it: columns of numbers as bytes, and the few names that they refer to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from bls_notebook.display.browser.column_bytes import pack_columns
from bls_notebook.display.palette import Ink
from bls_notebook.display.timeline.lanes import Layout, lay_out
from bls_notebook.observe.analysis.critical_path import Step
from bls_notebook.observe.records.session import Session, Span
from bls_notebook.observe.visible import visible

__all__ = ["path_columns", "session_columns"]


class _Names:
    """Numbers for texts, in the order in which they come."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, texts: Iterable[str]) -> list[int]:
        numbers = self.numbers
        return [numbers.setdefault(text, len(numbers)) for text in texts]

    @property
    def shown(self) -> list[str]:
        return [visible(text) for text in self.numbers]


def session_columns(session: Session, inks: dict[str, Ink], layout: Layout | None = None) -> dict[str, Any]:
    """Encode a session for ``widgets/timeline.js``.

    Parameters
    ----------
    session : Session
        What was recorded.
    inks : dict of str to Ink
        The ink of each model by its name.
    layout : Layout, optional
        Where the spans lie, if that is known already.

    Returns
    -------
    dict
        JSON-able but for ``data`` (the columns, as `pack_columns` lays them out) and ``texts`` (request IDs
        and errors in UTF-8, one after the other, ending where the column ``text_end`` says), which are bytes.
        All text is made visible, so that none of it can pose as something else.
    """
    spans = session.spans
    layout = layout or lay_out(session)
    models, kinds, states, devices, texts = (_Names() for _ in range(5))
    texts.of([""])
    served = {(span.model, span.version) for span in spans}
    several = {name for name, count in Counter(name for name, _ in served).items() if count > 1}

    def title(name: str, version: int) -> str:
        return f"{name} v{version}" if name in several else name

    lanes = [
        {
            "kind": lane.kind,
            "label": visible(lane.label),
            "name": visible(lane.name),
            "model": -1 if lane.kind == "gpu" else models.of([title(lane.model, lane.version)])[0],
            "rows": lane.rows,
            "waits": lane.waits,
        }
        for lane in layout.lanes
    ]
    inks_of = {title(name, version): inks[name] for name, version in served}
    # One pass in C over the fields: a session may hold 100,000 spans.
    plain = list(zip(*map(attrgetter(*_FIELDS), spans), strict=True)) or [()] * len(_FIELDS)
    of = dict(zip(_FIELDS, plain, strict=True))
    columns: dict[str, tuple[str, Iterable[float]]] = {
        **{name: ("f8", of[name]) for name in _FLOATS},
        **{name: ("u4", map(_most, of[name])) for name in _COUNTS},
        "parent": ("i4", layout.parent),
        "lane": ("u4", layout.lane),
        "row": ("u4", layout.row),
        "wait": ("i4", layout.wait),
        "part": ("u4", layout.part),
        "parts": ("u4", layout.parts),
        "gpu": ("i4", layout.device),
        "gpu_row": ("u4", layout.device_row),
        "model": ("u4", models.of(map(title, of["model"], of["version"]))),
        "device": ("u4", devices.of(of["device"])),
        "kind": ("u1", kinds.of(of["kind"])),
        "state": ("u1", states.of(of["state"])),
        "request": ("u4", texts.of(of["request_id"])),
        "error": ("u4", texts.of(of["error"])),
        **_marks(spans),
    }
    joined = [text.encode("utf-8", "replace") for text in texts.shown]
    columns["text_end"] = ("u4", _running(len(text) for text in joined))
    data, where = pack_columns(columns)
    return {
        "name": visible(session.name),
        "wall": session.wall,
        "dropped": session.dropped,
        "models": [_model(name, inks_of[name]) for name in models.numbers],
        "lanes": lanes,
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
        As that of `session_columns`: ``columns``, ``data`` and the names of the ``phases``.
    """
    number = {span.id: i for i, span in enumerate(session.spans)}
    steps = [step for step in critical if step.span in number or not step.span]
    phases = _Names()
    data, where = pack_columns(
        {
            "span": ("i4", [number.get(step.span, -1) for step in steps]),
            "behind": ("i4", [number.get(step.behind, -1) for step in steps]),
            "begin": ("f8", [step.begin for step in steps]),
            "end": ("f8", [step.end for step in steps]),
            "phase": ("u1", phases.of(step.phase for step in steps)),
        }
    )
    return {"columns": where, "data": data, "phases": phases.shown}


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


def _model(name: str, ink: Ink) -> dict[str, str]:
    return {"name": visible(name), "light": ink.light, "dark": ink.dark, "hatch": ink.hatch}


def _running(lengths: Iterable[int]) -> list[int]:
    total, ends = 0, []
    for length in lengths:
        total += length
        ends.append(total)
    return ends
