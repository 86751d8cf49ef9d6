"""`CudaGPUs`: CUDA's GPUs through CuPy, which the constructor imports.

Guarantees: pending work on a tensor is complete before another consumer gets it. A tensor has no stream, and its
sender may have used several, also of other frameworks; so `finish` waits for the whole GPU, which takes a few
microseconds if the GPU is idle. The calling thread's current GPU is the same afterwards.

`Staging` copies between a GPU and ordinary host memory at the speed of the bus. The driver reaches that speed
from pinned memory only, so several threads copy pieces to pinned memory (NumPy releases the GIL meanwhile)
while earlier pieces are on the bus. Copies to one GPU run one after the other. Before memory is written, work queued
on the current stream is complete, because CuPy's pool reuses memory that this work may still read.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from weakref import getweakrefcount

import numpy as np

from bls_notebook.records.statistics import DeviceRecord

from . import dlpack
from .device import Device, DeviceError

_Array = np.ndarray[Any, Any]
PIECE = 4 << 20
# Smaller copies are as fast without staging.
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
    """Copies between host memory and GPUs with several threads: by default one for two cores, at most 8."""

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
        """Return a copy of a C-contiguous array on the current GPU, which must be idle."""
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
        """Split a copy among the lanes of a GPU; return when all are done."""
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
                    lane.stream.synchronize()  # also after an error: no copy may continue in the background

            used = min(self._count, len(steps))
            futures = [threads.submit(one, number) for number in range(1, used)]
            try:
                one(0)
            finally:
                errors = [future.exception() for future in futures]
            for error in errors:
                if error is not None:
                    raise error


class CudaGPUs:
    """CUDA's GPUs, see `GPUs`; DeviceError if CuPy cannot be imported or finds none."""

    simulated = False

    def __init__(self) -> None:
        try:
            import cupy

            self.count: int = cupy.cuda.runtime.getDeviceCount()
        except Exception as error:  # also for an incompatible driver or library
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise DeviceError(f"CuPy finds none: {reason[0]}") from error
        self._cupy = cupy
        self._runtime = cupy.cuda.runtime
        self.array_class: type[Any] = cupy.ndarray
        self._staging = Staging(cupy)
        self._unheld: frozenset[tuple[int, ...]] = frozenset()
        self._pooled: type[Any] = object

    @contextmanager
    def _on(self, index: int) -> Iterator[None]:
        before = self._runtime.getDevice()
        if before == index:
            yield
            return
        self._runtime.setDevice(index)
        try:
            yield
        finally:
            self._runtime.setDevice(before)

    def usage(self, index: int) -> DeviceRecord:
        with self._on(index):
            free, total = self._runtime.memGetInfo()
            pool = self._cupy.get_default_memory_pool()
            ours, held = pool.used_bytes(), pool.total_bytes()
        name = self._runtime.getDeviceProperties(index)["name"].decode(errors="replace")
        others = max(0, total - free - held)
        return DeviceRecord(f"gpu:{index}", name, False, ours, held - ours, others, total)

    def device_of(self, array: Any) -> Device:
        return Device("gpu", array.data.device_id)

    def from_host(self, host: _Array, index: int) -> Any:
        with self._on(index):
            out = self._cupy.empty(host.shape, host.dtype)
            if out.nbytes:
                self._staging.upload(np.ascontiguousarray(host), out)
        return out

    def buffer(self, shape: tuple[int, ...], dtype: Any, index: int) -> Any:
        """Return an uninitialized array, whose memory no pending work uses, for another process to fill."""
        with self._on(index):
            out = self._cupy.empty(shape, dtype)
            self._runtime.deviceSynchronize()
        return out

    def exportable(self, shape: tuple[int, ...], dtype: Any, index: int) -> Any:
        """Return an array as `buffer` does, in memory of `cudaMalloc`; asynchronous allocators have other memory."""
        with self._on(index):
            memory = self._cupy.cuda.Memory(max(1, math.prod(shape) * np.dtype(dtype).itemsize))
            return self._cupy.ndarray(shape, dtype, self._cupy.cuda.MemoryPointer(memory, 0))

    def to_host(self, array: Any) -> _Array:
        with self._on(array.data.device_id):
            self._runtime.deviceSynchronize()
            return self._staging.download(self._cupy.ascontiguousarray(array))

    def to_gpu(self, array: Any, index: int) -> Any:
        with self._on(array.data.device_id):
            self._runtime.deviceSynchronize()
            array = self._cupy.ascontiguousarray(array)
            if array.data.device_id != index:
                self._runtime.deviceSynchronize()
        with self._on(index):
            out = self._cupy.empty(array.shape, array.dtype)
        self.copy(array, out)
        return out

    def copy(self, array: Any, out: Any) -> None:
        """Copy a contiguous array without pending work into another one of its size."""
        with self._on(out.data.device_id):
            if out.nbytes:
                stream = self._cupy.cuda.get_current_stream()
                out.data.copy_from_device_async(array.data, out.nbytes, stream)
                stream.synchronize()

    def finish(self, array: Any) -> None:
        with self._on(array.data.device_id):
            self._runtime.deviceSynchronize()

    def unheld(self, array: Any) -> bool:
        if not self._unheld:
            self._unheld = self._calibrated()
        return self._counts(array) in self._unheld

    def _counts(self, array: Any) -> tuple[int, ...]:
        """Reference counts of an array's pointer, its memory, and the array that it is a view of."""
        pointer, base = array.data, array.base
        if type(pointer.mem) is not self._pooled:
            return ()  # such as memory of a DLPack capsule
        counts = sys.getrefcount(pointer), sys.getrefcount(pointer.mem)
        if base is None:
            return counts
        if type(base) is not self.array_class or getweakrefcount(base):
            return ()
        return (*counts, sys.getrefcount(base))

    def _calibrated(self) -> frozenset[tuple[int, ...]]:
        # The results of `_counts` for arrays without other references, measured because versions of Python differ.
        plain = self._cupy.empty(16)
        self._pooled = type(plain.data.mem)
        view = self._cupy.empty(16).reshape(4, 4)
        return frozenset({self._counts(plain), self._counts(view)})

    def capsule(self, array: Any, owner: object) -> object:
        return array.__dlpack__(stream=-1)  # no synchronization, because no work on it is pending

    def array_of(self, capsule: object) -> Any:
        _, index = dlpack.device_of_capsule(capsule)
        with self._on(index):
            return self._cupy.from_dlpack(capsule)

    def for_workers(self) -> None:
        """Return None: a worker uses CUDA's driver itself."""

    def array_module(self) -> Any:
        return self._cupy

    def current(self) -> int:
        return int(self._runtime.getDevice())

    def set_current(self, index: int) -> None:
        self._runtime.setDevice(index)
