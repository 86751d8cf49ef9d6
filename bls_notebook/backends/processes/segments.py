"""`Segments`: the memory files in which the two ends of a channel exchange large tensors.

The last byte of a file says whether a tensor in it is in use. The receiver clears it when the tensor is dropped, and
the sender then writes the next tensor there: new memory, and a new mapping, cost several times as much as the copy. A
file has no name, so nothing is left behind, whichever side dies.
"""

from __future__ import annotations

import mmap
import os
import threading
from itertools import count
from typing import Any

import numpy as np

KEPT_BYTES = 1 << 26  # of one end of a channel
MOST_KEPT = 64  # files
_FREE, _USED = 0, 1


class _Lease(np.ndarray):
    """The bytes of a tensor that has arrived; the tensor's array keeps it alive."""

    is_only_way_to_memory = True  # see `engine/tensors/handover.py`
    _of: Any = None  # the memory, and the process that received it

    def __del__(self) -> None:
        if self._of is not None and self._of[1] == os.getpid():  # a forked child has a copy of this object
            self._of[0][-1] = _FREE


class Segments:
    """The memory files of one end of a channel."""

    def __init__(self) -> None:
        self._sent: dict[int, mmap.mmap] = {}  # to be used again
        self._received: dict[int, mmap.mmap] = {}
        self._dropped: list[int] = []  # of those sent, which the receiver still knows
        self._numbers = count(1)
        self._lock = threading.Lock()

    def write(self, data: Any, files: list[int]) -> int:
        """Write data and return the number of its file; append the file itself if the receiver does not know it.

        Raise OSError if there is no memory or file.
        """
        size = len(data)
        with self._lock:
            number, memory = self._free(size) or self._new(size, files)
            memory[-1] = _USED
        np.frombuffer(memory, np.uint8, size)[:] = data
        return number

    def _free(self, size: int) -> tuple[int, mmap.mmap] | None:
        for number, memory in self._sent.items():
            if memory[-1] == _FREE and size < len(memory) <= 2 * size + mmap.PAGESIZE:
                return number, memory
        return None

    def _new(self, size: int, files: list[int]) -> tuple[int, mmap.mmap]:
        file, number = os.memfd_create("bls-tensor", os.MFD_CLOEXEC), next(self._numbers)
        try:
            os.ftruncate(file, (size // mmap.PAGESIZE + 1) * mmap.PAGESIZE)
            memory = mmap.mmap(file, 0)
        except BaseException:
            os.close(file)
            raise
        files.append(file)
        for idle in [number for number, kept in self._sent.items() if kept[-1] == _FREE]:
            if self._has_room(len(memory)):
                break
            del self._sent[idle]
            self._dropped.append(idle)
        if self._has_room(len(memory)):
            self._sent[number] = memory
        else:
            number = -number  # the receiver must not keep it, either
        return number, memory

    def _has_room(self, size: int) -> bool:
        return len(self._sent) < MOST_KEPT and size + sum(map(len, self._sent.values())) <= KEPT_BYTES

    @property
    def has_dropped(self) -> bool:
        return bool(self._dropped)

    def dropped(self) -> list[int]:
        """Return the numbers of files that the receiver can forget."""
        out = self._dropped[:]
        del self._dropped[: len(out)]
        return out

    def forget(self, numbers: list[int]) -> None:
        """Forget files that have arrived."""
        for number in numbers:
            self._received.pop(number, None)

    def read(self, number: int, size: int, file: int | None) -> Any:
        """Return the bytes of a tensor as a buffer, from a file that has arrived now (it is closed) or before."""
        memory = self._received.get(number)
        if file is not None:
            try:
                memory = mmap.mmap(file, 0)
            finally:
                os.close(file)
            if number > 0:
                self._received[number] = memory
        lease = _Lease(size, np.uint8, memory)
        lease._of = memory, os.getpid()
        return lease

    def knows(self, number: int) -> bool:
        """Return whether a file has arrived before."""
        return number in self._received

    def close(self) -> None:
        """Give the memory up; tensors in it stay."""
        with self._lock:
            self._sent.clear()
        self._received.clear()
