"""The allocation log: records every block of memory that passes through a request, and when the block is freed.

Guarantees: while no memory recording is on, `recording` is None, and its users only test that. While one is on, each
event extends a list by a few values, from any thread and without a lock: even when a block is freed, which may happen
inside a garbage collection. The log keeps no tensor alive, and its weak references do not cause more copies.
`lifetimes/` computes lifetimes from the log later.

Recording costs about 1 µs for each tensor that is passed on: little for a call of a millisecond, a third of a call of
8 µs. Half of that is the weak reference with its callback (`benchmarks/memory_tracking.py`).

The key of a block in host memory is the weak reference to its owner; the log keeps the reference, so keys are unique.
The key of a block on a GPU is the name of the GPU and a number (see `gpu_block`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from time import perf_counter_ns
from types import CodeType
from typing import Any, NamedTuple
from weakref import getweakrefcount, getweakrefs, ref

import numpy as np

from .registry import device_of

# Events. IN, OUT: a tensor was passed to or from a model. AGAIN: a request was passed to its model once more. ALONE: a
# request without inputs. CELL: a cell of the notebook began. The others are events of blocks.
IN, OUT, AGAIN, ALONE, CELL, ALLOCATED, MOVED, EXPORTED, FREED = -1, -2, -3, -4, -5, -6, -7, -8, -9
# Special sizes. PLAIN: follows from the data type and the shape. NOTED: another row has the size of the block.
PLAIN, NOTED = -1, -2

_number = count(1).__next__
BlockKey = ref[Any] | tuple[str, int]
Who = tuple[str, int]  # name and version of a model
Origin = tuple[CodeType, int, str]  # code, offset of the instruction, and name of the model ("" for the notebook)
_ndarray, _ref, _getweakrefs, _getweakrefcount = np.ndarray, ref, getweakrefs, getweakrefcount
_Tensors = Sequence[Any]


class LogRow(NamedTuple):
    """The fields of a row of the log. IN, OUT, AGAIN and ALONE use the first fields, all others only `details`."""

    event: int
    at: int  # reading of `perf_counter_ns`
    number: int = 0  # of the request
    other: Any = ""  # IN: number of the sending request; OUT: name of the answering instance
    who: Any = None  # the model, as `Who`
    options: Any = None  # of the request; read later, for its ID
    span: int = 0
    name: str = ""  # of the tensor, as the next two
    datatype: str = ""
    shape: tuple[int, ...] = ()
    source: Any = None  # `BlockKey` of the sender's block
    source_size: int = 0
    target: Any = None  # `BlockKey` of the receiver's block
    target_size: int = 0
    line: Origin | None = None  # that made the tensor
    details: tuple[Any, ...] = ()


def rows(log: Sequence[Any]) -> Iterable[LogRow]:
    """Iterate over the rows of a log."""
    return map(LogRow._make, zip(*[iter(log[:])] * len(LogRow._fields), strict=True))


class AllocationRecorder:
    """Records blocks of memory; calls `full` to empty a log of `most` items; `place` returns the running code."""

    __slots__ = ("_died", "_full", "_most", "_note", "base", "deaths", "log", "number", "place")

    def __init__(self, most: int, full: Callable[[], None], place: Callable[[], Origin | None] | None = None) -> None:
        # The fields of `LogRow`s, in a flat list: as objects, they would make garbage collections more frequent.
        self.log: list[Any] = []
        self.deaths: list[Any] = []  # by turns, the key of a freed block and the time
        # Returns the next request's number. Recordings share the numbers, because a request may end in the next one.
        self.number = _number
        self.base = _number()
        self._most = most
        self._full = full
        self.place = place
        self._note = self.log.extend
        self._died = _recorder(self.deaths)
        if _cell:
            self.in_cell(_cell)

    def crossed(
        self,
        before: _Tensors,
        after: _Tensors,
        event: int,
        at: int,
        number: int,
        other: int | str = "",
        who: Who | None = None,
        options: Any = None,
        span: int = 0,
    ) -> None:
        """Record the sender's and the receiver's tensors (`before`, `after`); on the path of every recorded request.

        `event` is IN, OUT or AGAIN. For IN, `other` is the number of the sending request (0: the notebook), `who` the
        model's name and version, and `options` are read later, for the ID. For OUT, `other` is the name of the
        answering instance.
        """
        died, lines = self._died, self.place is not None
        index = 0
        source: Any
        target: Any
        for got in after:
            given = before[index]
            index += 1
            array = given._array
            datatype = got._datatype
            try:
                line = given._line if lines else None
            except AttributeError:  # made by the engine, or before the recording
                line = None
            if array.__class__ is _ndarray:
                owner = array.base
                if owner is None:
                    owner, size = array, PLAIN
                elif owner.__class__ is _ndarray and owner.base is None:
                    size = owner.nbytes
                else:
                    owner = owner_of(array)
                    size = bytes_of(owner, array)
                known = _getweakrefs(owner)
                if known and known[-1].__callback__ is died:
                    source = known[-1]
                else:
                    source = _ref(owner, died)
                    if _getweakrefcount(owner) != 1:
                        source = self._watch(owner)
                if got is given:
                    if datatype == "BYTES":
                        size = bytes_of(owner, array)
                    target, room = source, size
                elif datatype != "BYTES":  # a new copy, without other references
                    target, room = _ref(got._array, died), PLAIN
                elif got._array.__class__ is _ndarray:  # a new copy, whose elements are bytes
                    target, room = _ref(got._array, died), text_bytes(got._array)
                    size = room if owner is array else bytes_of(owner, array)
                else:
                    target, room = self._block_of(got._array)
                    size = bytes_of(owner, array)
            else:
                source, size = self._block_of(array)
                target, room = (source, size) if got is given else self._block_of(got._array)
            # The fields of a `LogRow`: to make one here takes 10% of a recorded call of 12 µs.
            self._note((
                event, at, number, other, who, options, span,
                got._name, datatype, array.shape, source, size, target, room, line, (),
            ))  # fmt: skip
        if not index and event == IN:
            self._note(LogRow(ALONE, at, number, other, who, options, span))
        if len(self.log) > self._most:
            self._full()

    def _block_of(self, array: Any) -> tuple[BlockKey, int]:
        if not isinstance(array, _ndarray):
            return gpu_block(array)
        owner = array if array.base is None else owner_of(array)
        known = getweakrefs(owner)
        if known and known[-1].__callback__ is self._died:
            return known[-1], NOTED
        size = NOTED if any(one.__callback__ is self._died for one in known) else bytes_of(owner, array)
        return self._watch(owner), size

    def _watch(self, owner: Any) -> ref[Any]:
        """Return the log's reference to the owner of a block; make it if there is none."""
        made = ref(owner, self._died)
        if getweakrefcount(owner) == 1:
            return made
        # Other code may have weak references too, and two threads may make the log's reference at once. Then the one
        # that was made first counts; Python lists it last.
        return next(known for known in reversed(getweakrefs(owner)) if known.__callback__ is self._died)

    def allocated(self, device: str, number: int, size: int) -> None:
        """Record an allocation on a GPU; `number` is its address, or on a simulated GPU a unique number below 0."""
        self._rare(ALLOCATED, current_request(), (device, number), size, None if self.place is None else self.place())

    def freed(self, device: str, number: int, size: int) -> None:
        self._rare(FREED, (device, number), size)

    def moved(self, how: str, source: Any, result: Any, ns: int = 0) -> None:
        """Record that an array was copied to another device (``transfer``, in `ns` nanoseconds) or on it (``copy``)."""
        self._rare(MOVED, current_request(), how, ns, *self._block_of(source), *self._block_of(result))

    def paired(self, before: _Tensors, after: _Tensors) -> None:
        """Record the copies among tensors that were passed on; a later row has their request."""
        for given, got in zip(before, after):  # noqa: B905 - of one length
            if got is not given:
                self.moved("copy", given._array, got._array)

    def exported(self, tensor: Any) -> None:
        """Record that DLPack shares a tensor's memory from now on."""
        array = tensor._array
        metadata = tensor._name, tensor._datatype, tuple(array.shape)
        self._rare(EXPORTED, current_request(), *metadata, *self._block_of(array))

    def in_cell(self, name: str) -> None:
        self._rare(CELL, name)

    def _rare(self, event: int, *details: Any) -> None:
        self._note(LogRow(event, perf_counter_ns(), details=details))

    def stop(self) -> None:
        self.log.clear()
        self.deaths.clear()


