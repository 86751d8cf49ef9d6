"""`Lifetimes`: the lifetimes of memory blocks, with what can be computed from them. Frozen, JSON-able."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.profiling.code_lines import NOWHERE, CodeLine
from bls_notebook.records import Printable, Record, RecordFile, Remedy, grouped

SCHEMA = 1


@dataclass(frozen=True, slots=True, repr=False)
class Maker(Record):
    """The creator of a block of memory; an empty `model` is the notebook.

    The engine's copy of an input belongs to the model that received it, its copy of an output to the model that
    returned it. `request` numbers the requests of the recording from 1, 0 for none. `span` is the id of the request's
    span if a profile was recorded too. `cell` is the notebook's cell, such as ``In [3]``.
    """

    model: str = ""
    version: int = 0
    instance: str = ""
    request: int = 0
    request_id: str = ""
    span: int = 0
    cell: str = ""


NOBODY = Maker()


@dataclass(frozen=True, slots=True, repr=False)
class Holder(Record):
    """An owner: the reason why a block was still alive when the recording ended.

    `kind` is variable (of the notebook, `name` is its name), attribute (of a model, `name` is a path such as
    ``leaky.kept[3]``), response, request, iterator, capsule, view, frame, or unknown. `remedy` is code that releases
    the block, or empty.
    """

    kind: str
    name: str = ""
    remedy: str | Remedy = ""


@dataclass(frozen=True, slots=True, repr=False)
class Stay(Record):
    """A block of memory as a tensor of a model or of the notebook (``at``), from ``ns`` on.

    ``role`` is input (a model's input), output (a response that its requester got) or view (exported by
    DLPack). ``shape`` may describe only a part of the block.
    """

    ns: int
    role: str
    tensor: str
    datatype: str = ""
    shape: tuple[int, ...] = ()
    at: Maker = NOBODY


@dataclass(frozen=True, slots=True, repr=False)
class Life(Record):
    """The lifetime of a block of memory. Times are nanoseconds since the recording began.

    ``kind`` is tensor (it passed through a request) or allocation (a block of a GPU's pool that no request
    has seen). ``source`` is the ``id`` of the block that it is a copy of, 0 for none. ``how`` is new, copy, or
    transfer (from another device; it took ``transfer_ns``). ``died`` is -1 while it is alive. ``tensor`` is
    its first name. ``line`` allocated it; the engine's copy of an input has none.
    """

    id: int
    device: str
    bytes: int
    born: int
    died: int = -1
    kind: str = "tensor"
    tensor: str = ""
    datatype: str = ""
    shape: tuple[int, ...] = ()
    maker: Maker = NOBODY
    source: int = 0
    how: str = "new"
    transfer_ns: int = 0
    stays: tuple[Stay, ...] = ()
    holders: tuple[Holder, ...] = ()
    line: CodeLine = NOWHERE


@dataclass(frozen=True, slots=True, repr=False)
class LineBytes(Record):
    """The blocks that one line of a model's code allocated; an empty ``model`` is the notebook.

    If no line is known, ``what`` says where the blocks come from.
    """

    model: str
    line: CodeLine = NOWHERE
    what: str = ""
    bytes: int = 0
    blocks: int = 0
    tensors: tuple[str, ...] = ()


def _origin(life: Life) -> str:
    origins = {"new": "line not known", "transfer": "tensors moved"}
    return "" if life.line.line else origins.get(life.how, "copies of inputs")


@dataclass(frozen=True, slots=True, repr=False)
class DeviceSeen(Record):
    """A device during a recording; ``total`` is its capacity in bytes, 0 if unknown.

    ``used`` are the bytes that this process had allocated there when the recording began; no life includes them.
    """

    name: str
    simulated: bool = False
    total: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class KeptGrowth(Record):
    """Memory outside of tensors that a model keeps more at the end of a recording than at its beginning.

    `owner` is a path such as ``leaky.history``; `lines` are those that add to it, as far as the source shows them.
    `instance` is the instance in whose process it is, empty for the kernel.
    """

    model: str
    owner: str
    bytes: int
    lines: tuple[CodeLine, ...] = ()
    remedy: str | Remedy = ""
    instance: str = ""


def kind_of_growth(kept: Iterable[KeptGrowth]) -> str:
    """Return the words for memory that models keep; a process may keep tensors, too."""
    kinds = dict.fromkeys("in processes" if each.instance else "that is no tensor" for each in kept)
    return " or ".join(sorted(kinds))


@dataclass(frozen=True, slots=True, repr=False)
class WorkerMemory(Record):
    """The memory of the process of an instance at the end of a recording, and how much more that is than before.

    ``known`` is false if the process did not say what its model keeps.
    """

    instance: str
    bytes: int
    growth: int = 0
    known: bool = True


@dataclass(frozen=True, slots=True, repr=False)
class Peak(Record):
    """Peak memory of a device: its time and the blocks alive then, largest first."""

    ns: int = 0
    bytes: int = 0
    lives: tuple[Life, ...] = ()


def is_left_behind(life: Life) -> bool:
    """Return whether a block that a request or a model allocated is still alive.

    An array that the notebook made itself and sent as an input does not count.
    """
    return life.died < 0 and life.bytes > 0 and bool(life.maker.model or life.how != "new")


def bytes_over_time(lives: Iterable[Life], models: Sequence[str] = ()) -> list[tuple[int, ...]]:
    """Return steps (ns, bytes alive, tops...) of some blocks, the first at 0; each holds until the next.

    The tops are heights from the bottom: blocks left behind by any model, then the others of each of the `models`.
    """
    place = {model: number for number, model in enumerate(models, 1)}
    heights = [0] * (len(models) + 2)  # the last one is of other models
    changes = {0: list(heights)}
    for life in lives:
        part = 0 if is_left_behind(life) else place.get(life.maker.model, -1)
        for ns, change in ((life.born, life.bytes), (life.died, -life.bytes)):
            if ns >= 0:
                changes.setdefault(ns, [0] * len(heights))[part] += change
    steps: list[tuple[int, ...]] = []
    for ns in sorted(changes):
        heights = [height + change for height, change in zip(heights, changes[ns], strict=True)]
        steps.append((ns, sum(heights), *accumulate(heights[:-1])))
    return steps


def _lives_at(life: Life, ns: int) -> bool:
    """Return whether a block is alive at a time (-1 for the end): its birth counts, its death does not."""
    return life.died < 0 if ns < 0 else life.born <= ns and (life.died < 0 or ns < life.died)


def _largest_first(lives: Iterable[Life]) -> tuple[Life, ...]:
    return tuple(sorted(lives, key=lambda life: (-life.bytes, life.id)))


class LifetimesAnalysis(Printable):
    """The questions that a `Lifetimes` answers; for classes with one as `record`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def record(self) -> Lifetimes:
            """The lifetimes."""

    def alive(self, ns: int = -1) -> tuple[Life, ...]:
        """Return the blocks alive at a time (ns since the beginning, -1 for the end), the largest first."""
        return _largest_first(life for life in self.record.lives if _lives_at(life, ns))

    def bytes(self, device: str = "", ns: int = -1) -> int:
        """Return the bytes alive at a time.

        Parameters
        ----------
        device : str
            ``cpu``, ``gpu:0``; all of them by default.
        ns : int
            Nanoseconds since the recording began, -1 for its end.
        """
        here = (life for life in self.record.lives if device in ("", life.device))
        return sum(life.bytes for life in here if _lives_at(life, ns))

    def peak(self, device: str) -> Peak:
        """Return the peak memory of a device."""
        steps = bytes_over_time(life for life in self.record.lives if life.device == device)
        ns, alive, _ = max(steps, key=lambda step: step[1])
        return Peak(ns, alive, tuple(life for life in self.alive(ns) if life.device == device))

    def lines(self, device: str) -> tuple[LineBytes, ...]:
        """Return the lines of code that allocated the blocks alive at the peak of a device, the largest first.

        Parameters
        ----------
        device : str
            ``cpu``, ``gpu:0``.
        """
        blocks = [life for life in self.peak(device).lives if life.bytes]
        lines = []
        for lives in grouped(((b.maker.model, b.line.file, b.line.line, _origin(b)), b) for b in blocks).values():
            first, total = lives[0], sum(life.bytes for life in lives)
            tensors = tuple(dict.fromkeys(life.tensor for life in lives if life.tensor))
            lines.append(LineBytes(first.maker.model, first.line, _origin(first), total, len(lives), tensors))
        return tuple(sorted(lines, key=lambda each: (-each.bytes, each.model, each.line.line)))

    def left_behind(self) -> tuple[Life, ...]:
        """Return the living blocks that requests and models allocated, the largest first.

        Arrays that the notebook made itself and sent do not count.
        """
        return _largest_first(filter(is_left_behind, self.record.lives))

    def save(self, path: str | Path) -> Path:
        """Write the lifetimes to a JSON file, for `bls.open_file`; compressed if its name ends with ``.gz``."""
        return _FILE.save(self.record, path)


@dataclass(frozen=True, slots=True, repr=False)
class Lifetimes(Record, LifetimesAnalysis):
    """The blocks of memory that were alive during a recording. Times are nanoseconds since it began.

    ``lives`` are in the order of birth. Beyond the limit the oldest dead blocks are dropped, then the
    smallest: ``dropped`` counts them, and ``dropped_bytes`` are the bytes of dropped blocks that are still alive.
    ``kept`` is what models keep more that is no tensor; ``process_growth`` are the bytes that the process has more.
    ``workers`` are the processes of instances.
    """

    lives: tuple[Life, ...] = ()
    devices: tuple[DeviceSeen, ...] = ()
    wall: int = 0
    began: str = ""
    name: str = ""
    dropped: int = 0
    dropped_bytes: int = 0
    schema: int = SCHEMA
    kept: tuple[KeptGrowth, ...] = ()
    process_growth: int = 0
    workers: tuple[WorkerMemory, ...] = ()

    @property
    def record(self) -> Lifetimes:
        """The lifetimes themselves, as of a `MemoryTrack`."""
        return self


_FILE = RecordFile(Lifetimes, "bls_notebook.lifetimes", SCHEMA, "a file of lifetimes", "lifetimes")
load_lifetimes = _FILE.load
