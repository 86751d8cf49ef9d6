"""Figures and words about memory blocks: bytes over time, the peak, owners, leaks of a cell. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bls_notebook.lifetimes.allocation_table import ITEM_BYTES
from bls_notebook.lifetimes.records import (
    DeviceSeen,
    Holder,
    KeptGrowth,
    Life,
    Lifetimes,
    Maker,
    WorkerMemory,
    is_left_behind,
    kind_of_growth,
)
from bls_notebook.profiling.code_lines import CodeLine
from bls_notebook.records import count, grouped, shape, size

# If a block has several holders, the first in this order is named: the user can release that one most easily.
_ORDER = ("variable", "attribute", "response", "request", "iterator", "frame", "unknown")
_WORDS = {
    "response": "a response",
    "request": "a request",
    "iterator": "an iterator of responses",
    "frame": "a running function",
}
_INDEX = re.compile(r"(?:\[[^\[\]]*\])+$")
_MOST, _NAMED = 5, 40  # warnings about one holder each; names in the last warning
UNKNOWN = "an unknown owner"
_UNEXPLAINED = 16 << 20  # bytes of the process's growth that are worth a warning


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Blocks in one row of a table or one sentence, with their holders in words."""

    lives: tuple[Life, ...]
    held_by: str = ""
    remedy: str = ""

    @property
    def bytes(self) -> int:
        return sum(life.bytes for life in self.lives)

    @property
    def label(self) -> str:
        """The name of the first block, and the number of blocks."""
        name = name_of(self.lives[0])
        return name if len(self.lives) == 1 else f"{name} ×{len(self.lives):,}"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device during a recording.

    ``used`` are the bytes in use before the recording; no other figure includes them. ``left`` are the bytes left
    behind, in ``left_blocks``. ``at_peak`` are the blocks alive at the peak, grouped by name and model, largest first.
    """

    name: str
    label: str
    total: int
    used: int
    blocks: int
    peak: int
    peak_ns: int
    left: int
    left_blocks: int
    at_peak: Sequence[BlockGroup]


def name_of(life: Life) -> str:
    """Return the name of a block: its tensor, or the line that made it."""
    unnamed = "allocation" if life.kind == "allocation" else "unnamed"
    return life.tensor or line_text(life.line) or unnamed


def line_text(line: CodeLine) -> str:
    """Return a line of code as ``execute:31``; empty if unknown."""
    if not line.line:
        return ""
    return f"{line.function}:{line.line}" if line.function else f"line {line.line}"


def kind_of(life: Life) -> str:
    """Return type and shape of a block, ``FP32 [4,3]``, of a view ``part: FP32 [4]``; empty if unknown."""
    kind = f"{life.datatype} {shape(life.shape) if life.shape else ''}".strip()
    itemsize = ITEM_BYTES.get(life.datatype, 0)
    return f"part: {kind}" if itemsize and math.prod(life.shape) * itemsize < life.bytes else kind


def sizes_text(lives: Iterable[Life]) -> str:
    """Return the size of blocks in words; of several sizes the largest, as ``≤ 4 MiB``."""
    sizes = {life.bytes for life in lives}
    return f"{'≤ ' if len(sizes) > 1 else ''}{size(max(sizes))}"


def owner(maker: Maker) -> str:
    """Return the name of the model that made or has a block."""
    return maker.model or "notebook"


def end_of(record: Lifetimes) -> int:
    """Return the end of the recording (ns), not before its last event."""
    return max([1, record.wall, *(max(life.born, life.died) for life in record.lives)])


def device_label(record: Lifetimes, name: str) -> str:
    """Return a device's name, with the word "simulated" if it applies."""
    simulated = any(seen.simulated for seen in record.devices if seen.name == name)
    return f"{name} (simulated)" if simulated and "simulated" not in name else name


def sums_text(groups: Sequence[BlockGroup], most: int = 3) -> str:
    """Return the largest groups in words: ``leaky/STATES ×4 256 MiB, IMAGE 64 MiB, +3 more``."""
    shown = []
    for group in groups[:most]:
        model = group.lives[0].maker.model
        shown.append(f"{model + '/' if model else ''}{group.label} {size(group.bytes)}")
    return ", ".join([*shown, f"+{len(groups) - most} more"] if len(groups) > most else shown)


def device_facts(record: Lifetimes) -> list[DeviceFacts]:
    """Return the facts of each device of a recording, GPUs first."""
    devices = {life.device: DeviceSeen(life.device) for life in record.lives} | {
        device.name: device for device in record.devices
    }
    facts = [_facts(record, device) for device in devices.values()]
    return sorted(facts, key=lambda each: (each.name.startswith("cpu"), each.name))


def _facts(record: Lifetimes, device: DeviceSeen) -> DeviceFacts:
    lives = [life for life in record.lives if life.device == device.name]
    peak = record.peak(device.name)
    names = grouped(((name_of(life), life.maker.model), life) for life in (peak.lives if peak.bytes else ()))
    groups = {key: BlockGroup(tuple(blocks)) for key, blocks in names.items()}
    left = [life.bytes for life in lives if is_left_behind(life)]
    return DeviceFacts(
        device.name,
        device_label(record, device.name),
        device.total,
        device.used,
        len(lives),
        peak.bytes,
        peak.ns,
        sum(left),
        len(left),
        [groups[key] for key in sorted(groups, key=lambda key: (-groups[key].bytes, key))],
    )


def holder_text(holder: Holder) -> str:
    """Return a holder in words: a variable or attribute is its name."""
    if holder.kind in ("variable", "attribute") and holder.name:
        return holder.name
    words = _WORDS.get(holder.kind, "" if holder.kind == "unknown" else holder.kind)
    return " ".join(part for part in (words, holder.name) if part) or UNKNOWN