def owner_of(array: np.ndarray[Any, Any]) -> Any:
    """Return the owner of a NumPy array's memory: the array beneath all views, or the foreign object that owns it.

    A tensor from another process lies in a file that the next tensor reuses: the tensor's own bytes are the owner.
    """
    base = array.base
    while isinstance(base, _ndarray):
        array, base = base, base.base
    if base is None or getattr(array, "is_only_way_to_memory", False):
        return array
    try:
        ref(base)
    except TypeError:
        return array
    return base


def bytes_of(owner: Any, array: np.ndarray[Any, Any]) -> int:
    """Return the size of the block that contains `array`."""
    if isinstance(owner, _ndarray):
        return text_bytes(owner) if owner.dtype.char == "O" else int(owner.nbytes)
    while isinstance(array.base, _ndarray):
        array = array.base
    return int(array.nbytes)


def text_bytes(array: Any) -> int:
    """Return the bytes of a BYTES tensor in wire form; text that is not encoded yet counts one byte a character."""
    if not hasattr(array, "tolist"):  # `TextOnGPU`, which is in wire form
        return int(array.nbytes)
    elements = array.tolist() if array.ndim == 1 else array.reshape(-1).tolist()
    try:
        return 4 * len(elements) + sum(map(len, elements))
    except TypeError:
        return 4 * len(elements) + sum(len(e) for e in elements if isinstance(e, (bytes, str)))


