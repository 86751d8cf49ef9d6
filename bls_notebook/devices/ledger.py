"""The ledger: takes note of every block of memory that passes through a request, and of its death.

Guarantees: while no track is on, `recording` is None and nothing else happens. While one is on, taking note
is appending to a list, from any thread and without a lock: also where a death is noted, which happens
wherever Python frees memory, inside a garbage collection too. Nothing here keeps a tensor alive, and the
weak references that the ledger holds change nothing about what the engine copies. What was noted becomes
lives later, in `book`.

A block in host memory has a number as its key, one on a GPU the name of the GPU and a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from sys import getrefcount as _getrefcount
from time import perf_counter_ns
from typing import Any
from weakref import getweakrefcount, getweakrefs, ref

import numpy as np

from .device import Device
from .holding import RecordingNumber
from .owners import bytes_of, elements_bytes, gpu_block, owner_of

__all__ = ["Recording", "current_request", "recording", "set_cell", "unwatched"]

# What an entry of the log begins with; a positive number or a tuple is the key of a block that has died.
IN, OUT, CELL, ALLOCATED, MOVED, EXPORTED, FREED, AGAIN = -1, -2, -3, -4, -5, -6, -7, -8
FIELDS = 7  # of each tensor: name, data type, shape, source's key and size, target's key and size

Key = int | tuple[str, int]
Who = tuple[str, int]
_ndarray = np.ndarray
_Tensors = Sequence[Any]


class Recording:
    """What is noted while a track is on; an `Observer` of devices.

    Parameters
    ----------
    most : int
        Items of the log.
    full : callable
        Called when there are more, to take some away.
    """

    __slots__ = ("_died", "_full", "_hold", "_most", "_note", "_number", "held", "log")

    def __init__(self, most: int, full: Callable[[], None]) -> None:
        # Flat, and of numbers and text: so it holds next to nothing that a garbage collection looks at.
        self.log: list[Any] = []
        self.held: list[ref[Any]] = []  # of blocks that live, and of some that did; its id is a block's key
        self._most = most
        self._full = full
        self._note = self.log.extend
        self._hold = self.held.append
        self._number = count(1).__next__
        self._died = _recorder(self.log)
        if _cell:
            self.in_cell(_cell)

    # -- requests ----------------------------------------------------------------------------------

    def received(
        self, who: Who, parent: int, options: Any, at: int, away: bool, before: _Tensors, after: _Tensors
    ) -> int:
        """A request has been handed to a model.

        Parameters
        ----------
        who : tuple of str and int
            Name and version of the model.
        parent : int
            Number of the request whose `execute` sent it, 0 for the notebook.
        options : Options
            Of the request; its ID is read later.
        at : int
            When, in nanoseconds of `perf_counter_ns`.
        away : bool
            Whoever gave the tensors has let go of what they were in.
        before, after : list of Tensor
            As they were given, and as the model gets them.

        Returns
        -------
        int
            The request's number.
        """
        number = self._number()
        if len(after) == 1:
            crossed = self._crossed(before[0], after[0], away)
            self._note((IN, at, number, parent, who, options, 1, *crossed))
        else:
            several = self._several(before, after)
            self._note((IN, at, number, parent, who, options, len(after), *several))
        return number

    def answered(self, number: int, instance: str, away: bool, before: _Tensors, after: _Tensors) -> None:
        """A response has been handed to its requester; `number` is the request's."""
        if len(after) == 1:
            crossed = self._crossed(before[0], after[0], away)
            self._note((OUT, perf_counter_ns(), number, instance, 1, *crossed))
        else:
            several = self._several(before, after)
            self._note((OUT, perf_counter_ns(), number, instance, len(after), *several))
        if len(self.log) > self._most:
            self._full()

    def handed(self, number: int, before: _Tensors, after: _Tensors) -> None:
        """A request is handed to its model once more."""
        tensors = self._several(before, after)
        self._note((AGAIN, perf_counter_ns(), number, "", len(after), *tensors))

    def _several(self, before: _Tensors, after: _Tensors) -> list[Any]:
        items: list[Any] = []
        for index in range(len(after)):
            items += self._crossed(before[index], after[index], False)
        return items

    def _crossed(self, given: Any, got: Any, away: bool) -> tuple[Any, ...]:
        """What is noted of a tensor: name, data type, shape, and both blocks."""
        array = given._array
        plain = array.__class__ is _ndarray
        text = -1
        source: Key
        if (
            away
            and plain
            and got is not given
            and _getrefcount(given) == _TENSOR_UNHELD
            and _getrefcount(array) == _ARRAY_UNHELD
            and array.base is None
            and not getweakrefs(array)
        ):
            source, size = 0, array.nbytes  # it dies now
        else:
            source, size = self._key_of(array)
        if got is given:
            return got._name, got._datatype, array.shape, source, size, source, text
        array = got._array
        target: Key
        if plain and array.__class__ is _ndarray and array.base is None:  # a copy
            made = ref(array, self._died)
            self._hold(made)
            target = id(made)
            if got._datatype == "BYTES":
                text = elements_bytes(array)
                if not source:
                    size = text
        else:
            target, text = self._key_of(array)
        return got._name, got._datatype, array.shape, source, size, target, text

    def _key_of(self, array: Any) -> tuple[Key, int]:
        """The key of an array's block; and its size, or -1 where that is known already."""
        if not isinstance(array, _ndarray):
            return gpu_block(array)
        owner = array if array.base is None else owner_of(array)
        for known in getweakrefs(owner):
            if known.__callback__ is self._died:
                return id(known), -1
        made = ref(owner, self._died)
        self._hold(made)
        return id(made), bytes_of(owner, array)

    # -- devices (observer.Observer) -----------------------------------------------------------------

    def allocated(self, device: Device, memory: Any, size: int) -> None:
        """A GPU gave memory."""
        self.took(device.name, memory.key, size)

    def took(self, device: str, number: int, size: int) -> None:
        """A GPU gave memory, known by a number."""
        self._note((ALLOCATED, perf_counter_ns(), current_request(), (device, number), size))

    def freed(self, device: Device, key: int, size: int) -> None:
        """Memory of a GPU is free again."""
        self.gave_back(device.name, key, size)

    def gave_back(self, device: str, number: int, size: int) -> None:
        """Memory of a GPU, known by a number, is free again."""
        self._note((FREED, perf_counter_ns(), (device, number), size))

    def transferred(self, source: Any, result: Any, from_device: Device, to_device: Device, ns: int) -> None:
        """Data went to another device."""
        self._moved("transfer", ns, source, result)

    def copied(self, source: Any, result: Any, device: Device) -> None:
        """The engine copied an array on its device."""
        self._moved("copy", 0, source, result)

    def _moved(self, how: str, ns: int, source: Any, result: Any) -> None:
        now, number = perf_counter_ns(), current_request()
        self._note((MOVED, now, number, how, ns, *self._key_of(source), *self._key_of(result)))

    # -- the rest ------------------------------------------------------------------------------------

    def paired(self, before: _Tensors, after: _Tensors) -> None:
        """Tensors were handed over, to whom is said later."""
        for given, got in zip(before, after):  # noqa: B905 - of one length
            if got is not given:
                self._moved("copy", 0, given._array, got._array)

    def exported(self, tensor: Any) -> None:
        """A tensor's memory is shared by DLPack from now on."""
        array = tensor._array
        facts = tensor._name, tensor._datatype, tuple(array.shape)
        self._note((EXPORTED, perf_counter_ns(), current_request(), *facts, *self._key_of(array)))

    def in_cell(self, name: str) -> None:
        """A cell of the notebook begins."""
        self._note((CELL, perf_counter_ns(), name))

    def unwatched(self, array: Any) -> bool:
        """Whether the ledger's is the only weak reference to an object."""
        return getweakrefcount(array) == 1 and getweakrefs(array)[0].__callback__ is self._died

    def owners(self) -> dict[int, Any]:
        """What owns the blocks that live in host memory, by their keys. Keep it for a moment only."""
        found = ((id(known), known()) for known in list(self.held))
        return {key: owner for key, owner in found if owner is not None}

    def tidy(self) -> None:
        """Forget the blocks that are dead. Nobody else may be doing so."""
        held = self.held
        count = len(held)
        held[:count] = [known for known in held[:count] if known() is not None]

    def stop(self) -> None:
        """Watch nothing any more."""
        self.held.clear()