def held(lives: Iterable[Life]) -> list[BlockGroup]:
    """Group blocks by all of their holders, the largest first; ``kept[0]`` and ``kept[1]`` are one holder."""
    groups: dict[tuple[tuple[str, str], ...], list[Life]] = {}
    for life in lives:
        roots = ((each.kind, _INDEX.sub("", each.name) or each.name) for each in named_holders(life))
        groups.setdefault(tuple(dict.fromkeys(roots)), []).append(life)
    result = []
    for kinds, own in groups.items():
        every = {tuple(holder_text(each) for each in named_holders(life)) for life in own}
        texts = every.pop() if len(every) == 1 else [holder_text(Holder(*each)) for each in kinds]
        result.append(BlockGroup(tuple(own), " and ".join(texts), _remedy(own)))
    return sorted(result, key=lambda group: (-group.bytes, group.held_by))


def named_holders(life: Life) -> list[Holder]:
    """Return the variables and attributes that keep a block alive, by name; without any, the first other holder."""
    named = [each for each in life.holders if each.kind in ("variable", "attribute") and each.name]
    known = {kind: place for place, kind in enumerate(_ORDER)}
    in_order = sorted(life.holders, key=lambda each: known.get(each.kind, len(known)))
    return sorted(named, key=lambda each: (known[each.kind], each.name)) or in_order[:1] or [Holder("unknown")]


def alive_kinds(record: Lifetimes) -> list[BlockGroup]:
    """Group the blocks alive at the end by name, type, device, maker and holder, the largest first."""
    result = []
    for group in held(record.alive()):
        kinds = grouped(((name_of(x), x.datatype, x.shape, x.device, x.maker.model), x) for x in group.lives)
        result += [BlockGroup(tuple(v), held(v)[0].held_by if len(v) == 1 else group.held_by) for v in kinds.values()]
    return sorted(result, key=lambda group: -group.bytes)


def _remedy(lives: list[Life]) -> str:
    remedies = list(dict.fromkeys(str(each.remedy) for life in lives for each in named_holders(life) if each.remedy))
    return "; ".join(remedies) if len(remedies) < 3 else f"{remedies[0]} (and {len(remedies) - 1:,} like it)"


def left_behind(record: Lifetimes) -> list[str]:
    """Return a warning for each holder of memory that the cell left behind, the largest first.

    The last warning sums up many small holders.
    """
    groups = held(record.left_behind())
    said = [_warning(record, group) for group in groups[:_MOST]]
    rest = groups[_MOST:]
    if rest:
        said.append(
            f"left behind by this cell: {size(sum(group.bytes for group in rest))} more, held by "
            f"{count(len(rest), 'other')}: {', '.join(group.held_by for group in rest[:_NAMED])}"
            + (f" and {len(rest) - _NAMED:,} more" if len(rest) > _NAMED else "")
        )
    if record.dropped_bytes:
        said.append(f"left behind by this cell: {size(record.dropped_bytes)} in blocks beyond the limit")
    return said


def outside_of_tensors(record: Lifetimes) -> list[str]:
    """Return warnings about memory that no tensor shows: of models, and of the whole process."""
    said = []
    if record.kept:
        owners = [_kept(each) for each in record.kept[:_MOST]]
        owners += [f"{len(record.kept) - _MOST} more"] if record.kept[_MOST:] else []
        remedies = list(dict.fromkeys(str(each.remedy) for each in record.kept if each.remedy))
        remedy = f"; to release: {'; '.join(remedies[:2])}" if remedies else ""
        total = size(sum(each.bytes for each in record.kept))
        said.append(f"models keep {total} more {kind_of_growth(record.kept)}: {', '.join(owners)}{remedy}")
    explained = sum(each.bytes for each in record.kept if not each.instance) + record.bytes("cpu")
    if record.process_growth - explained >= _UNEXPLAINED:
        said.append(
            f"the process has {size(record.process_growth)} more than before, of which tensors and models explain "
            f"{size(explained)}: the rest is in libraries, threads or objects that no name leads to, or it is free and "
            "not yet returned to the system"
        )
    return [*said, *filter(None, (_of_worker(record, worker) for worker in record.workers))]


def _of_worker(record: Lifetimes, worker: WorkerMemory) -> str:
    kept = sum(each.bytes for each in record.kept if each.instance == worker.instance)
    if not worker.known:
        return (
            f"what {worker.instance} keeps is unknown: its process did not answer, because native code keeps the GIL; "
            f"the process has {size(worker.growth)} more than before"
        )
    if worker.growth - kept < _UNEXPLAINED:
        return ""
    return (
        f"the process of {worker.instance} has {size(worker.growth)} more than before, {size(worker.bytes)} in all; of "
        f"the growth its model keeps {size(kept)}: the rest is in libraries, or free and not yet returned to the system"
    )


def _kept(growth: KeptGrowth) -> str:
    lines = ", ".join(line_text(line) for line in growth.lines)
    return f"{growth.owner or UNKNOWN} {size(growth.bytes)}{f' (added in {lines})' if lines else ''}"


def _warning(record: Lifetimes, group: BlockGroup) -> str:
    devices = list(dict.fromkeys(device_label(record, life.device) for life in group.lives))
    on = " and ".join(devices) if len(devices) < 3 else f"{len(devices)} devices"
    blocks = f" in {count(len(group.lives), 'block')}" if len(group.lives) > 1 else ""
    (model, line), *others = {(owner(life.maker), line_text(life.line)) for life in group.lives}
    made = f", made by {model} in {line}" if line and not others else ""
    remedy = f"; to release: {group.remedy}" if group.remedy else ""
    return f"left behind by this cell: {size(group.bytes)} on {on}{blocks}{made}, held by {group.held_by}{remedy}"
