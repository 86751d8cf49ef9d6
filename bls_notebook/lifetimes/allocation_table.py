"""The allocation table: turns the entries of the allocation log into lifetimes of blocks.

Guarantees: entries are read in the order of logging, so a reused key is never confused with its earlier block.
Beyond `limit` blocks the oldest dead ones are dropped. A table must not be used by several threads at once.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bls_notebook.devices import allocation_log
from bls_notebook.devices.allocation_log import IN, OUT, BlockKey, LogRow, Origin, rows
from bls_notebook.lifetimes.records import Maker
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.profiling.code_lines import CodeLine, line_of

from .allocation_site import allocation_line

MOST_STOPS = 1_000  # stays of a block; beyond it, the first half and the latest half are kept
MOST_REQUESTS = 10_000  # requests are dropped only beyond this number
ITEM_BYTES = {"BF16": 2, **{name: dtype.itemsize for name, dtype in DTYPE_OF_DATATYPE.items()}}


@dataclass(eq=False, slots=True)
class TrackedRequest:
    """One request in the log; the notebook is None instead."""

    number: int
    model: str
    version: int
    options: Any
    parent: TrackedRequest | None
    span: int
    cell: str
    instance: str = ""

    @property
    def maker(self) -> Maker:
        """The model of the request, as the maker of a block."""
        name = self.options.request_id if self.options is not None else ""
        return Maker(self.model, self.version, self.instance, self.number, name, self.span, self.cell)


Stop = tuple[int, str, str, str, tuple[int, ...], TrackedRequest | None, str]


@dataclass(eq=False, slots=True)
class AllocatedBlock:
    """A block of memory; times are of `perf_counter_ns`, -1 for not yet."""

    id: int
    key: BlockKey
    device: str
    bytes: int
    born: int
    maker: TrackedRequest | None
    cell: str
    died: int = -1
    kind: str = "allocation"
    tensor: str = ""
    datatype: str = ""
    shape: tuple[int, ...] = ()
    source: int = 0
    how: str = "new"
    transfer_ns: int = 0
    line: Origin | None = None
    is_wrapped: bool = False  # `line` made a `Tensor` of the block, and may not have allocated it
    stays: list[Stop] = field(default_factory=list)

    def stop_at(self, stop: Stop) -> None:
        self.stays.append(stop)
        if len(self.stays) > MOST_STOPS:
            del self.stays[MOST_STOPS // 2]


def lines_of(blocks: Iterable[AllocatedBlock]) -> dict[int, CodeLine]:
    """Return, by block ID, the lines of code that made blocks; only lines of the block's own model."""
    known: dict[tuple[int, int, bool], CodeLine] = {}
    lines: dict[int, CodeLine] = {}
    for block in blocks:
        # When the engine allocates for one model, the running line may belong to another model, which waits.
        if block.line is None or block.line[2] != ("" if block.maker is None else block.maker.model):
            continue
        spot = id(block.line[0]), block.line[1], block.is_wrapped
        if spot not in known:
            known[spot] = allocation_line(block.line) if block.is_wrapped else line_of(block.line)
        lines[block.id] = known[spot]
    return lines


_Party = TrackedRequest | None  # None is the notebook


