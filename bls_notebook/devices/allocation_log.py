"""The allocation log: records every block of memory that passes through a request, and its death.

Guarantees: while no memory recording is on, `recording` is None and nothing else happens. While one is on, an entry
extends a list by a few plain values, from any thread and without a lock: also when a block dies, which happens
wherever Python frees memory, even inside a garbage collection. Nothing here keeps a tensor alive, and the log's weak
references do not change what the engine copies. Lifetimes are computed from the log later.

An entry costs about 1 µs for each tensor that is passed on: little of a call that takes a millisecond, a third of one
that takes 8 µs. Half of it is the weak reference with its callback (`benchmarks/memory_tracking.py`).

The key of a block in host memory is the weak reference to its owner: the log holds it, so keys are unique.
The key of a block on a GPU is the name of the GPU and a number (see `gpu_block`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from time import perf_counter_ns
from types import CodeType
from typing import Any
from weakref import getweakrefcount, getweakrefs, ref

import numpy as np

from .registry import device_of

# The log consists of rows of this many items. A tensor's has what happened, when, the number of the request,
# four items more of IN (see `Recording.crossed`) or OUT; the tensor's name, data type and shape; source's key
# and size, target's key and size; the line that made it. Any other's has what happened, when, and a tuple of
# the rest.
WIDTH = 15
SOURCE, TARGET = 10, 12
IN, OUT, AGAIN, ALONE, CELL, ALLOCATED, MOVED, EXPORTED, FREED = -1, -2, -3, -4, -5, -6, -7, -8, -9
# Instead of a size: that of the elements, as data type and shape say; it is noted elsewhere.
PLAIN, NOTED = -1, -2

_NOTHING = (None,) * 8
_number = count(1).__next__
Key = ref[Any] | tuple[str, int]
Who = tuple[str, int]
Place = tuple[CodeType, int, str]  # where in which code, and whose: see `place`
_ndarray, _ref, _getweakrefs, _getweakrefcount = np.ndarray, ref, getweakrefs, getweakrefcount
_Tensors = Sequence[Any]


class AllocationRecorder:
    """Records blocks of memory; calls `full` to empty a log of `most` items; `place` returns the running code."""

    __slots__ = ("_died", "_full", "_most", "_note", "base", "deaths", "log", "number", "place")

    def __init__(self, most: int, full: Callable[[], None], place: Callable[[], Place | None] | None = None) -> None:
        # Flat: so a garbage collection has little more to look at than the references.
        self.log: list[Any] = []
        self.deaths: list[Any] = []  # the key of a block that has died, and when; and so on
        # Numbers the requests; no two recordings give the same number, for some are answered in the next one.
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
        what: int,
        at: int,
        number: int,
        other: int | str = "",
        who: Who | None = None,
        options: Any = None,
        span: int = 0,
    ) -> None:
        """Record tensors as they were given and as their receiver has them; on the path of every tracked request.

        `what` is IN, OUT, or AGAIN for a request that is passed to its model once more. For IN, `other` is the number
        of the sending request (0: the notebook), `who` the model's name and version, and `options` are read later, for
        the ID; for OUT, `other` is the name of the answering instance.
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
            except AttributeError:  # the engine's own, or older than the track
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
                elif datatype != "BYTES":  # a copy, which nobody has seen
                    target, room = _ref(got._array, died), PLAIN
                elif got._array.__class__ is _ndarray:  # likewise, and its elements are bytes
                    target, room = _ref(got._array, died), text_bytes(got._array)
                    size = room if owner is array else bytes_of(owner, array)
                else:
                    target, room = self._block_of(got._array)
                    size = bytes_of(owner, array)
            else:
                source, size = self._block_of(array)
                target, room = (source, size) if got is given else self._block_of(got._array)
            self._note((
                what, at, number, other, who, options, span,
                got._name, datatype, array.shape, source, size, target, room, line,
            ))  # fmt: skip
        if not index and what == IN:
            self._note((ALONE, at, number, other, who, options, span, *_NOTHING))
        if len(self.log) > self._most:
            self._full()

    def answered(self, number: int, instance: str, outputs: _Tensors) -> None:
        """Record a response that reaches its requester as it is; `number` is the request's."""
        self.crossed(outputs, outputs, OUT, perf_counter_ns(), number, instance)

    def handed(self, number: int, before: _Tensors, after: _Tensors) -> None:
        """Record a request that is passed to its model once more."""
        self.crossed(before, after, AGAIN, perf_counter_ns(), number)

    def _block_of(self, array: Any) -> tuple[Key, int]:
        if not isinstance(array, _ndarray):
            return gpu_block(array)
        owner = array if array.base is None else owner_of(array)
        known = getweakrefs(owner)
        if known and known[-1].__callback__ is self._died:
            return known[-1], NOTED
        size = NOTED if any(one.__callback__ is self._died for one in known) else bytes_of(owner, array)
        return self._watch(owner), size

    def _watch(self, owner: Any) -> ref[Any]:
        """Return the log's reference to the owner of a block, new if there is none."""
        made = ref(owner, self._died)
        if getweakrefcount(owner) == 1:
            return made
        # Others may have references of their own, and two threads may be about to make the log's: then the
        # first that was made counts for both, which is the last of them in this list.
        return next(known for known in reversed(getweakrefs(owner)) if known.__callback__ is self._died)

    def allocated(self, device: str, number: int, size: int) -> None:
        """Record memory from a GPU; `number` is its address, or unique and below 0 on a simulated GPU."""
        line = None if self.place is None else self.place()
        self._rare(ALLOCATED, current_request(), (device, number), size, line)

    def freed(self, device: str, number: int, size: int) -> None:
        self._rare(FREED, (device, number), size)

    def moved(self, how: str, source: Any, result: Any, ns: int = 0) -> None:
        """Record that an array came to another device (``transfer``, in `ns` nanoseconds) or was copied (``copy``)."""
        self._rare(MOVED, current_request(), how, ns, *self._block_of(source), *self._block_of(result))

    def paired(self, before: _Tensors, after: _Tensors) -> None:
        """Record the copies among tensors that were passed on, for requests known later."""
        for given, got in zip(before, after):  # noqa: B905 - of one length
            if got is not given:
                self.moved("copy", given._array, got._array)

    def exported(self, tensor: Any) -> None:
        """Record that DLPack shares a tensor's memory from now on."""
        array = tensor._array
        facts = tensor._name, tensor._datatype, tuple(array.shape)
        self._rare(EXPORTED, current_request(), *facts, *self._block_of(array))

    def in_cell(self, name: str) -> None:
        self._rare(CELL, name)

    def _rare(self, what: int, *about: Any) -> None:
        self._note((what, perf_counter_ns(), about, None, None, None, None, *_NOTHING))

    def stop(self) -> None:
        self.log.clear()
        self.deaths.clear()


