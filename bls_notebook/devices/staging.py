"""`Staging`: copies between a GPU and ordinary host memory at the pace of the bus.

The driver reaches that pace from pinned memory only. Ordinary memory goes there in pieces, by several
threads at once (NumPy lets go of the interpreter while it copies), while pieces before are on the bus.

Guarantees: a copy is whole when the call returns; calls from several threads to one GPU take turns. What was
queued on the current stream is done before memory is written: CuPy's pool hands out memory that earlier work
of that stream may still read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

_Array = np.ndarray[Any, Any]
PIECE = 4 << 20
# Below this, the driver's own way is as quick.
SMALL = 1 << 20
_BUFFERS = 2  # a lane fills one while the other is on the bus


class _Lane:
    """One thread's stream and pinned memory on one GPU."""

    def __init__(self, cupy: Any) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.memory = [cupy.cuda.alloc_pinned_memory(PIECE) for _ in range(_BUFFERS)]
        self.buffers = [np.frombuffer(m, np.uint8, PIECE) for m in self.memory]
        self.events = [cupy.cuda.Event(disable_timing=True) for _ in range(_BUFFERS)]


class Staging:
    """Copies between host memory and GPUs, by so many threads; half of the cores by default, 8 at most."""

    def __init__(self, cupy: Any, threads: int | None = None) -> None:
        self._cupy = cupy
        self._runtime = cupy.cuda.runtime
        self._count = threads or min(8, max(1, (os.cpu_count() or 2) // 2))
        self._lanes: dict[int, list[_Lane]] = {}
        self._locks: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def upload(self, host: _Array, out: Any) -> None:
        """Copy a C-contiguous host array into an array on the current GPU."""
        stream = self._cupy.cuda.get_current_stream()
        if host.nbytes < SMALL or self._is_pinned(host):
            out.data.copy_from_host_async(host.ctypes.data, host.nbytes, stream)
            stream.synchronize()
            return
        stream.synchronize()
        flat = host.reshape(-1).view(np.uint8)
        start, host_to_device = out.data.ptr, self._runtime.memcpyHostToDevice

        def pieces(lane: _Lane, mine: range) -> None:
            for turn, at in enumerate(mine):
                slot = turn % _BUFFERS
                piece = flat[at : at + PIECE]
                if turn >= _BUFFERS:
                    lane.events[slot].synchronize()
                np.copyto(lane.buffers[slot][: piece.size], piece)
                source = lane.buffers[slot].ctypes.data
                self._runtime.memcpyAsync(start + at, source, piece.size, host_to_device, lane.stream.ptr)
                lane.events[slot].record(lane.stream)

        self._run(out.data.device_id, flat.size, pieces)

    def download(self, array: Any) -> _Array:
        """Return a copy of a C-contiguous array on the current GPU, on which nothing is being done."""
        out = np.empty(array.shape, array.dtype)
        if not out.nbytes:
            return out
        stream = self._cupy.cuda.get_current_stream()
        if out.nbytes < SMALL:
            array.data.copy_to_host_async(out.ctypes.data, out.nbytes, stream)
            stream.synchronize()
            return out
        stream.synchronize()
        flat = out.reshape(-1).view(np.uint8)
        start, device_to_host = array.data.ptr, self._runtime.memcpyDeviceToHost

        def fetch(lane: _Lane, slot: int, at: int) -> None:
            size = min(PIECE, flat.size - at)
            target = lane.buffers[slot].ctypes.data
            self._runtime.memcpyAsync(target, start + at, size, device_to_host, lane.stream.ptr)
            lane.events[slot].record(lane.stream)

        def pieces(lane: _Lane, mine: range) -> None:
            for turn, at in enumerate(mine[:_BUFFERS]):
                fetch(lane, turn, at)
            for turn, at in enumerate(mine):
                slot = turn % _BUFFERS
                lane.events[slot].synchronize()
                piece = flat[at : at + PIECE]
                np.copyto(piece, lane.buffers[slot][: piece.size])
                if turn + _BUFFERS < len(mine):
                    fetch(lane, slot, mine[turn + _BUFFERS])

        self._run(array.data.device_id, flat.size, pieces)
        return out

    def _is_pinned(self, host: _Array) -> bool:
        kind = self._runtime.pointerGetAttributes(host.ctypes.data).type
        return bool(kind == self._runtime.memoryTypeHost)

    def _run(self, device: int, size: int, work: Callable[[_Lane, range], None]) -> None:
        """Share the pieces of a copy among the lanes of a GPU; return when all are through."""
        with self._lock:
            lock = self._locks.setdefault(device, threading.Lock())
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="bls-staging")
            threads = self._threads
        with lock:
            lanes = self._lanes.get(device)
            if lanes is None:
                lanes = self._lanes[device] = [_Lane(self._cupy) for _ in range(self._count)]
            steps = range(0, size, PIECE)

            def one(number: int) -> None:
                self._runtime.setDevice(device)
                lane = lanes[number]
                try:
                    work(lane, steps[number :: self._count])
                finally:
                    lane.stream.synchronize()  # also of a failed copy: nothing may write later

            used = min(self._count, len(steps))
            futures = [threads.submit(one, number) for number in range(1, used)]
            try:
                one(0)
            finally:
                errors = [future.exception() for future in futures]
            for error in errors:
                if error is not None:
                    raise error