def _recorder(log: list[Any]) -> Callable[[ref[Any]], None]:
    """What is called when a block dies. It may be called anywhere: it takes no lock and raises nothing."""
    note, now, key_of = log.extend, perf_counter_ns, id

    def died(gone: ref[Any]) -> None:
        note((key_of(gone), now()))

    return died


recording: Recording | None = None
_cell = ""  # of the notebook, that runs now


def _no_request() -> int:
    return 0


# Gives the number of the request that is executed on this thread, 0 for none; the engine sets it.
current_request: Callable[[], int] = _no_request


def unwatched(array: Any) -> bool:
    """Whether nobody has a weak reference to an object, but perhaps the ledger."""
    return getweakrefcount(array) == 0 or (recording is not None and recording.unwatched(array))


def set_cell(name: str) -> None:
    """Say which cell of the notebook runs from now on, such as ``In [3]``."""
    global _cell
    _cell = name
    if recording is not None:
        recording.in_cell(name)


def _calibrate() -> None:
    """Find out what counts an array and a tensor have in `_crossed` that nobody else holds."""
    global _TENSOR_UNHELD, _ARRAY_UNHELD
    one = Recording(1 << 30, lambda: None)

    def cross(before: list[Any]) -> None:
        after = [_Given(before[0]._array.copy())]
        one.answered(0, "", True, before, after)

    recorder = RecordingNumber()
    _TENSOR_UNHELD = recorder  # type: ignore[assignment]
    cross([_Given(np.zeros(1))])
    kept = _Given(np.zeros(1))
    cross([kept])
    _TENSOR_UNHELD = recorder.unheld()
    if _TENSOR_UNHELD < 0:
        return
    recorder = RecordingNumber()
    _ARRAY_UNHELD = recorder  # type: ignore[assignment]
    cross([_Given(np.zeros(1))])
    array = np.zeros(1)
    cross([_Given(array)])
    _ARRAY_UNHELD = recorder.unheld()


class _Given:
    """Stands in for a tensor."""

    _name = _datatype = ""

    def __init__(self, array: Any) -> None:
        self._array = array


_TENSOR_UNHELD: int = -1
_ARRAY_UNHELD: int = -1
_calibrate()
