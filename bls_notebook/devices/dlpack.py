"""DLPack capsules: inspect them, change their device or type, and consume those whose memory the CPU can read.

The structures follow dlpack.h (v0.8, the unversioned capsule, which Triton uses). The array made from a consumed
capsule keeps the memory alive and deletes it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .device import DLPackError

CPU_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
BFLOAT_CODE = 4
NOT_CONTIGUOUS = (
    "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
)
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_BITS = {"i": (8, 16, 32, 64), "u": (8, 16, 32, 64), "f": (16, 32, 64), "c": (), "b": (8,)}


class _DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    pass


# NumPy 1.22 expects its deleter to be called with the GIL.
_DELETER = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = [("dl_tensor", _DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _DELETER)]

_api = ctypes.pythonapi
_api.PyCapsule_IsValid.restype = ctypes.c_int
_api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_SetName.restype = ctypes.c_int
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_NAME, _USED = b"dltensor", b"used_dltensor"


def is_capsule(value: object) -> bool:
    return type(value).__name__ == "PyCapsule"


def _managed(capsule: object) -> Any:
    if not _api.PyCapsule_IsValid(capsule, _NAME):
        raise DLPackError("from_dlpack: the capsule holds no DLPack tensor, or was used before; make a new one")
    return ctypes.cast(_api.PyCapsule_GetPointer(capsule, _NAME), ctypes.POINTER(_DLManagedTensor))


def _tensor(capsule: object) -> Any:
    return _managed(capsule).contents.dl_tensor


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.shape[: tensor.ndim])


class _Memory:
    """Owns a consumed capsule; arrays over its memory keep it alive as their base."""

    def __init__(self, managed: Any, interface: dict[str, Any]) -> None:
        self._managed = managed
        self.__array_interface__ = interface

    def __del__(self) -> None:
        deleter = self._managed.contents.deleter
        if deleter:
            deleter(self._managed)


def device_of_capsule(capsule: object) -> tuple[int, int]:
    """Return DLPack's device type and device ID of an unused capsule."""
    device = _tensor(capsule).device
    return int(device.device_type), int(device.device_id)


def address_of_capsule(capsule: object) -> int:
    """Return the address of an unused capsule's content, which is unique while the content exists."""
    return ctypes.addressof(_managed(capsule).contents)


def move_capsule(capsule: object, device: tuple[int, int]) -> None:
    """Set DLPack's device type and device ID of an unused capsule."""
    target = _tensor(capsule).device
    target.device_type, target.device_id = device


def as_bfloat16(capsule: object) -> None:
    """Change the type of an unused capsule from 16-bit integers to BF16."""
    _tensor(capsule).dtype.code = BFLOAT_CODE


def take_bfloat16(capsule: object) -> bool:
    """Change the type of an unused capsule from BF16 to 16-bit integers; return whether it was BF16."""
    dtype = _tensor(capsule).dtype
    if (dtype.code, dtype.bits, dtype.lanes) != (BFLOAT_CODE, 16, 1):
        return False
    dtype.code = 1
    return True


def check_capsule(capsule: object) -> None:
    """Raise DLPackError if Triton rejects the content of an unused capsule, on any device."""
    tensor = _tensor(capsule)
    shape = _shape(tensor)
    if tensor.strides and 0 not in shape:
        step = 1
        for i in reversed(range(tensor.ndim)):
            if shape[i] != 1 and tensor.strides[i] != step:
                raise DLPackError(NOT_CONTIGUOUS)
            step *= shape[i]
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    is_bfloat = (code, bits, lanes) == (BFLOAT_CODE, 16, 1)
    kind = _KINDS.get(code)
    if not is_bfloat and (lanes != 1 or kind is None or bits not in _BITS[kind]):
        raise DLPackError(f"DLPack data type (code {code}, {bits} bits, {lanes} lanes) is not supported by Triton.")


def view_of_capsule(capsule: object) -> np.ndarray[Any, Any]:
    """Consume a capsule with memory that the CPU can read; return the memory as an array, without a copy."""
    managed = _managed(capsule)
    tensor = managed.contents.dl_tensor
    shape = _shape(tensor)
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    if code not in _KINDS or lanes != 1 or bits % 8:
        raise DLPackError(f"NumPy has no data type for DLPack's code {code}, {bits} bits, {lanes} lanes.")
    dtype = np.dtype(f"{_KINDS[code]}{bits // 8}")
    strides = tuple(n * dtype.itemsize for n in tensor.strides[: tensor.ndim]) if tensor.strides else None
    _api.PyCapsule_SetName(capsule, _USED)
    memory = _Memory(
        managed,
        {
            "data": ((tensor.data or 0) + tensor.byte_offset, False),
            "shape": shape,
            "strides": strides,
            "typestr": dtype.str,
            "version": 3,
        },
    )
    if 0 in shape:  # an empty tensor may come without memory
        return np.empty(shape, dtype)
    return np.asarray(memory)
