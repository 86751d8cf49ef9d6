"""What a cell left behind, in sentences: how much, where, who holds it, and what to type to let go."""

from __future__ import annotations

from bls_notebook.display.units import count, size
from bls_notebook.lifetimes.records import Lifetimes

from .facts import Held, device_label, held, line_text, owner

_MOST, _NAMED = 5, 40  # sentences of their own; names in the last one


def left_behind(record: Lifetimes) -> list[str]:
    """Return a warning for each holder of memory that the cell left behind, the largest first.

    What many small holders have is one sentence at the end.
    """
    groups = held(record.left_behind())
    said = [_sentence(record, group) for group in groups[:_MOST]]
    if len(groups) > _MOST:
        rest = groups[_MOST:]
        said.append(
            f"left behind by this cell: {size(sum(group.bytes for group in rest))} more, held by "
            f"{count(len(rest), 'other')}: {', '.join(group.text for group in rest[:_NAMED])}"
            + (f" and {len(rest) - _NAMED:,} more" if len(rest) > _NAMED else "")
        )
    if record.dropped_bytes:
        said.append(
            f"left behind by this cell: {size(record.dropped_bytes)} in blocks beyond the limit of the record"
        )
    return said


def _sentence(record: Lifetimes, group: Held) -> str:
    devices = list(dict.fromkeys(device_label(record, life.device) for life in group.lives))
    on = f" on {' and '.join(devices)}" if len(devices) < 3 else f" on {len(devices)} devices"
    blocks = f" in {count(len(group.lives), 'block')}" if len(group.lives) > 1 else ""
    remedy = f"; to let go: {group.remedy}" if group.remedy else ""
    held_by = f", held by {group.text}{remedy}"
    return f"left behind by this cell: {size(group.bytes)}{on}{blocks}{_made(group)}{held_by}"


def _made(group: Held) -> str:
    """Where in whose code they were made, if that is one line."""
    places = {(owner(life.maker), line_text(life.line)) for life in group.lives}
    model, line = places.pop()
    return f", made by {model} in {line}" if line and not places else ""
