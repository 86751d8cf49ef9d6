"""CUDA's driver on host memory, which processes share: a substitute for `libcuda.so.1`, also in the code of a model.

It is as strict as the driver: functions need a current context, a process cannot open its own memory, and copies are
done when they are waited for. A worker gets the text of this file, so its Python may be 3.8.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np

INVALID_VALUE, INVALID_CONTEXT = 1, 201
COUNT = 2  # GPUs


class FakeCuda:
    """The functions of the driver by their names; each returns a status."""

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}  # by address: mapped file, bytes, file (-1: opened), whether it can be shared
        self.contexts: list[int] = []
        self.copies: list[Any] = []
        self.opened = 0  # handles that are open now

    def __getattr__(self, name: str) -> Any:
        function = getattr(type(self), "".join(f"_{c.lower()}" if c.isupper() else c for c in name[2:]))

        def call(*arguments: Any) -> int:
            if name.startswith(("cuMem", "cuIpc", "cuCtxSync")) and not self.contexts:
                return INVALID_CONTEXT
            return int(function(self, *(getattr(each, "_obj", getattr(each, "value", each)) for each in arguments)))

        return call

    def allocate(self, size: int, shareable: bool = True) -> int:
        file = os.memfd_create("fake-gpu")
        os.ftruncate(file, size)
        return self._map(file, size, file, shareable)

    def _map(self, opened: int, size: int, file: int, shareable: bool) -> int:
        memory = mmap.mmap(opened, size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.memory[address] = memory, size, file, shareable
        return address

    def free(self, address: int) -> None:
        os.close(self.memory.pop(address)[2])

    def _init(self, flags: int) -> int:
        return 0

    def _device_get_count(self, count: Any) -> int:
        count.value = COUNT
        return 0

    def _device_get(self, device: Any, index: int) -> int:
        device.value = index
        return 0 if index < COUNT else 101

    def _device_primary_ctx_retain(self, context: Any, device: int) -> int:
        context.value = 1000 + device
        return 0

    def _ctx_push_current_v2(self, context: int) -> int:
        self.contexts.append(context)
        return 0

    def _ctx_pop_current_v2(self, context: Any) -> int:
        context.value = self.contexts.pop()
        return 0

    def _ctx_synchronize(self) -> int:
        while self.copies:
            ctypes.memmove(*self.copies.pop(0))
        return 0

    def _mem_get_address_range_v2(self, base: Any, size: Any, address: int) -> int:
        for start, (_, length, _, _) in self.memory.items():
            if start <= address < start + length:
                base.value, size.value = start, length
                return 0
        return INVALID_VALUE

    def _ipc_get_mem_handle(self, handle: Any, base: int) -> int:
        _, size, file, shareable = self.memory.get(base, (None, 0, -1, False))
        if not shareable or file < 0:
            return INVALID_VALUE
        handle.reserved = f"{os.getpid()}/fd/{file} {size} {self.contexts[-1]}".encode()
        return 0

    def _ipc_open_mem_handle_v2(self, base: Any, handle: Any, flags: int) -> int:
        path, size, context = handle.reserved.decode().split()
        if path.startswith(f"{os.getpid()}/") or self.contexts[-1] != int(context) or flags != 1:
            return INVALID_CONTEXT
        file = os.open(f"/proc/{path}", os.O_RDWR)
        base.value = self._map(file, int(size), -1, False)
        os.close(file)
        self.opened += 1
        return 0

    def _ipc_close_mem_handle(self, base: int) -> int:
        self.opened -= 1
        return 0 if self.memory.pop(base)[2] < 0 and not self.copies else INVALID_VALUE

    def _memcpy_dto_d_v2(self, target: int, source: int, size: int) -> int:
        self.copies.append((target, source, size))
        return 0

    def _memcpy_dto_h_v2(self, target: int, source: int, size: int) -> int:
        ctypes.memmove(target, source, size)
        return 0

    def _get_error_name(self, status: int, name: Any) -> int:
        name.value = b"CUDA_ERROR_%d" % status
        return 0


class _Span:
    def __init__(self, address: int, shape: Any, dtype: Any, owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": dtype.str, "version": 3}


def over(address: int, shape: Any, dtype: Any, owner: Any = None) -> Any:
    """Return memory of the fake GPU as an array of NumPy."""
    return np.asarray(_Span(address, tuple(shape), np.dtype(dtype), owner))


class Foreign:
    """A framework's tensor on a fake GPU, of the interface of DLPack."""

    def __init__(self, host: Any, index: int) -> None:
        self.host, self.index = host, index

    def __dlpack_device__(self) -> Any:
        return 2, self.index

    def __dlpack__(self, stream: Any = None) -> Any:
        capsule = self.host.__dlpack__()
        ctypes.c_int32.from_address(_content(capsule) + 8).value = 2
        ctypes.c_int32.from_address(_content(capsule) + 12).value = self.index
        return capsule

    @staticmethod
    def of(tensor: Any) -> Any:
        """Return a tensor of Triton's API; it keeps the capsule alive, which keeps the memory alive."""
        capsule = tensor.to_dlpack()
        content = _content(capsule)
        address, kind, index = (
            ctypes.c_uint64.from_address(content).value,
            *(ctypes.c_int32.from_address(content + at).value for at in (8, 12)),
        )
        assert kind == 2
        return Foreign(over(address, tensor.shape(), np.int32, capsule), index)


def _content(capsule: Any) -> int:
    pointer: Any = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, b"dltensor"))


fake = FakeCuda()


def loads(original: Any) -> Any:
    """Return a replacement of `ctypes.CDLL`."""

    def load(name: Any, *rest: Any, **more: Any) -> Any:
        return fake if name == "libcuda.so.1" else original(name, *rest, **more)

    return load
