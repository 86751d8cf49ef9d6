"""Figures and words about memory blocks: bytes over time, the peak, owners, leaks of a cell. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bls_notebook.display.units import count, shape, size
from bls_notebook.lifetimes.records import CodeLine, DeviceSeen, Holder, Life, Lifetimes, Maker, is_left_behind

# Who is named first where several hold a block: the one that a person can do something about.
_ORDER = ("variable", "attribute", "response", "request", "iterator", "capsule", "view", "frame", "unknown")
_WORDS = {
    "response": "a response",
    "request": "a request",
    "iterator": "an iterator of responses",
    "capsule": "a DLPack capsule",
    "view": "a view of it",
    "frame": "a running function",
}
_INDEX = re.compile(r"(?:\[[^\[\]]*\])+$")
UNKNOWN = "nothing that was found"


@dataclass(frozen=True, slots=True)
class Sum:
    """Several blocks of one name and maker: how many, and their bytes together."""

    name: str
    model: str
    blocks: int
    bytes: int

    @property
    def label(self) -> str:
        """The name after its model's, and how many there are."""
        name = f"{self.model}/{self.name}" if self.model else self.name
        return name if self.blocks == 1 else f"{name} ×{self.blocks:,}"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device during a track.

    ``used`` is what was in use there before the track; it is in none of the other figures. ``steps`` are (ns,
    bytes, bytes of blocks that were left behind), each from its time on; the first is at 0. ``left`` are the
    bytes left behind, in ``left_blocks``. ``at_peak`` is what was alive at the peak, largest first.
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
    steps: tuple[tuple[int, int, int], ...]
    at_peak: tuple[Sum, ...]


@dataclass(frozen=True, slots=True)
class Alive:
    """Blocks of one kind that were alive at the end: of one name, type, device, maker and holder."""

    lives: tuple[Life, ...]
    held_by: str

    @property
    def bytes(self) -> int:
        """How many bytes they have."""
        return sum(life.bytes for life in self.lives)

    @property
    def label(self) -> str:
        """Their name, and how many there are."""
        name = name_of(self.lives[0])
        return name if len(self.lives) == 1 else f"{name} ×{len(self.lives):,}"


@dataclass(frozen=True, slots=True)
class OwnedBlocks:
    """Blocks that the same variables, attributes or other holders kept alive, in words."""

    text: str
    remedy: str
    lives: tuple[Life, ...]

    @property
    def bytes(self) -> int:
        """How many bytes it holds."""
        return sum(life.bytes for life in self.lives)


def name_of(life: Life) -> str:
    """Return what a block is called; one that was no tensor by the line that made it."""
    unnamed = "allocation" if life.kind == "allocation" else "unnamed"
    return life.tensor or line_text(life.line) or unnamed


def line_text(line: CodeLine) -> str:
    """Return where a line of code is, ``execute:31``; nothing where that is not known."""
    if not line.line:
        return ""
    return f"{line.function}:{line.line}" if line.function else f"line {line.line}"


def kind_of(life: Life) -> str:
    """Return what a block holds, ``FP32 [4,3]``; nothing where that is not known."""
    return f"{life.datatype} {shape(life.shape) if life.shape else ''}".strip()


def owner(maker: Maker) -> str:
    """Return who made or has a block, in words."""
    return maker.model or "notebook"


def end_of(record: Lifetimes) -> int:
    """Return when the track ended, in nanoseconds; never before the last thing that happened in it."""
    return max([1, record.wall, *(max(life.born, life.died) for life in record.lives)])


def device_label(record: Lifetimes, name: str) -> str:
    """Return a device's name, with the word "simulated" where it is."""
    simulated = any(seen.simulated for seen in record.devices if seen.name == name)
    return f"{name} (simulated)" if simulated and "simulated" not in name else name


