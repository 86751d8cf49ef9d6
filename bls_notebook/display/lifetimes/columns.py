"""A memory track for the browser: columns of numbers as bytes, and the words that they refer to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bls_notebook.display.browser.column_bytes import pack_columns
from bls_notebook.display.lifetimes.facts import device_facts, end_of, holder_text, name_of, owner
from bls_notebook.display.lifetimes.left_behind import left_behind
from bls_notebook.display.lifetimes.report import summary
from bls_notebook.display.palette import ALARM, Ink, device_ink
from bls_notebook.display.units import shape
from bls_notebook.observe.analysis.memory_use import is_left_behind
from bls_notebook.observe.records.lifetimes import Life, Lifetimes, Maker
from bls_notebook.observe.visible import visible

__all__ = ["Packed", "packed"]

_HOW = {"copy": 1, "transfer": 2}


@dataclass(frozen=True, slots=True)
class Packed:
    """What the browser gets: bytes, where the columns are in them, and words and colours."""

    data: bytes
    columns: list[tuple[str, str, int, int]]
    info: dict[str, Any]


class _Words:
    """Texts, each once; a column has their numbers."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(visible(text))
        return number


def packed(record: Lifetimes) -> Packed:
    """Pack a memory track.

    Parameters
    ----------
    record : Lifetimes

    Returns
    -------
    Packed
        A row for each life in the order of birth. ``source`` is the row of the block that it is a copy of,
        -1 for none. Stays and holders follow one another; those of row ``i`` are from ``stay_at[i]`` to
        ``stay_at[i + 1]``, and ``holder_at`` likewise. Columns whose names end in an underscore are numbers
        of words in ``info["words"]``.
    """
    lives = sorted(record.lives, key=lambda life: (life.born, life.id))
    words = _Words()
    devices = device_facts(record)
    models = list(dict.fromkeys(life.maker.model for life in lives))
    data, columns = pack_columns({
        **_of_lives(lives, words, [facts.name for facts in devices], models),
        **_of_stays(lives, words),
        **_of_holders(lives, words),
    })  # fmt: skip
    title, *facts = summary(record)
    info = {
        "title": visible(title),
        "facts": [visible(fact) for fact in facts],
        "end": end_of(record),
        "words": words.texts,
        "models": [visible(model or "notebook") for model in models],
        "devices": [
            {
                "label": visible(each.label),
                "total": each.total,
                "used": each.used,
                **_ink(device_ink(each.name)),
            }
            for each in devices
        ],
        "alarm": _ink(ALARM),
        "warnings": [visible(text) for text in left_behind(record)],
    }
    return Packed(data, columns, info)


def _ink(ink: Ink) -> dict[str, str]:
    return {"light": ink.light, "dark": ink.dark, "hatch": ink.hatch[:1]}


def _of_lives(lives: Sequence[Life], words: _Words, devices: list[str], models: list[str]) -> dict[str, Any]:
    rows = {life.id: row for row, life in enumerate(lives)}
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
        "name_": ("u4", [words(name_of(life)) for life in lives]),
        "what_": ("u4", [words(_what(life)) for life in lives]),
        "maker_": ("u4", [words(_maker(life.maker)) for life in lives]),
        "source": ("i4", [rows.get(life.source, -1) for life in lives]),
        "how": ("u1", [_HOW.get(life.how, 0) for life in lives]),
        "left": ("u1", [is_left_behind(life) for life in lives]),
    }


def _of_stays(lives: Sequence[Life], words: _Words) -> dict[str, Any]:
    stays = [stay for life in lives for stay in life.stays]
    return {
        "stay_at": ("u4", _starts([len(life.stays) for life in lives])),
        "stay_ns": ("f8", [stay.ns for stay in stays]),
        "stay_owner_": ("u4", [words(owner(stay.at)) for stay in stays]),
        "stay_maker_": ("u4", [words(_maker(stay.at)) for stay in stays]),
        "stay_tensor_": ("u4", [words(stay.tensor) for stay in stays]),
        "stay_role_": ("u4", [words(stay.role) for stay in stays]),
    }


def _of_holders(lives: Sequence[Life], words: _Words) -> dict[str, Any]:
    holders = [holder for life in lives for holder in life.holders]
    return {
        "holder_at": ("u4", _starts([len(life.holders) for life in lives])),
        "holder_": ("u4", [words(holder_text(holder)) for holder in holders]),
        "holder_kind_": ("u4", [words(holder.kind) for holder in holders]),
        "remedy_": ("u4", [words(holder.remedy) for holder in holders]),
    }


def _starts(counts: Sequence[int]) -> list[int]:
    starts = [0]
    for number in counts:
        starts.append(starts[-1] + number)
    return starts


def _what(life: Life) -> str:
    return f"{life.datatype} {shape(life.shape) if life.shape else ''}".strip()


def _maker(maker: Maker) -> str:
    """Return who made or has a block, with all that is known of it."""
    facts = [
        owner(maker) + (f" version {maker.version}" if maker.version > 1 else ""),
        f"request {maker.request}" if maker.request else "",
        f"id {maker.request_id}" if maker.request_id else "",
        f"instance {maker.instance}" if maker.instance else "",
        f"span {maker.span} of the profile" if maker.span else "",
        maker.cell,
    ]
    return ", ".join(fact for fact in facts if fact)