def gpu_block(array: Any) -> tuple[tuple[str, int], int]:
    """Return the key and the size of a GPU array's block; the address may be inside a known block."""
    array = getattr(array, "payload", array)
    device = device_of(array)
    memory = array.data.mem
    number = memory.key if device.simulated else memory.ptr
    return (device.name, number), int(memory.size)


def _recorder(deaths: list[Any]) -> Callable[[ref[Any]], None]:
    """Return the callback for a freed block. Any code may trigger it, so it takes no lock and raises nothing."""
    note, now = deaths.extend, perf_counter_ns

    def died(gone: ref[Any]) -> None:
        note((gone, now()))

    return died


recording: AllocationRecorder | None = None
# `place` of the recording, or None: the constructor of a tensor tests only this variable.
place: Callable[[], Origin | None] | None = None
_cell = ""  # the running cell of the notebook


# Returns the number of the request that this thread executes, 0 (like `int`) for none; set by the engine.
current_request: Callable[[], int] = int
# Types of this package that contain tensors, with their names as owners of memory in displays.
owner_kinds: dict[type, str] = {}


def moved(how: str, source: Any, result: Any, ns: int = 0) -> None:
    """Record that an array was moved or copied, if a recording is on; see `AllocationRecorder.moved`."""
    watching = recording
    if watching is not None:
        watching.moved(how, source, result, ns)


def unwatched(array: Any) -> bool:
    """Return whether an object has no weak references, except perhaps the log's."""
    known, on = getweakrefs(array), recording
    return not known or (on is not None and len(known) == 1 and known[0].__callback__ is on._died)


def set_cell(name: str) -> None:
    """Record that a cell of the notebook begins, such as ``In [3]``."""
    global _cell
    _cell = name
    if recording is not None:
        recording.in_cell(name)