def sums(lives: Iterable[Life]) -> list[Sum]:
    """Return blocks summed by name and maker, the largest first."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for life in lives:
        key = (name_of(life), life.maker.model)
        blocks, total = found.get(key, (0, 0))
        found[key] = (blocks + 1, total + life.bytes)
    result = [Sum(name, model, *value) for (name, model), value in found.items()]
    return sorted(result, key=lambda each: (-each.bytes, each.name, each.model))


def sums_text(found: Sequence[Sum], most: int = 3) -> str:
    """Spell the largest of some sums: ``leaky/STATES ×4 256 MiB, IMAGE 64 MiB, +3 more``."""
    shown = [f"{each.label} {size(each.bytes)}" for each in found[:most]]
    return ", ".join([*shown, f"+{len(found) - most} more"] if len(found) > most else shown)


def device_facts(record: Lifetimes) -> list[DeviceFacts]:
    """Return the facts of each device that was seen, GPUs first."""
    names = dict.fromkeys([*(seen.name for seen in record.devices), *(life.device for life in record.lives)])
    lives: dict[str, list[Life]] = {name: [] for name in names}
    for life in record.lives:
        lives[life.device].append(life)
    devices = {seen.name: seen for seen in record.devices}
    facts = [_facts(record, devices.get(name, DeviceSeen(name)), lives[name]) for name in names]
    return sorted(facts, key=lambda each: (each.name.startswith("cpu"), each.name))


def _facts(record: Lifetimes, device: DeviceSeen, lives: list[Life]) -> DeviceFacts:
    steps = profile(lives)
    peak_ns, peak, _ = max(steps, key=lambda step: step[1])
    there = [each for each in lives if each.born <= peak_ns and (each.died < 0 or each.died > peak_ns)]
    return DeviceFacts(
        device.name,
        device_label(record, device.name),
        device.total,
        device.used,
        len(lives),
        peak,
        peak_ns,
        steps[-1][2],
        sum(map(is_left_behind, lives)),
        tuple(steps),
        tuple(sums(there)) if peak else (),
    )


def profile(lives: Sequence[Life]) -> list[tuple[int, int, int]]:
    """Return (ns, bytes, bytes of those left behind) of some blocks together, each from its time on."""
    # A death comes before a birth at the same moment: the two were never there together.
    events = sorted(
        [(life.born, 1, life.bytes, life.bytes * is_left_behind(life)) for life in lives]
        + [(life.died, 0, -life.bytes, 0) for life in lives if life.died >= 0]
    )
    steps = [(0, 0, 0)]
    bytes_ = left = 0
    for ns, _, change, stays in events:
        bytes_, left = bytes_ + change, left + stays
        if steps[-1][0] == ns:
            steps.pop()
        steps.append((ns, bytes_, left))
    return steps


def holder_of(life: Life) -> Holder:
    """Return the holder to name first."""
    known = {kind: place for place, kind in enumerate(_ORDER)}
    return min(life.holders, key=lambda each: known.get(each.kind, len(known)), default=Holder("unknown"))


def holder_text(holder: Holder) -> str:
    """Name a holder: a variable or attribute by its name, others in words."""
    if holder.kind in ("variable", "attribute") and holder.name:
        return holder.name
    words = _WORDS.get(holder.kind, "" if holder.kind == "unknown" else holder.kind)
    return " ".join(part for part in (words, holder.name) if part) or UNKNOWN


def stacked(lives: Sequence[Life], models: Sequence[str]) -> list[tuple[int, ...]]:
    """Return (ns, bytes, bytes left behind, tops) of blocks, each from its time on.

    There is a top for each of `models`, from the bottom: what was left behind, whoever made it, and the other
    blocks of that model and of those before it.
    """
    place = {model: number for number, model in enumerate(models)}
    left = [life for life in lives if is_left_behind(life)]
    parts = [left, *([] for _ in models)]
    for life in lives:
        if life.maker.model in place and not is_left_behind(life):
            parts[1 + place[life.maker.model]].append(life)
    times = sorted({0, *(life.born for life in lives), *(life.died for life in lives if life.died >= 0)})
    tops = [0] * len(times)
    columns: list[list[int]] = []
    for part in parts:
        steps, k = profile(part), -1
        for i, ns in enumerate(times):
            while k + 1 < len(steps) and steps[k + 1][0] <= ns:
                k += 1
            tops[i] += steps[k][1]
        columns.append(tops.copy())
    whole = {ns: bytes_ for ns, bytes_, _ in profile(lives)}
    return [(ns, whole[ns], *column) for ns, *column in zip(times, *columns, strict=True)]


def held(lives: Iterable[Life]) -> list[OwnedBlocks]:
    """Return blocks by all who hold them, the largest first; ``kept[0]``, ``kept[1]`` as one."""
    groups: dict[tuple[tuple[str, str], ...], list[Life]] = {}
    for life in lives:
        roots = ((each.kind, _INDEX.sub("", each.name) or each.name) for each in named_holders(life))
        groups.setdefault(tuple(dict.fromkeys(roots)), []).append(life)
    found = []
    for kinds, own in groups.items():
        every = {tuple(holder_text(each) for each in named_holders(life)) for life in own}
        texts = every.pop() if len(every) == 1 else [holder_text(Holder(*each)) for each in kinds]
        found.append(OwnedBlocks(" and ".join(texts), _remedy(own), tuple(own)))
    return sorted(found, key=lambda each: (-each.bytes, each.text))


def named_holders(life: Life) -> list[Holder]:
    """Return who holds a block and has a name, in the order in which to name them; else `holder_of` alone."""
    named = [each for each in life.holders if each.kind in ("variable", "attribute") and each.name]
    return sorted(named, key=lambda each: (_ORDER.index(each.kind), each.name)) or [holder_of(life)]


def alive_kinds(record: Lifetimes) -> list[Alive]:
    """Return what was alive at the end, blocks of a kind together, the largest first."""
    found = []
    for group in held(record.alive()):
        kinds: dict[tuple[object, ...], list[Life]] = {}
        for life in group.lives:
            key = (name_of(life), life.datatype, life.shape, life.device, life.maker.model)
            kinds.setdefault(key, []).append(life)
        for lives in kinds.values():
            held_by = held(lives)[0].text if len(lives) == 1 else group.text
            found.append(Alive(tuple(lives), held_by))
    return sorted(found, key=lambda each: -each.bytes)


def _remedy(lives: list[Life]) -> str:
    remedies = list(dict.fromkeys(each.remedy for life in lives for each in named_holders(life)))
    given = [remedy for remedy in remedies if remedy]
    return "; ".join(given) if len(given) < 3 else f"{given[0]} (and {len(given) - 1:,} like it)"


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
        said.append(f"left behind by this cell: {size(record.dropped_bytes)} in blocks beyond the limit of the record")
    return said


def _sentence(record: Lifetimes, group: OwnedBlocks) -> str:
    devices = list(dict.fromkeys(device_label(record, life.device) for life in group.lives))
    on = f" on {' and '.join(devices)}" if len(devices) < 3 else f" on {len(devices)} devices"
    blocks = f" in {count(len(group.lives), 'block')}" if len(group.lives) > 1 else ""
    remedy = f"; to let go: {group.remedy}" if group.remedy else ""
    held_by = f", held by {group.text}{remedy}"
    return f"left behind by this cell: {size(group.bytes)}{on}{blocks}{_made(group)}{held_by}"


def _made(group: OwnedBlocks) -> str:
    """Where in whose code they were made, if that is one line."""
    places = {(owner(life.maker), line_text(life.line)) for life in group.lives}
    model, line = places.pop()
    return f", made by {model} in {line}" if line and not places else ""
