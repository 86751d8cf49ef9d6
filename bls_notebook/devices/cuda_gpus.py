"""`CudaGPUs`: CUDA's GPUs through CuPy, which is imported when the first of these is made.

Guarantees: data that is handed on is finished. A tensor has no stream: its giver may have used any number
of them, also of other frameworks, so `finish` waits for the whole GPU; with nothing under way that takes a
few microseconds. The current GPU of the calling thread is the same afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import getweakrefcount

import numpy as np

from bls_notebook.records.devices import DeviceRecord

from . import dlpack
from .device import Device, DeviceError
from .staging import Staging

_Array = np.ndarray[Any, Any]


class CudaGPUs:
    """See `GPUs`; a DeviceError where CuPy cannot be imported, or finds none."""

    simulated = False

    def __init__(self) -> None:
        try:
            import cupy

            self.count: int = cupy.cuda.runtime.getDeviceCount()
        except Exception as error:  # also of a driver or a library that does not fit
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
            if out.nbytes:
                stream = self._cupy.cuda.get_current_stream()
                out.data.copy_from_device_async(array.data, out.nbytes, stream)
                stream.synchronize()
        return out

    def finish(self, array: Any) -> None:
        with self._on(array.data.device_id):
            self._runtime.deviceSynchronize()

    def unheld(self, array: Any) -> bool:
        if not self._unheld:
            self._unheld = self._calibrated()
        return self._counts(array) in self._unheld

    def _counts(self, array: Any) -> tuple[int, ...]:
        """How many hold each part of an array: its pointer, its memory, and what it is a view of."""
        pointer, base = array.data, array.base
        if type(pointer.mem) is not self._pooled:
            return ()  # over a DLPack capsule, say
        counts = sys.getrefcount(pointer), sys.getrefcount(pointer.mem)
        if base is None:
            return counts
        if type(base) is not self.array_class or getweakrefcount(base):
            return ()
        return (*counts, sys.getrefcount(base))

    def _calibrated(self) -> frozenset[tuple[int, ...]]:
        # What `_counts` gives for arrays that nobody else holds; measured, because Pythons differ.
        plain = self._cupy.empty(16)
        self._pooled = type(plain.data.mem)
        view = self._cupy.empty(16).reshape(4, 4)
        return frozenset({self._counts(plain), self._counts(view)})

    def capsule(self, array: Any) -> object:
        return array.__dlpack__(stream=-1)  # nothing waits to be done on it

    def array_of(self, capsule: object) -> Any:
        _, index = dlpack.device_of_capsule(capsule)
        with self._on(index):
            return self._cupy.from_dlpack(capsule)

    def array_module(self) -> Any:
        return self._cupy

    def current(self) -> int:
        return int(self._runtime.getDevice())

    def set_current(self, index: int) -> None:
        self._runtime.setDevice(index)
