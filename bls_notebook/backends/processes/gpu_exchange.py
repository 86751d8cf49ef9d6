"""`GpuExchange`: tensors on GPUs, between the kernel and one worker; the kernel's end (see `worker_exchange`).

A tensor on one of CUDA's GPUs travels as a handle of its memory, which stays alive until the worker has dropped the
tensor or has died. A tensor on a simulated GPU travels as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Any

import numpy as np

from bls_notebook.devices import backend_of, gpus
from bls_notebook.devices.cuda_gpus import CudaGPUs
from bls_notebook.devices.registry import need_gpu
from bls_notebook.pb_utils._runtime import Caller
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.pb_utils.tensor import Tensor, TextOnGPU

from .cuda_driver import CudaError, driver
from .messages import OnGPU

COPIED = (
    "tensors on a GPU of a model in its own process were copied to the CPU: the kernel has no CuPy, which it needs to "
    "share memory of a GPU; install it (cupy-cuda12x, cupy-cuda13x, ...)"
)

_UNSHARED = (
    "'{}' was copied on its GPU to reach a model in its own process: CUDA cannot share its memory, such as that of an "
    "asynchronous allocator; a server reports an error"
)


class GpuExchange:
    """The GPU memory that the kernel and one worker share, by numbers."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._exports: dict[int, Any] = {}  # arrays that the worker has
        self._buffers: dict[int, Any] = {}  # arrays that the worker fills

    def sent(self, tensors: Iterable[Tensor], sender: Caller | None) -> list[Tensor]:
        """Return tensors for a message to the worker. Pending work on them is complete."""
        out = []
        for tensor in tensors:
            if not isinstance(tensor._array, np.ndarray):
                moving: Any = self._moving(tensor, sender)
                tensor = Tensor._of(tensor._name, moving, tensor._datatype)
            out.append(tensor)
        return out

    def _moving(self, tensor: Tensor, sender: Caller | None) -> OnGPU:
        whole: Any = tensor._array
        array, shape = getattr(whole, "payload", whole), whole.shape
        there = backend_of(array)
        assert there is not None
        index = there.device_of(array).index
        if there.simulated:
            return OnGPU([index], shape, np.ascontiguousarray(there.to_host(array)).reshape(-1).view(np.uint8))
        assert isinstance(there, CudaGPUs)
        number, handle, offset = 0, "", 0
        if array.nbytes:
            number = next(self._numbers)
            exported, handle, offset = _exported(there, array, filled=True)
            self._exports[number] = exported
            if exported is not array and sender is not None:
                sender.note_warnings([_UNSHARED.format(tensor._name)])
        return OnGPU([index, number, handle, offset, int(array.nbytes)], shape, np.empty(0, np.uint8))

    def received(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return tensors that have come from the worker: those on a GPU with their arrays."""
        for number, tensor in enumerate(tensors):
            array: Any = tensor._array
            if array.__class__ is OnGPU:
                tensors[number] = Tensor._of(tensor._name, self._arrived(tensor, array), tensor._datatype)
        return tensors

    def _arrived(self, tensor: Tensor, moved: OnGPU) -> Any:
        index, *buffer = moved.place
        is_text = tensor._datatype == "BYTES"
        dtype = np.dtype(np.uint8) if is_text else DTYPE_OF_DATATYPE.get(tensor._datatype, np.dtype(np.uint16))
        shape = (-1,) if is_text else tuple(moved.shape)
        if buffer:
            array = self._buffers.pop(buffer[0]).view(dtype).reshape(shape)
        else:
            array = need_gpu(index).from_host(moved.data.view(dtype).reshape(shape), index)
        return TextOnGPU(tuple(moved.shape), array) if is_text else array

    def buffers(self, wanted: Iterable[tuple[int, int]]) -> list[tuple[int, str, int]] | None:
        """Make arrays for the worker, of GPUs and numbers of bytes; None if the kernel does not use CUDA's GPUs."""
        there = gpus()
        if not isinstance(there, CudaGPUs):
            return None
        made = []
        for index, size in wanted:
            array, handle, offset = there.buffer((size,), np.uint8, index), "", 0
            if size:
                array, handle, offset = _exported(there, array)
            made.append((next(self._numbers), handle, offset, array))
        self._buffers.update({number: array for number, _, _, array in made})
        return [(number, handle, offset) for number, handle, offset, _ in made]

    def released(self, exports: Iterable[int], buffers: Iterable[int]) -> None:
        """Drop arrays that the worker does not need any more."""
        for number in exports:
            self._exports.pop(number, None)
        for number in buffers:
            self._buffers.pop(number, None)

    def forget(self) -> None:
        """Drop all arrays: the worker has ended."""
        self._exports.clear()
        self._buffers.clear()


def _exported(there: CudaGPUs, array: Any, filled: bool = False) -> tuple[Any, str, int]:
    """Return an array with the handle of its memory and its offset there; a copy if its memory has no handle."""
    with driver().on(array.data.device_id):
        with suppress(CudaError):
            return array, *driver().export(array.data.ptr)
        copy = there.exportable(array.shape, array.dtype, array.data.device_id)
        if filled:
            there.copy(array, copy)
        return copy, *driver().export(copy.data.ptr)
