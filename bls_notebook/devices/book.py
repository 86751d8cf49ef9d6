"""The book: what the ledger's log says, as the lives of blocks.

Guarantees: entries are read in the order in which they were noted, so a key that is used again is never
taken for its block before. At most `limit` lives are kept: beyond that the oldest that is dead is dropped,
and where all live, a new one is only counted. Not for several threads at once.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence, Set
from typing import Any

from bls_notebook.observe.lifetimes import Maker

from .ledger import AGAIN, ALLOCATED, CELL, EXPORTED, FIELDS, FREED, IN, MOVED, OUT, Key, Who

__all__ = ["Block", "Book", "Request", "Stop"]

MOST_REQUESTS = 10_000  # that are known at a time, at least
_ITEM_BYTES = {
    "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2, "INT32": 4,
    "INT64": 8, "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8,
}  # fmt: skip


class Request:
    """One request that was seen; the notebook has none."""

    __slots__ = ("cell", "instance", "model", "number", "options", "parent", "version")

    def __init__(
        self, number: int, model: str, version: int, options: Any, parent: Request | None, cell: str
    ) -> None:
        self.number = number
        self.model = model
        self.version = version
        self.options = options
        self.parent = parent
        self.cell = cell
        self.instance = ""

    @property
    def maker(self) -> Maker:
        """Its model, as who made a block."""
        name = self.options.request_id if self.options is not None else ""
        return Maker(self.model, self.version, self.instance, self.number, name, 0, self.cell)


Stop = tuple[int, str, str, str, tuple[int, ...], "Request | None", str]


class Block:
    """A block of memory, as far as it is known; times are of `perf_counter_ns`, -1 for not yet."""

    __slots__ = (
        "born", "bytes", "cell", "datatype", "device", "died", "how", "id", "key", "kind", "maker", "shape",
        "source", "stays", "tensor", "transfer_ns",
    )  # fmt: skip

    def __init__(
        self, number: int, key: Key, device: str, size: int, born: int, maker: Request | None, cell: str
    ) -> None:
        self.id = number
        self.key = key
        self.device = device
        self.bytes = size
        self.born = born
        self.died = -1
        self.maker = maker
        self.cell = cell
        self.kind = "allocation"
        self.tensor = self.datatype = ""
        self.shape: tuple[int, ...] = ()
        self.source = 0
        self.how = "new"
        self.transfer_ns = 0
        self.stays: list[Stop] = []


def _device(key: Key) -> str:
    return key[0] if isinstance(key, tuple) else "cpu"


def _blocks_of(log: Sequence[Any], start: int, end: int, living: Set[Key]) -> tuple[bool, int, set[Key]]:
    """Whether a block lives that an entry is first to name, how many these are, and the keys in it."""
    lives, new = False, 0
    keys: set[Key] = set()
    for index in range(start, end, FIELDS):
        source, size, target = log[index + 3 : index + 6]
        if size >= 0:
            new += 1
            lives = lives or source in living
        if target != source:
            new += 1
            lives = lives or target in living
        keys.update((source, target))
    return lives, new, keys


class Book:
    """Lives, as they come out of the log.

    Parameters
    ----------
    limit : int
        How many are kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._next = 1
        self._cell = ""
        self._dead: deque[Block] = deque()  # that are kept, in the order of their deaths
        self._living: dict[Key, Block] = {}
        self._uncounted: dict[Key, tuple[str, int]] = {}  # alive, but over the limit: device and bytes
        self._kept = 0
        self._requests: dict[int, Request] = {}
        self._skipped: dict[int, tuple[int, Who, Any, str]] = {}  # parent, model, options, cell
        self.dropped = 0
        self.in_use: Counter[str] = Counter()  # bytes alive, by device
        self.older: Counter[str] = Counter()  # changes to the bytes of a GPU that are in no life
        self._rare: dict[int, tuple[Any, int]] = {
            CELL: (self._in_cell, 3),
            ALLOCATED: (self._allocated, 5),
            FREED: (self._freed, 4),
            MOVED: (self._moved, 9),
            EXPORTED: (self._exported, 8),
        }

    # -- reading the log -----------------------------------------------------------------------------

    def read(self, log: Sequence[Any]) -> None:
        """Take entries in, which end where an entry ends."""
        index, end = 0, len(log)
        while index < end:
            word = log[index]
            if word.__class__ is tuple or word > 0:
                self._died(word, log[index + 1])
                index += 2
            elif word == IN:
                at, number, parent, who, options, count = log[index + 1 : index + 7]
                index += 7
                self._received(at, self._request(number, who, options, parent), log, index, count)
                index += count * FIELDS
            elif word in (OUT, AGAIN):
                at, number, instance, count = log[index + 1 : index + 5]
                index += 5
                self._answered(at, word, number, instance, log, index, count)
                index += count * FIELDS
            else:
                method, length = self._rare[word]
                method(*log[index + 1 : index + length])
                index += length

    def skim(self, log: Sequence[Any], most: int, living: Set[Key]) -> tuple[int, list[Any]] | None:
        """Drop what is over from the oldest entries of a log, without reading them.

        Parameters
        ----------
        log : sequence
        most : int
            Items to look at; a little more where an entry ends later.
        living : set of key
            Of the blocks that live.

        Returns
        -------
        tuple of int and list, or None
            How many items were looked at, and what is to be put in their place; None where there are
            entries that have to be read.
        """
        kept: list[Any] = []
        ends: list[tuple[Key, int]] = []
        keys: set[Key] = set()
        dropped = index = 0
        while index < most:
            word = log[index]
            if word.__class__ is tuple or word > 0:
                ends.append((word, log[index + 1]))
                index += 2
                continue
            if word not in (IN, OUT):
                if word != CELL:
                    return None
                self._cell = log[index + 2]
                kept += log[index : index + 3]
                index += 3
                continue
            head = 7 if word == IN else 5
            end = index + head + log[index + head - 1] * FIELDS
            lives, new, here = _blocks_of(log, index + head, end, living)
            if lives:
                kept += log[index:end]
                keys |= here
            else:
                dropped += new
                if word == IN:
                    number, parent, who, options = log[index + 2 : index + 6]
                    self._skipped[number] = parent, who, options, self._cell
            index = end
        for key, at in ends:
            if key in keys:
                kept += (key, at)
        self.dropped += dropped
        self._prune(self._skipped)
        return index, kept

    def _request(self, number: int, who: Who, options: Any, parent: int) -> Request:
        sender = self._known(parent)
        cell = self._cell if sender is None else sender.cell
        request = self._requests[number] = Request(number, *who, options, sender, cell)
        self._prune(self._requests)
        return request

    def _known(self, number: int) -> Request | None:
        """A request by its number, also where its entry was skipped; None for the notebook."""
        found = self._requests.get(number)
        if found is None and number in self._skipped:
            parent, who, options, cell = self._skipped.pop(number)
            found = self._request(number, who, options, parent)
            found.cell = cell if found.parent is None else found.parent.cell
        return found

    def _prune(self, requests: dict[int, Any]) -> None:
        if len(requests) > 2 * self._limit + MOST_REQUESTS:
            for old in list(requests)[: len(requests) // 2]:
                del requests[old]

    def _received(self, at: int, request: Request, log: Sequence[Any], index: int, count: int) -> None:
        for start in range(index, index + count * FIELDS, FIELDS):
            self._crossed(at, "input", request.parent, request, request, log[start : start + FIELDS])

    def _answered(
        self, at: int, word: int, number: int, instance: str, log: Sequence[Any], index: int, count: int
    ) -> None:
        request = self._known(number)
        if request is not None and instance:
            request.instance = instance
        role, taker = "input", request
        if word == OUT:
            role, taker = "output", None if request is None else request.parent
        for start in range(index, index + count * FIELDS, FIELDS):
            self._crossed(at, role, request, request, taker, log[start : start + FIELDS])

    def _crossed(
        self,
        at: int,
        role: str,
        giver: Request | None,
        maker: Request | None,
        taker: Request | None,
        fields: Sequence[Any],
    ) -> None:
        """A tensor went from one to another; `maker` has the copy, if it was copied."""
        name, datatype, shape, source, size, target, text = fields
        if source == 0:  # it was let go of at once
            given = self._add(source, size, at, giver)
        else:
            given = self._seen(source, size, at, giver)
        if target == source:
            got = given
        else:
            size = text if text >= 0 else math.prod(shape) * _ITEM_BYTES.get(datatype, 1)
            new = target not in self._living
            got = self._seen(target, size, at, maker)
            if got is not None and new:
                got.how, got.source = "copy", 0 if given is None else given.id
            if got is not None and not got.stays:
                got.maker = maker  # the device gave it to whoever was running then
        for block in (given, got):
            if block is not None and block.kind != "tensor":
                block.kind, block.tensor, block.datatype, block.shape = "tensor", name, datatype, shape
        if source == 0:
            self._died(source, at)
        if got is not None:
            got.stays.append((at, role, name, datatype, shape, taker, self._cell))

    # -- devices -------------------------------------------------------------------------------------

    def _in_cell(self, at: int, name: str) -> None:
        self._cell = name

    def _allocated(self, at: int, number: int, key: Key, size: int) -> None:
        self._died(key, at)  # where its end was not seen
        self._add(key, size, at, self._known(number))

    def _freed(self, at: int, key: Key, size: int) -> None:
        if not self._died(key, at):
            self.older[_device(key)] -= size

    def _moved(
        self, at: int, number: int, how: str, ns: int, source: Key, size: int, target: Key, other: int
    ) -> None:
        request = self._known(number)
        given = self._seen(source, size, at - ns, request)
        got = self._seen(target, other, at, request)
        if given is not None and got is not None and given is not got and not got.source and not got.stays:
            got.how, got.source, got.transfer_ns = how, given.id, ns

    def _exported(
        self, at: int, number: int, name: str, datatype: str, shape: tuple[int, ...], key: Key, size: int
    ) -> None:
        request = self._known(number)
        block = self._seen(key, size, at, request)
        if block is not None:
            block.stays.append((at, "view", name, datatype, shape, request, self._cell))

    # -- lives ---------------------------------------------------------------------------------------

    def _seen(self, key: Key, size: int, at: int, maker: Request | None) -> Block | None:
        """The block of a key, which begins now where it is not known; None for one over the limit."""
        block = self._living.get(key)
        if block is None and key not in self._uncounted:
            if key.__class__ is tuple:  # it was there before the track
                self.older[_device(key)] -= max(size, 0)
            return self._add(key, max(size, 0), at, maker)
        if block is not None and size > 0 and not block.bytes:  # another thread was first to name it
            block.bytes = size
            self.in_use[block.device] += size
        return block

    def _add(self, key: Key, size: int, at: int, maker: Request | None) -> Block | None:
        device = _device(key)
        self.in_use[device] += size
        if self._kept >= self._limit:
            self.dropped += 1
            if not self._dead:
                self._uncounted[key] = device, size
                return None
            self._dead.popleft()
            self._kept -= 1
        cell = self._cell if maker is None else maker.cell
        block = self._living[key] = Block(self._next, key, device, size, at, maker, cell)
        self._next += 1
        self._kept += 1
        return block

    def _died(self, key: Key, at: int) -> bool:
        """A block is dead; whether it was known."""
        block = self._living.pop(key, None)
        if block is not None:
            block.died = at
            self.in_use[block.device] -= block.bytes
            self._dead.append(block)
            return True
        device, size = self._uncounted.pop(key, ("", 0))
        if device:
            self.in_use[device] -= size
        return device != ""

    @property
    def living(self) -> list[Block]:
        """The blocks that are alive."""
        return list(self._living.values())

    @property
    def dropped_bytes(self) -> int:
        """Bytes that are alive and in none of the lives."""
        return sum(size for _, size in self._uncounted.values())

    def blocks(self) -> Iterator[Block]:
        """Every life that is kept, in the order of birth."""
        yield from sorted([*self._dead, *self._living.values()], key=lambda block: (block.born, block.id))
