"""Flame graph of each device's memory peak: models, functions and lines, as wide as their bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bls_notebook import display as text
from bls_notebook.display import DIM, INK, Ink, Look, Pen, clip, model_inks, readable, width_of
from bls_notebook.lifetimes.records import Lifetimes, LineBytes
from bls_notebook.records import count, duration, grouped, size, visible

from .block_facts import device_facts, line_text

_ROW, _HEAD, _GAP, _SIDE = 23.0, 24.0, 14.0, 2.0  # px
_LOOKS = (1.0, 0.55, 0.28)  # of models, functions and lines
_WHOLE = 1000.0  # the width of a device's peak
_DEVICES, _LINES = 4, 12
_LEAST = 1000  # a device whose peak is this many times smaller than the largest one is not shown


@dataclass(frozen=True, slots=True)
class FlameBox:
    """A box: the ``bytes`` of a model, a function or a line (``depth`` 0, 1, 2); ``start`` bytes are left of it."""

    depth: int
    start: int
    bytes: int
    model: str
    label: str
    source: str
    about: str


@dataclass(frozen=True, slots=True)
class Flame:
    """The peak of one device as boxes, from left to right."""

    device: str
    title: str
    bytes: int
    lines: tuple[LineBytes, ...]
    boxes: tuple[FlameBox, ...]


def flames(record: Lifetimes) -> list[Flame]:
    """Return the peaks of the devices with most memory, GPUs first; none if no line is known."""
    if not any(life.line.line for life in record.lives):
        return []
    peaks = []
    known = device_facts(record)
    least = max(each.peak for each in known) / _LEAST
    for facts in [each for each in known if each.peak > least][:_DEVICES]:
        lines = record.lines(facts.name)
        title = f"{facts.label}: {size(facts.peak)} at {duration(facts.peak_ns / 1e9)}"
        peaks.append(Flame(facts.name, title, facts.peak, lines, tuple(_boxes(lines))))
    return peaks


def _function(line: LineBytes) -> str:
    return f"{line.line.function}()" if line.line.function else "" if line.line.line else line.what


def _boxes(lines: Sequence[LineBytes], depth: int = 0, start: int = 0) -> Iterator[FlameBox]:
    """Yield the boxes of a depth, the largest first, each followed by the boxes that it contains."""
    keys = (lambda each: each.model, _function, lambda each: (each.line.file, each.line.line))
    groups: dict[object, list[LineBytes]] = grouped((keys[depth](each), each) for each in lines)
    for group in sorted(groups.values(), key=lambda group: -sum(each.bytes for each in group)):
        first, total = group[0], sum(each.bytes for each in group)
        blocks = count(sum(each.blocks for each in group), "block")
        label = (first.model or "notebook", _function(first) or "its own lines", line_text(first.line))[depth]
        tensors = ", ".join(dict.fromkeys(name for each in group for name in each.tensors))
        about = text.facts(size(total), blocks, tensors)
        if label:
            yield FlameBox(depth, start, total, first.model, label, first.line.text if depth == 2 else "", about)
        if depth < 2:
            yield from _boxes(group, depth + 1, start)
        start += total


def flame_svg(record: Lifetimes) -> str:
    """Draw the flame graph as an SVG document as wide as its page; empty if no line is known."""
    peaks = flames(record)
    if not peaks:
        return ""
    pen = Pen(_WHOLE, _SIDE, _SIDE)
    pen.ticks = [(0, ""), (_WHOLE, "")]
    inks = model_inks(line.model for flame in peaks for line in flame.lines)
    top = 4.0
    for flame in peaks:
        pen.words(flame.title, 0, top + 9, bold=True)
        pen.words("width: bytes", _WHOLE, top + 9, align="end", size=10, colour=DIM)
        top += _HEAD
        for box in flame.boxes:
            _draw_box(pen, box, inks[box.model], _WHOLE / flame.bytes, top + _ROW * box.depth)
        top += 3 * _ROW + _GAP
    return pen.document(top, 0)


def _draw_box(pen: Pen, box: FlameBox, ink: Ink, unit: float, top: float) -> None:
    left, wide = box.start * unit, box.bytes * unit
    pen.boxes([(left, top, wide, _ROW - 2)], Look(ink.light, _LOOKS[box.depth], over="" if box.depth else ink.hatch))
    room = int((wide * pen.plot / _WHOLE - 10) / width_of("x"))
    if room < min(len(box.label), 6):
        return
    words = f"{box.label}  {size(box.bytes)}"
    if room < len(words):
        words = box.label
    elif room > len(words) + 10 and box.source:
        words = f"{words}   {box.source}"
    colour = INK if box.depth else readable(ink.light)
    pen.words(clip(words, room), left, top + _ROW / 2 - 1, right=5, colour=colour)


def flame_lines(record: Lifetimes, *, width: int = 100) -> list[str]:
    """Return the flame graph as lines of text: a table of code lines, the largest first."""
    shown: list[str] = []
    for flame in flames(record):
        rows = [
            [each.model or "notebook", line_text(each.line) or each.what, size(each.bytes),
             f"{each.bytes / flame.bytes:.0%}", each.line.text]
            for each in flame.lines[:_LINES]
        ]  # fmt: skip
        more = len(flame.lines) - len(rows)
        shown += [
            f"  by line at the peak of {visible(flame.title)}",
            *text.table(rows, right="  rr", width=width, most=28),
        ]
        shown += [f"  and {count(more, 'more line')}"] if more > 0 else []
    return shown