def owner_of(array: np.ndarray[Any, Any]) -> Any:
    """Return the owner of a NumPy array's memory: the array beneath all views, or what that borrows its memory from."""
    base = array.base
    while isinstance(base, _ndarray):
        array, base = base, base.base
    if base is None:
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
    """Return the bytes of a BYTES tensor in wire form; text that is not encoded yet counts by its characters."""
    if not hasattr(array, "tolist"):  # on a GPU it is held so
        return int(array.nbytes)
    elements = array.tolist() if array.ndim == 1 else array.reshape(-1).tolist()
    try:
        return 4 * len(elements) + sum(map(len, elements))
    except TypeError:
        return 4 * len(elements) + sum(len(e) for e in elements if isinstance(e, (bytes, str)))


def gpu_block(array: Any) -> tuple[tuple[str, int], int]:
    """Return the key and the size of a GPU array's block; the address may lie inside a known block."""
    array = getattr(array, "payload", array)
    device = device_of(array)
    memory = array.data.mem
    number = memory.key if device.simulated else memory.ptr
    return (device.name, number), int(memory.size)


def _recorder(deaths: list[Any]) -> Callable[[ref[Any]], None]:
    """Return the callback for the death of a block. It may run anywhere, so it takes no lock and raises nothing."""
    note, now = deaths.extend, perf_counter_ns

    def died(gone: ref[Any]) -> None:
        note((gone, now()))

    return died


death_code = _recorder([]).__code__
recording: AllocationRecorder | None = None
# What the recording has as `place`, for where tensors are made: nothing else is asked there while none is on.
place: Callable[[], Place | None] | None = None
_cell = ""  # of the notebook, that runs now


# Gives the number of the request that is executed on this thread, 0 (as here) for none; the engine sets it.
current_request: Callable[[], int] = int
# Types of this package that have tensors inside, and the kind of owner that an allocation table calls them.
owner_kinds: dict[type, str] = {}


def moved(how: str, source: Any, result: Any, ns: int = 0) -> None:
    """Record that an array was moved or copied, if a recording is on; see `AllocationRecorder.moved`."""
    watching = recording
    if watching is not None:
        watching.moved(how, source, result, ns)


def unwatched(array: Any) -> bool:
    """Return whether nobody has a weak reference to an object, except perhaps the log."""
    known, on = getweakrefs(array), recording
    return not known or (on is not None and len(known) == 1 and known[0].__callback__ is on._died)


def set_cell(name: str) -> None:
    """Record the cell of the notebook that runs from now on, such as ``In [3]``."""
    global _cell
    _cell = name
    if recording is not None:
        recording.in_cell(name)
