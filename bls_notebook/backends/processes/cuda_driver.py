"""`CudaDriver`: the functions of CUDA's driver by which processes share memory of a GPU (CUDA IPC).

`libcuda.so.1` is present wherever a GPU is, so a worker needs no package for it. Both sides run this module; the
worker's Python may be 3.8.

Guarantees: the calling thread's CUDA context is the same afterwards. As CuPy and PyTorch do, it uses the primary
context of each GPU, which it keeps as long as the process.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bls_notebook.devices.device import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1  # the only flag of `cuIpcOpenMemHandle`


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * HANDLE_BYTES)]


class CudaError(DeviceError):
    """A function of the driver has failed."""


class CudaDriver:
    """CUDA's driver, which is loaded when this is made; CudaError without one."""

    def __init__(self) -> None:
        try:
            self._library: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"this machine has no CUDA driver: {error}") from None
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._lock = threading.Lock()
        self._call("cuInit", 0)
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        self.count = count.value

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            name = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(name))
            raise CudaError(f"{function} failed: {(name.value or b'error %d' % status).decode()}")

    def _context(self, index: int) -> ctypes.c_void_p:
        with self._lock:
            if index not in self._contexts:
                device, context = ctypes.c_int(), ctypes.c_void_p()
                self._call("cuDeviceGet", ctypes.byref(device), index)
                self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
                self._contexts[index] = context
            return self._contexts[index]

    @contextmanager
    def on(self, index: int) -> Iterator[None]:
        """Make a GPU's context the current one of this thread; the other methods need it."""
        self._call("cuCtxPushCurrent_v2", self._context(index))
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def export(self, address: int) -> tuple[str, int]:
        """Return the handle of the allocation that contains an address, and the offset of the address in it.

        CudaError if the memory cannot be shared: memory of asynchronous allocators, managed memory, and memory that
        another process has exported.
        """
        base, size, handle = ctypes.c_uint64(), ctypes.c_size_t(), _Handle()
        self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), base)
        return bytes(handle).hex(), address - base.value

    def open(self, handle: str) -> int:
        """Return the address at which this process sees the allocation of another one."""
        base = ctypes.c_uint64()
        exported = _Handle.from_buffer_copy(bytes.fromhex(handle))
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(base), exported, ctypes.c_uint(_LAZY_PEER_ACCESS))
        return base.value

    def close(self, base: int) -> None:
        """End one `open`; the driver counts them."""
        self._call("cuIpcCloseMemHandle", ctypes.c_uint64(base))

    def copy(self, target: int, source: int, size: int) -> None:
        """Start to copy memory on a GPU."""
        self._call("cuMemcpyDtoD_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size))

    def to_host(self, target: int, source: int, size: int) -> None:
        """Copy memory of a GPU to the CPU."""
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(target), ctypes.c_uint64(source), ctypes.c_size_t(size))

    def synchronize(self) -> None:
        """Wait for all work of this process on the GPU."""
        self._call("cuCtxSynchronize")


_drivers: list[CudaDriver] = []
_loading = threading.Lock()


def driver() -> CudaDriver:
    """Return the driver of this process; CudaError without one."""
    with _loading:
        if not _drivers:
            _drivers.append(CudaDriver())
        return _drivers[0]