class AllocationTable:
    """The blocks of a log; `base` is one less than the number of the first request."""

    def __init__(self, limit: int, base: int = 0) -> None:
        self._limit = limit
        self._base = base
        self._next = 1
        self._cell = ""
        self._dead: deque[AllocatedBlock] = deque()  # in the order of their deaths
        self._living: dict[int | tuple[str, int], AllocatedBlock] = {}  # by `_index`
        self._requests: dict[int, TrackedRequest] = {}
        self.dropped = 0
        self.in_use: Counter[str] = Counter()  # bytes alive, by device
        self.older: Counter[str] = Counter()  # changes to the bytes of a GPU outside of all lifetimes

    def read(self, log: Sequence[Any], deaths: Sequence[Any] = ()) -> None:
        """Read rows of the log, and the deaths logged in the same time."""
        early: list[tuple[BlockKey, int]] = []  # deaths of blocks that a later row, of another thread, names
        end, ends = 0, len(deaths)
        for row in rows(log):
            event, at = row.event, row.at
            while end < ends and deaths[end + 1] <= at:
                if not self._died(deaths[end], deaths[end + 1]):
                    early.append((deaths[end], deaths[end + 1]))
                end += 2
            if event in _RARE:
                _RARE[event](self, at, *row.details)
                continue
            request = self._requests.get(row.number)
            if request is None and event in (IN, allocation_log.ALONE):
                request = self._request(row)
            elif request is not None and row.other and event in (OUT, allocation_log.AGAIN):
                request.instance = row.other
            sender = None if request is None else request.parent
            if event == IN:
                self._crossed(row, "input", sender, request, request)
            elif event == allocation_log.AGAIN:
                self._crossed(row, "input", request, request, request)
            elif event == OUT:
                self._crossed(row, "output", request, request, sender)
        for key, at in early:
            self._died(key, at)
        for index in range(end, ends, 2):
            self._died(deaths[index], deaths[index + 1])

    def _request(self, row: LogRow) -> TrackedRequest:
        sender = self._requests.get(row.other)
        cell = self._cell if sender is None else sender.cell
        model, version = row.who
        request = TrackedRequest(row.number - self._base, model, version, row.options, sender, row.span, cell)
        self._requests[row.number] = request
        if len(self._requests) > 2 * self._limit + MOST_REQUESTS:
            for old in list(self._requests)[: len(self._requests) // 2]:
                del self._requests[old]
        return request

    def _crossed(self, row: LogRow, role: str, sender: _Party, maker: _Party, receiver: _Party) -> None:
        """Record a tensor that was passed from `sender` to `receiver`; if it was copied, `maker` made the copy."""
        at, sizes = row.at, [row.source_size, row.target_size]
        if allocation_log.PLAIN in sizes:
            plain = math.prod(row.shape) * ITEM_BYTES.get(row.datatype, 1)
            sizes = [plain if size == allocation_log.PLAIN else size for size in sizes]
        first = self._next
        source = target = self._seen(row.source, sizes[0], at, sender)
        if source.line is None and source.id >= first:  # no line of a model allocates the engine's copy of an input
            source.line, source.is_wrapped = row.line, True
        if row.target is not row.source:
            known = self._next
            target = self._seen(row.target, sizes[1], at, maker)
            if target.id >= known:
                target.how, target.source = "copy", source.id
                if role == "output":  # no line of the model copies an input
                    target.line = row.line
            if not target.stays:
                target.maker = maker  # not the request that ran when the device allocated the block
        for block in (source, target):
            if block.kind != "tensor":
                block.kind, block.tensor, block.datatype, block.shape = "tensor", row.name, row.datatype, row.shape
        target.stop_at((at, role, row.name, row.datatype, row.shape, receiver, self._cell))

    def _in_cell(self, at: int, name: str) -> None:
        self._cell = name

    def _allocated(self, at: int, number: int, key: tuple[str, int], size: int, line: Origin | None = None) -> None:
        self._died(key, at)  # in case the log missed its end
        self._add(key, size, at, self._requests.get(number)).line = line

    def _freed(self, at: int, key: tuple[str, int], size: int) -> None:
        if not self._died(key, at):
            self.older[key[0]] -= size

    def _moved(
        self, at: int, number: int, how: str, ns: int, source: BlockKey, size: int, target: BlockKey, other: int
    ) -> None:
        request = self._requests.get(number)
        given = self._seen(source, size, at - ns, request)
        got = self._seen(target, other, at, request)
        if given is not got and not got.source and not got.stays:
            got.how, got.source, got.transfer_ns = how, given.id, ns

    def _exported(
        self, at: int, number: int, name: str, datatype: str, shape: tuple[int, ...], key: BlockKey, size: int
    ) -> None:
        request = self._requests.get(number)
        self._seen(key, size, at, request).stop_at((at, "view", name, datatype, shape, request, self._cell))

    def _seen(self, key: BlockKey, size: int, at: int, maker: _Party) -> AllocatedBlock:
        """Return the block of a key, or a new one if there is none."""
        block = self._living.get(_index(key))
        if block is None:
            if isinstance(key, tuple):
                around = self._around(key)
                if around is not None:
                    return around
                self.older[key[0]] -= max(size, 0)  # it is older than the recording
            return self._add(key, max(size, 0), at, maker)
        if size > 0 and not block.bytes:  # another thread logged it first, without its size
            block.bytes = size
            self.in_use[block.device] += size
        return block

    def _around(self, key: tuple[str, int]) -> AllocatedBlock | None:
        """Return the block of a GPU's pool around an address: DLPack may pass a part of a block."""
        gpu, address = key
        for block in self._living.values():
            if isinstance(block.key, tuple) and block.key[0] == gpu:
                start = block.key[1]
                if 0 < start <= address < start + block.bytes:
                    return block
        return None

    def _add(self, key: BlockKey, size: int, at: int, maker: _Party) -> AllocatedBlock:
        device = key[0] if isinstance(key, tuple) else "cpu"
        cell = self._cell if maker is None else maker.cell
        block = self._living[_index(key)] = AllocatedBlock(self._next, key, device, size, at, maker, cell)
        self.in_use[device] += size
        self._next += 1
        self._drop_dead()
        return block

    def _died(self, key: BlockKey, at: int) -> bool:
        """Record the death of a block; return whether it was known."""
        block = self._living.pop(_index(key), None)
        if block is None:
            return False
        block.died = at
        self.in_use[block.device] -= block.bytes
        self._dead.append(block)
        self._drop_dead()
        return True

    def _drop_dead(self) -> None:
        while self._dead and len(self._dead) + len(self._living) > self._limit:
            self._dead.popleft()
            self.dropped += 1

    def blocks(self) -> list[AllocatedBlock]:
        """Return the blocks in the order of birth: at most `limit`, or all that are alive."""
        return sorted([*self._dead, *self._living.values()], key=lambda block: (block.born, block.id))


def _index(key: BlockKey) -> int | tuple[str, int]:
    return key if isinstance(key, tuple) else id(key)


_RARE: dict[int, Callable[..., None]] = {
    allocation_log.CELL: AllocationTable._in_cell,
    allocation_log.ALLOCATED: AllocationTable._allocated,
    allocation_log.FREED: AllocationTable._freed,
    allocation_log.MOVED: AllocationTable._moved,
    allocation_log.EXPORTED: AllocationTable._exported,
}
