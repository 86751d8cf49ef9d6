"""Save lifetimes as a PyTorch memory snapshot, for pytorch.org/memory_viz and `torch.cuda._memory_viz`.

A device is one segment: blocks get addresses in it, and a block reuses the address of a freed block of its
size. The format numbers devices: GPUs first, then the CPU.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bls_notebook.records.record_file import write_file

from .lives import Life

_PROTOCOL = 4  # the newest that the page can read
_BASE = 1 << 40  # of the addresses of a device


def save_memory_viz(lives: Sequence[Life], path: str | Path) -> Path:
    """Write a snapshot to a file, and return its path; raise a FileError where that cannot be."""
    return write_file(Path(path), pickle.dumps(memory_viz(lives), _PROTOCOL), "lifetimes")


def memory_viz(lives: Iterable[Life]) -> dict[str, Any]:
    """Return the lives of a track as a snapshot: what is alive at the end, and the events that led there."""
    devices: dict[str, list[Life]] = {}
    for life in lives:
        if life.bytes:
            devices.setdefault(life.device, []).append(life)
    segments, traces = [], []
    for number, name in enumerate(sorted(devices, key=lambda name: (name == "cpu", len(name), name))):
        events, segment = _device(number, devices[name])
        traces.append(events)
        segments.append(segment)
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}}


def _device(number: int, lives: Sequence[Life]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    start = top = (number + 1) * _BASE
    free: dict[int, list[int]] = {}
    places: dict[int, int] = {}
    events = []
    for ns, born, life in _order(lives):
        if born:
            room = free.get(life.bytes)
            places[life.id] = room.pop() if room else top
            top = max(top, places[life.id] + life.bytes)
        else:
            free.setdefault(life.bytes, []).append(places[life.id])
        about = {"addr": places[life.id], "size": life.bytes, "stream": 0, "time_us": ns // 1000}
        for action in ("alloc",) if born else ("free_requested", "free_completed"):
            events.append({"action": action, **about, "frames": _frames(life)})
        if not born:
            del places[life.id]
    alive = sorted((places[life.id], life) for life in lives if life.id in places)
    used = sum(life.bytes for life in lives if life.id in places)
    return events, {
        "device": number, "address": start, "total_size": top - start, "allocated_size": used,
        "active_size": used, "requested_size": used, "stream": 0, "segment_type": "large",
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
        "blocks": list(_blocks(alive, start, top)),
    }  # fmt: skip


def _order(lives: Iterable[Life]) -> Iterator[tuple[int, bool, Life]]:
    """Births and deaths in their order; a block that another one follows at once makes room for it."""
    events = [(life.born, 1, life.id, life) for life in lives]
    events += [(life.died, 2 * (life.died == life.born), life.id, life) for life in lives if life.died >= 0]
    for ns, kind, _, life in sorted(events, key=lambda event: event[:3]):
        yield ns, kind == 1, life


def _blocks(alive: Sequence[tuple[int, Life]], start: int, top: int) -> Iterator[dict[str, Any]]:
    """The blocks of a segment without gaps: those that are alive, and the room between them."""
    at = start
    for address, life in alive:
        if address > at:
            yield {"address": at, "size": address - at, "requested_size": 0, "state": "inactive", "frames": []}
        yield {
            "address": address, "size": life.bytes, "requested_size": life.bytes, "state": "active_allocated",
            "frames": _frames(life),
        }  # fmt: skip
        at = address + life.bytes
    if top > at:
        yield {"address": at, "size": top - at, "requested_size": 0, "state": "inactive", "frames": []}


def _frames(life: Life) -> list[dict[str, Any]]:
    """Innermost first: the line that made it, the model and its request, the cell."""
    line, maker = life.line, life.maker
    name = f"{life.tensor or life.kind} {life.datatype} {list(life.shape) if life.shape else ''}".rstrip()
    frames = [(line.file, line.line, line.function or line.text)] if line.line else []
    frames.append((maker.model or "notebook", maker.request, f"{life.how} {name} on {life.device}"))
    if maker.cell:
        frames.append((maker.cell, 0, "cell"))
    return [{"filename": file, "line": number, "name": what} for file, number, what in frames]
