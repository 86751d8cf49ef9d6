"""`WorkerExchange`: tensors on GPUs, between a worker and the kernel; the worker's end. Its Python may be 3.8.

As on Triton, all GPU memory that both processes use is the server's, here the kernel's: the worker maps its inputs, and
copies its outputs into memory that it asks the kernel for. So memory of any allocator can be sent, and a worker that
dies takes nothing with it. Mirrors python_backend/src/pb_memory.cc and gpu_buffers.cc.

Guarantees: pending work on a tensor is complete before the kernel gets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bls_notebook.backends.processes.cuda_driver import driver
from bls_notebook.backends.processes.messages import OnGPU
from bls_notebook.backends.processes.worker_gpus import CudaArray, ReceivedMemory, backend_of, gpus
from bls_notebook.devices.device import DeviceError
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, deserialize_bytes_tensor
from bls_notebook.pb_utils.tensor import Tensor, TextOnGPU

if TYPE_CHECKING:
    from bls_notebook.backends.processes.worker_link import Kernel


def received(tensors: list[Tensor], kernel: Kernel) -> list[Tensor]:
    """Return tensors that have arrived: those on a GPU with their arrays."""
    for number, tensor in enumerate(tensors):
        array: Any = tensor._array
        if array.__class__ is OnGPU:
            tensors[number] = Tensor._of(tensor._name, _array(tensor, array, kernel), tensor._datatype)
    return tensors


def _array(tensor: Tensor, array: OnGPU, kernel: Kernel) -> Any:
    index, *memory = array.place
    there, is_text = gpus(), tensor._datatype == "BYTES"
    if there is None or there.simulated == bool(memory):
        raise DeviceError(
            f"tensor '{tensor._name}' is on gpu:{index}, which its process does not have: the GPUs have changed "
            "since the model was loaded; load it again"
        )
    dtype = DTYPE_OF_DATATYPE.get(tensor._datatype, np.dtype(np.uint16))
    if there.simulated:
        made = there.from_host(array.data if is_text else array.data.view(dtype).reshape(array.shape), index)
    else:
        number, handle, offset, size = memory
        owner = ReceivedMemory(index, handle, number, kernel.release) if size else None
        address = 0 if owner is None else owner.base + offset
        shape = (size,) if is_text else tuple(array.shape)
        made = CudaArray.at(address, index, shape, np.uint8 if is_text else dtype, owner)
    return TextOnGPU(tuple(array.shape), made) if is_text else made


def sent(tensors: list[Tensor], kernel: Kernel) -> list[Tensor]:
    """Return tensors for a message to the kernel."""
    on_gpu = [number for number, tensor in enumerate(tensors) if not isinstance(tensor._array, np.ndarray)]
    if not on_gpu:
        return tensors
    arrays: list[Any] = [getattr(tensor._array, "payload", tensor._array) for tensor in tensors]
    out, there = list(tensors), backend_of(arrays[on_gpu[0]])
    if there.simulated:
        made: list[Any] = [_bytes_of(there, arrays[number], tensors[number]) for number in on_gpu]
    else:
        made = _copied([arrays[number] for number in on_gpu], [tensors[number] for number in on_gpu], kernel)
    for number, array in zip(on_gpu, made):  # noqa: B905 - Python 3.8
        out[number] = Tensor._of(tensors[number]._name, array, tensors[number]._datatype)
    return out


def _bytes_of(there: Any, array: Any, tensor: Tensor) -> OnGPU:
    data = np.ascontiguousarray(there.to_host(array)).reshape(-1).view(np.uint8)
    return OnGPU([there.device_of(array).index], tensor._array.shape, data)


def _copied(arrays: list[CudaArray], tensors: list[Tensor], kernel: Kernel) -> list[Any]:
    """Copy arrays into the kernel's memory on their GPUs; to the CPU if the kernel uses no GPU."""
    wanted = [[array.index, array.nbytes] for array in arrays]
    places = kernel.ask("gpu_buffers", wanted=wanted).header["places"]
    if places is None:
        return [_on_cpu(array, tensor) for array, tensor in zip(arrays, tensors)]  # noqa: B905 - Python 3.8
    out = []
    try:
        for array, tensor, (number, handle, offset) in zip(arrays, tensors, places):  # noqa: B905
            if array.nbytes:
                with driver().on(array.index):
                    driver().synchronize()
                    base = driver().open(handle)
                    try:
                        driver().copy(base + offset, array.address, array.nbytes)
                        driver().synchronize()
                    finally:
                        driver().close(base)
            out.append(OnGPU([array.index, number], tensor._array.shape, np.empty(0, np.uint8)))
    except BaseException:
        kernel.tell({"op": "gpu_released", "buffers": [number for number, _, _ in places], "exports": []})
        raise
    return out


def _on_cpu(array: CudaArray, tensor: Tensor) -> Any:
    host = backend_of(array).to_host(array)
    return (
        deserialize_bytes_tensor(host.tobytes()).reshape(tensor._array.shape) if tensor._datatype == "BYTES" else host
    )
