"""The lifetime chart as an interactive widget: hover, zoom, filter and select in the browser.

The browser gets binary columns of numbers, and the texts that the numbers refer to. The widget covers the picture of
the chart; the rest of the report is the same with and without it. Importing this module imports anywidget (the extra
``widgets``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any

import anywidget
import traitlets

from bls_notebook.display import (
    ALARM,
    Names,
    document_html,
    document_text,
    model_inks,
    new_place,
    pack_columns,
    widget_source,
    with_view,
)
from bls_notebook.lifetimes.records import Life, Lifetimes, Maker, Stay, is_left_behind
from bls_notebook.records import size, visible

from .block_facts import device_facts, end_of, holder_text, kind_of, line_text, name_of, owner, sizes_text
from .lifetime_chart import LifeLane, heaviest_first, life_lanes, lines_text, owners_text
from .report import lifetimes_document, summary

_HOW = {"copy": 1, "transfer": 2}


def packed(record: Lifetimes) -> dict[str, Any]:
    """Pack lifetimes for the browser: ``columns`` in ``data``, and the texts and colours in ``info``.

    There is a row for each block in the order of birth.

    ``source`` is the row of the block that it is a copy of, -1 for none. The stays of row ``i`` are those from
    ``stay_at[i]`` to ``stay_at[i + 1]``; ``holder_at`` likewise. ``lane`` is the index of its lane in
    ``info["lanes"]``, and ``row`` its row there, unless the lane is folded. Columns whose names end in an
    underscore are indexes of ``info["words"]``.
    """
    lives = sorted(record.lives, key=lambda life: (life.born, life.id))
    words = Names()
    devices = device_facts(record)
    models = list(dict.fromkeys(life.maker.model for life in lives))
    inks = model_inks(models)
    lanes = life_lanes(record)
    stays = [(life, stay) for life in lives for stay in life.stays]
    holders = [holder for life in lives for holder in life.holders]
    data, columns = pack_columns({
        **_of_lives(lives, words, [facts.name for facts in devices], models, lanes),
        "stay_at": ("u4", accumulate((len(life.stays) for life in lives), initial=0)),
        "stay_ns": ("f8", [stay.ns for _, stay in stays]),
        "stay_owner_": ("u4", words.of(owner(stay.at) for _, stay in stays)),
        "stay_": ("u4", words.of(_stay(life, stay) for life, stay in stays)),
        "holder_at": ("u4", accumulate((len(life.holders) for life in lives), initial=0)),
        "holder_": ("u4", words.of(holder_text(holder) for holder in holders)),
        "remedy_": ("u4", words.of(str(holder.remedy) for holder in holders)),
    })  # fmt: skip
    ranks = {lane: rank for rank, lane in enumerate(heaviest_first(lanes))}
    info = {
        "title": visible(", ".join(summary(record))),
        "end": end_of(record),
        "words": words.shown,
        "lanes": [_lane(lane, ranks[lane]) for lane in lanes],
        "models": [visible(model or "notebook") for model in models],
        "inks": [asdict(inks[model]) for model in models],
        "devices": [
            {"label": visible(each.label), "name": visible(each.name), "total": each.total, "used": each.used}
            for each in devices
        ],
        "alarm": asdict(ALARM),
    }
    return {"data": data, "columns": columns, "info": info}


def _of_lives(
    lives: Sequence[Life], words: Names, devices: list[str], models: list[str], lanes: Sequence[LifeLane]
) -> dict[str, Any]:
    rows = {life.id: row for row, life in enumerate(lives)}
    places = {
        life.id: (number, row)
        for number, lane in enumerate(lanes)
        for row, together in enumerate(lane.rows)
        for life in together
    }
    device_numbers = {name: number for number, name in enumerate(devices)}
    model_numbers = {name: number for number, name in enumerate(models)}
    return {
        "id": ("i4", [life.id for life in lives]),
        "bytes": ("f8", [life.bytes for life in lives]),
        "born": ("f8", [life.born for life in lives]),
        "died": ("f8", [life.died for life in lives]),
        "transfer": ("f8", [life.transfer_ns for life in lives]),
        "device": ("u2", [device_numbers[life.device] for life in lives]),
        "model": ("u2", [model_numbers[life.maker.model] for life in lives]),
        "lane": ("u4", [places[life.id][0] for life in lives]),
        "row": ("u4", [places[life.id][1] for life in lives]),
        "name_": ("u4", words.of(map(name_of, lives))),
        "what_": ("u4", words.of(map(kind_of, lives))),
        "maker_": ("u4", words.of(_maker(life.maker) for life in lives)),
        "line_": ("u4", words.of(line_text(life.line) for life in lives)),
        "source_": ("u4", words.of(life.line.text for life in lives)),
        "source": ("i4", [rows.get(life.source, -1) for life in lives]),
        "how": ("u1", [_HOW.get(life.how, 0) for life in lives]),
        "left": ("u1", list(map(is_left_behind, lives))),
    }


def _lane(lane: LifeLane, rank: int) -> dict[str, Any]:
    return {
        "label": visible(lane.label),
        "line": visible(lines_text(lane.lives)),
        "owners": [visible(owners_text(lives)) for lives in (lane.lives, *lane.rows)],
        "deep": len(lane.rows),
        "rank": rank,
        "size": sizes_text(lane.lives),
        "peak": f"≤ {size(lane.weight[1])}",
    }


def _stay(life: Life, stay: Stay) -> str:
    role = {"view": "viewed by", "output": "response to"}.get(stay.role, "input of")
    return f"{role} {_maker(stay.at)}" + (f" as {stay.tensor}" if stay.tensor != name_of(life) else "")


def _maker(maker: Maker) -> str:
    """Return the model that made or received a block, with version, request, instance, span and cell."""
    facts = [
        owner(maker) + (f" version {maker.version}" if maker.version > 1 else ""),
        f"request {maker.request}" if maker.request else "",
        f"id {maker.request_id}" if maker.request_id else "",
        f"instance {maker.instance}" if maker.instance else "",
        f"span {maker.span} of the profile" if maker.span else "",
        maker.cell,
    ]
    return ", ".join(fact for fact in facts if fact)


class LifetimesWidget(anywidget.AnyWidget):
    """The interactive chart of lifetimes, its ``record``; HTML and text (`width` columns) without widgets.

    ``selected`` is the ``id`` of the clicked block, 0 for none; it can be set and observed. ``life`` is that block.
    """

    _esm = widget_source("lifetimes.js")
    _css = widget_source("chart.css") + widget_source("lifetimes.css")

    data = traitlets.Bytes().tag(sync=True)
    columns: Any = traitlets.List().tag(sync=True)
    info = traitlets.Dict().tag(sync=True)
    place = traitlets.Unicode().tag(sync=True)
    report = traitlets.Unicode().tag(sync=True)
    selected = traitlets.Int(0).tag(sync=True)

    def __init__(self, record: Lifetimes, width: int = 100) -> None:
        self.record = record
        self._width = width
        self._by_id = {life.id: life for life in record.lives}
        super().__init__(**packed(record), place=new_place())

    @property
    def life(self) -> Life | None:
        return self._by_id.get(self.selected)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        document = lifetimes_document(self.record, widget=self)
        return with_view(
            {"text/plain": document_text(document, self._width), "text/html": document_html(document)}, self
        )
