"""As much of CuPy as `Staging` uses, on host memory: copies are done late, when they are waited for, so that
code which does not wait reads nonsense.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["FakeArray", "fake_cupy"]


class Stream:
    """Does its work when somebody waits for it."""

    numbers: dict[int, Stream] = {}

    def __init__(self, non_blocking: bool = False) -> None:
        self.ptr = len(Stream.numbers) + 1
        Stream.numbers[self.ptr] = self
        self.work: deque[Callable[[], None]] = deque()
        self.lock = threading.Lock()

    def synchronize(self, until: Callable[[], None] | None = None) -> None:
        with self.lock:
            while self.work:
                step = self.work.popleft()
                step()
                if step is until:
                    return


class Event:
    def __init__(self, disable_timing: bool = False) -> None:
        self.stream: Stream | None = None
        self.done: Callable[[], None] | None = None

    def record(self, stream: Stream) -> None:
        self.stream, self.done = stream, lambda: None
        stream.work.append(self.done)

    def synchronize(self) -> None:
        assert self.stream is not None
        if self.done in self.stream.work:
            self.stream.synchronize(self.done)


class Pointer:
    def __init__(self, array: FakeArray) -> None:
        self.ptr = array.memory.ctypes.data
        self.device_id = 0

    def copy_from_host_async(self, source: int, size: int, stream: Stream) -> None:
        stream.work.append(lambda: ctypes.memmove(self.ptr, source, size))  # type: ignore[arg-type, return-value]

    def copy_to_host_async(self, target: int, size: int, stream: Stream) -> None:
        stream.work.append(lambda: ctypes.memmove(target, self.ptr, size))  # type: ignore[arg-type, return-value]


class FakeArray:
    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self.memory = host.copy()
        self.shape, self.dtype, self.nbytes = host.shape, host.dtype, host.nbytes
        self.data = Pointer(self)


def fake_cupy(pinned: set[int], fail_at: int = -1) -> Any:
    """CuPy; `pinned` has the addresses of pinned memory, the copy of number `fail_at` fails."""
    Stream.numbers.clear()
    current = Stream()
    copies = iter(range(10**9))

    def memcpy_async(target: int, source: int, size: int, kind: int, stream: int) -> None:
        if next(copies) == fail_at:
            raise RuntimeError("cudaErrorIllegalAddress")
        work = Stream.numbers[stream].work
        work.append(lambda: ctypes.memmove(target, source, size))  # type: ignore[arg-type, return-value]

    def alloc(size: int) -> bytearray:
        return bytearray(b"\xee" * size)

    runtime = SimpleNamespace(
        memcpyAsync=memcpy_async,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
        memoryTypeHost=1,
        setDevice=lambda index: None,
        pointerGetAttributes=lambda address: SimpleNamespace(type=int(address in pinned)),
    )
    cuda = SimpleNamespace(
        runtime=runtime, Stream=Stream, Event=Event, alloc_pinned_memory=alloc, get_current_stream=lambda: current
    )
    return SimpleNamespace(cuda=cuda)
