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
from time import perf_counter_ns
from typing import Any
from weakref import getweakrefcount, getweakrefs, ref

import numpy as np

from .device import Device
from .owners import bytes_of, elements_bytes, gpu_block, owner_of

__all__ = ["Recording", "current_request", "recording", "set_cell", "unwatched"]

# What an entry of the log begins with; a positive number or a tuple is the key of a block that has died.
IN, OUT, CELL, ALLOCATED, MOVED, EXPORTED, FREED, AGAIN = -1, -2, -3, -4, -5, -6, -7, -8
FIELDS = 7  # of each tensor: name, data type, shape, source's key and size, target's key and size
FOLD_AT = 50_000  # items of the log

Key = int | tuple[str, int]
_ndarray = np.ndarray
_Tensors = Sequence[Any]


class Recording:
    """What is noted while a track is on; an `Observer` of devices.

    Parameters
    ----------
    fold : callable
        Called when there is much in the log, to take it from there.
    """

    __slots__ = ("_died", "_fold", "_note", "_number", "log", "refs")

    def __init__(self, fold: Callable[[], None]) -> None:
        self.log: list[Any] = []  # flat, so that it holds next to nothing that a garbage collection looks at
        self.refs: dict[int, ref[Any]] = {}  # one for each block that lives, by its own id: the block's key
        self._fold = fold
        self._note = self.log.extend
        self._number = count(1).__next__
        self._died = _recorder(self.refs, self.log)
        if _cell:
            self.in_cell(_cell)

    # -- requests ----------------------------------------------------------------------------------

    def received(
        self, model: str, version: int, parent: int, options: Any, at: int, before: _Tensors, after: _Tensors
    ) -> int:
        """A request has been handed to a model.

        Parameters
        ----------
        model, version
            Who gets it.
        parent : int
            Number of the request whose `execute` sent it, 0 for the notebook.
        options : Options
            Of the request; its ID is read later.
        at : int
            When, in nanoseconds of `perf_counter_ns`.
        before, after : sequence of Tensor
            As they were given, and as the model gets them.

        Returns
        -------
        int
            The request's number.
        """
        number = self._number()
        tensors = self._crossed(before, after)
        self._note((IN, at, number, parent, model, version, options, len(tensors) // FIELDS, *tensors))
        return number

    def answered(self, number: int, instance: str, before: _Tensors, after: _Tensors) -> None:
        """A response has been handed to its requester; `number` is the request's."""
        tensors = self._crossed(before, after)
        self._note((OUT, perf_counter_ns(), number, instance, len(tensors) // FIELDS, *tensors))
        if len(self.log) > FOLD_AT:
            self._fold()

    def handed(self, number: int, before: _Tensors, after: _Tensors) -> None:
        """A request is handed to its model once more."""
        tensors = self._crossed(before, after)
        self._note((AGAIN, perf_counter_ns(), number, "", len(tensors) // FIELDS, *tensors))

    def _crossed(self, before: _Tensors, after: _Tensors) -> list[Any]:
        items: list[Any] = []
        for given, got in zip(before, after):  # noqa: B905 - of one length, and strict takes time
            array = given._array
            plain = array.__class__ is _ndarray
            source, size = self._key_of(array)
            text = -1
            if got is given:
                target = source
            else:
                array = got._array
                if plain and array.__class__ is _ndarray:
                    made = ref(array, self._died)
                    target = id(made)
                    self.refs[target] = made
                    if got._datatype == "BYTES":
                        text = elements_bytes(array)
                else:
                    target, text = self._key_of(array)
            items += (got._name, got._datatype, array.shape, source, size, target, text)
        return items

    def _key_of(self, array: Any) -> tuple[Key, int]:
        """The key of an array's block; and its size, or -1 where that is known already."""
        if not isinstance(array, _ndarray):
            return gpu_block(array)
        owner = array if array.base is None else owner_of(array)
        for known in getweakrefs(owner):
            key = id(known)
            if key in self.refs:
                return key, -1
        made = ref(owner, self._died)
        key = id(made)
        self.refs[key] = made
        return key, bytes_of(owner, array)

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
        return getweakrefcount(array) == 1 and id(getweakrefs(array)[0]) in self.refs

    def owner(self, key: Key) -> Any:
        """What owns a block in host memory, for a moment; None where it is gone, or on a GPU."""
        known = self.refs.get(key) if isinstance(key, int) else None
        return None if known is None else known()

    def stop(self) -> None:
        """Watch nothing any more."""
        self.refs.clear()


def _recorder(refs: dict[int, ref[Any]], log: list[Any]) -> Callable[[ref[Any]], None]:
    """What is called when a block dies. It may be called anywhere: it takes no lock and raises nothing."""
    forget, note, now, key_of = refs.pop, log.extend, perf_counter_ns, id

    def died(gone: ref[Any]) -> None:
        key = key_of(gone)
        forget(key, None)
        note((key, now()))

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
