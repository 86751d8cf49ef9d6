"""`Tensor`: a name and an array in the memory of a device.

With a `preferred_memory` on the GPU, Triton also moves BYTES outputs there (`TextOnGPU`). `as_numpy` and DLPack refuse
such a tensor; only a model that gets its inputs on the CPU can read the text again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bls_notebook.devices import allocation_log, dlpack, transfers
from bls_notebook.devices.device import CPU, Device, DLPackError, GPUs
from bls_notebook.devices.registry import backend_of, device_of, gpus, why_no_gpu

from ._runtime import caller_var
from .dtypes import DATATYPE_OF_DTYPE, DataType, deserialize_bytes_tensor, serialize_byte_tensor
from .errors import TritonModelException, unpicklable

CHANGED = (
    ": its array was changed after the Tensor was received, or first sent. A server sends the content of that time, "
    "without the change: send a new one, `pb_utils.Tensor(name, array)`"
)
SAMPLE = 1 << 10  # bytes of an array that `sample_of` compares


def sample_of(array: np.ndarray[Any, Any]) -> object:
    """Return a small array's content, or evenly spaced pieces of a large one: a change nearly always changes them."""
    if array.dtype.hasobject:
        return [e if e.__class__ in (bytes, str) else id(e) for e in array.reshape(-1)[:SAMPLE].tolist()]
    if array.nbytes <= SAMPLE:
        return array.tobytes()
    # Sixteen pieces of a cache line: as many bytes one by one take ten times longer.
    return array.reshape(-1).view(np.uint8)[: array.nbytes & ~15].reshape(16, -1)[:, :64].tobytes()


def datatype_of(tensor: Tensor) -> str:
    """Return Triton's name for a tensor's data type, such as FP32; for code outside of models."""
    return tensor._datatype


class TextOnGPU:
    """Elements of a BYTES tensor in wire form, in an array of bytes (`payload`) on a GPU."""

    __slots__ = ("__weakref__", "payload", "shape")

    dtype = np.dtype(object)

    def __init__(self, shape: tuple[int, ...], payload: Any) -> None:
        self.shape = shape
        self.payload = payload

    @classmethod
    def of(cls, array: np.ndarray[Any, Any], index: int) -> TextOnGPU:
        """Return a copy of a BYTES tensor's array on a GPU."""
        wire = np.frombuffer(bytes(serialize_byte_tensor(array) or b""), np.uint8)
        return cls(array.shape, transfers.to_gpu(wire, index))

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes on the GPU."""
        return int(self.payload.nbytes)

    def reshape(self, *shape: Any) -> TextOnGPU:
        """Return the same text in another shape."""
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return TextOnGPU(np.empty(self.shape, np.bool_).reshape(wanted).shape, self.payload)

    def copy(self) -> TextOnGPU:
        """Return a copy on the same GPU."""
        return TextOnGPU(self.shape, transfers.copied(self.payload))

    def at(self, index: int) -> TextOnGPU:
        """Return a copy on a GPU, or this object if it is on that GPU."""
        moved = transfers.to_gpu(self.payload, index)
        return self if moved is self.payload else TextOnGPU(self.shape, moved)

    def on_cpu(self) -> np.ndarray[Any, Any]:
        """Return the elements, in an object array of bytes."""
        return deserialize_bytes_tensor(transfers.to_cpu(self.payload).tobytes()).reshape(self.shape)


_UNSUPPORTED = "NumPy dtype is not supported."
_EMPTY_NAME = "Tensor name cannot be an empty string."
_ON_GPU = "Tensor is stored in GPU and cannot be converted to NumPy."
_MASKED = (
    "'numpy.ndarray' object has no attribute 'c_contiguous': a server takes no masked array; pass array.filled(value)"
)
_NUMPY_DLPACK = (
    "Tensor.from_dlpack({0!r}, ...) of a NumPy array: with NumPy 1, a server's process of the model crashes later; use "
    "Tensor({0!r}, array)"
)
_EXPORTED_OLD = (
    "Tensor {0!r}: its array was changed before to_dlpack(), and a server exports the content of before; export a new "
    "Tensor({0!r}, array)"
)
_ndarray = np.ndarray


class Tensor:
    """A named tensor. Until it is sent, it shares memory with the array that it is made of.

    Parameters
    ----------
    name : str
    numpy_array : numpy.ndarray
        Any shape, in native byte order. Object arrays (of bytes, or of other objects, which are converted to text) and
        fixed-length bytes are BYTES tensors. An array that is not contiguous in C order is copied.

    Raises
    ------
    TypeError
        The name is not text, or the array is not a NumPy array.
    TritonModelException
        The name is empty, or Triton does not support the data type.

    Notes
    -----
    Mirrors `PbTensor` of python_backend/src/pb_tensor.cc.
    """

    __slots__ = ("__weakref__", "_array", "_datatype", "_line", "_name", "_sent")

    # Or an array on a GPU, which has the methods that the engine uses: see `devices`.
    _array: np.ndarray[Any, Any]
    _datatype: str
    _line: allocation_log.Origin | None  # the line that made it; set only while a memory recording wants lines
    _name: str
    # The content that a server sends: None before it is sent, False if it was received and not read, `...` if it is of
    # `from_dlpack`, neither sent nor read; or a sample.
    _sent: object

    def __init__(self, name: str, numpy_array: np.ndarray[Any, Any], /) -> None:
        if name.__class__ is not str or not isinstance(numpy_array, np.ndarray):
            name = self._checked(name, numpy_array)
        if not name:
            raise TritonModelException(_EMPTY_NAME)
        datatype = DATATYPE_OF_DTYPE.get(numpy_array.dtype)
        if datatype is None:
            if numpy_array.dtype.kind != "S":
                raise TritonModelException(_UNSUPPORTED)
            datatype = "BYTES"
        self._name = name
        self._datatype = datatype
        if numpy_array.__class__ is not _ndarray and not isinstance(numpy_array.data, memoryview):
            raise AttributeError(_MASKED)
        self._array = numpy_array if numpy_array.flags.c_contiguous else np.ascontiguousarray(numpy_array)
        self._sent = sample_of(self._array) if datatype == "BYTES" else None  # a server encodes text at once
        place = allocation_log.place
        if place is not None:
            self._line = place()

    @staticmethod
    def _checked(name: Any, array: Any) -> str:
        if isinstance(name, (str, bytes)) and isinstance(array, np.ndarray):
            return name if isinstance(name, str) else name.decode()
        if isinstance(name, str) and backend_of(array) is not None:
            raise TypeError(
                f"Tensor({name!r}, ...): got an array on a GPU, expected one of NumPy; "
                f"use pb_utils.Tensor.from_dlpack({name!r}, array)"
            )
        raise TypeError(
            "__init__(): incompatible constructor arguments. The following argument types are supported:\n"
            "    1. c_python_backend_utils.Tensor(arg0: str, arg1: numpy.ndarray)\n\n"
            f"Invoked with: {name!r}, {array!r}"
        )

    @classmethod
    def _of(cls, name: str, array: np.ndarray[Any, Any], datatype: str) -> Tensor:
        """Make a tensor without checks; for the engine."""
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._datatype = datatype
        tensor._array = array
        tensor._sent = False
        return tensor

    def _has_changed(self) -> bool:
        """Return whether the array was changed since a server copied it; such a copy is made at the first call."""
        if self._sent is False or self._array.__class__ is not _ndarray:
            return False
        content = sample_of(self._array)
        if self._sent is None or self._sent is ...:
            self._sent = content
        return self._sent != content

    def name(self) -> str:
        """Return the tensor's name."""
        return self._name

    def shape(self) -> list[int]:
        """Return the tensor's shape, a list of whole numbers."""
        return list(self._array.shape)

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """Return the tensor as an array that shares its memory; BYTES as an object array.

        Raises
        ------
        TritonModelException
            The tensor is on a GPU, or its data type is BF16, which NumPy lacks; use `to_dlpack`.
        """
        array = self._array
        if array.__class__ is not _ndarray and not isinstance(array, _ndarray):
            raise TritonModelException(_ON_GPU)
        if self._datatype == "BF16":
            raise TritonModelException(
                "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
            )
        if self._sent is False or self._sent is ...:  # a server returns a copy, which it does not send
            self._sent = sample_of(array)
        return array

    def triton_dtype(self) -> DataType:
        """Raise TypeError, as a server does: its Python has no class for the data type."""
        raise TypeError(
            "Unable to convert function return value to a Python type! The signature was\n"
            "\t(self: c_python_backend_utils.Tensor) -> TRITONSERVER_DataType"
        )

    def is_cpu(self) -> bool:
        """Return whether the tensor is in the CPU's memory."""
        return isinstance(self._array, _ndarray)

    def _device(self) -> Device:
        """Return the tensor's device; for the engine."""
        array: Any = self._array
        return device_of(array.payload if isinstance(array, TextOnGPU) else array)

    def to_dlpack(self) -> Any:
        """Return a DLPack capsule that shares the tensor's memory; TritonModelException for BYTES."""
        if self._datatype == "BYTES":
            raise TritonModelException("DLPack does not have support for string tensors.")
        if allocation_log.recording is not None:
            allocation_log.recording.exported(self)
        there = None if isinstance(self._array, _ndarray) else backend_of(self._array)
        caller = caller_var.get()
        if self._sent and self._sent is not ... and caller is not None and self._has_changed():
            caller.note_warnings([_EXPORTED_OLD.format(self._name)])
        self._sent = False  # a server also sends later writes through the capsule
        capsule = self._exported().__dlpack__() if there is None else there.capsule(self._array, self)
        if self._datatype == "BF16":
            dlpack.as_bfloat16(capsule)
        return capsule

    def _exported(self) -> np.ndarray[Any, Any]:
        # Unversioned DLPack has no "read only" flag, so NumPy refuses to export a read-only array.
        array = self._array if self._array.flags.writeable else self._array.copy()
        out = array.view(_Exported)
        out._tensor, out._array = self, array
        return out

    def __dlpack__(self, stream: Any = None) -> Any:
        """Return `to_dlpack()`. `stream` has no effect, because a tensor has no pending work."""
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device type and device ID: (1, 0) is the CPU, (2, 1) is the GPU with number 1."""
        there = self._device()
        return (1, 0) if there is CPU else (2, there.index)

    @staticmethod
    def from_dlpack(name: str, tensor: Any, /) -> Tensor:
        """Make a tensor that shares the memory of a DLPack capsule, or of an object that supports DLPack.

        Pending work on the memory is complete when this returns.

        Raises
        ------
        TritonModelException
            The name is empty; the object does not support DLPack; or its memory is not contiguous in C order, or has
            an unsupported type or device.
        """
        made = _from_dlpack(name, tensor)
        made._sent = ...
        if isinstance(tensor, _ndarray):
            caller = caller_var.get()
            if caller is not None:
                caller.note_warnings([_NUMPY_DLPACK.format(name)])
        place = allocation_log.place
        if place is not None:
            made._line = place()
        return made

    def __reduce__(self) -> Any:
        raise unpicklable("Tensor")

    def __repr__(self) -> str:
        there = self._device()
        where = "" if there is CPU else f", on {there}"
        return f"Tensor({self._name!r}, {self._datatype}, shape={list(self._array.shape)}{where})"


class _Exported(np.ndarray):  # the NumPy of a worker may be too old for type arguments
    """The array behind a capsule. It keeps the tensor alive as long as the capsule, as on Triton."""

    _tensor: Tensor
    _array: np.ndarray[Any, Any]  # `base` may be another array


def _from_dlpack(name: Any, tensor: Any) -> Tensor:
    if isinstance(name, bytes):  # pybind accepts bytes for text
        name = name.decode()
    if not isinstance(name, str):
        raise TypeError(f"from_dlpack(): name must be str, got {type(name).__name__}")
    if not name:
        raise TritonModelException(_EMPTY_NAME)
    there = backend_of(tensor)
    if there is not None:
        return _over(name, tensor, there)
    if dlpack.is_capsule(tensor):
        return _of_capsule(name, tensor)
    if not hasattr(tensor, "__dlpack__") or not hasattr(tensor, "__dlpack_device__"):
        raise TritonModelException(
            "Provided tensor is not supported. Tensor must be a DLPack capsule "
            "or have `__dlpack__` and `__dlpack_device__` attributes"
        )
    if _is_cuda(tensor.__dlpack_device__()[0]):
        _need_gpus()
        if isinstance(tensor, Tensor) and tensor._datatype != "BYTES":
            return Tensor._of(name, tensor._array, tensor._datatype)
    return _of_capsule(name, tensor.__dlpack__(stream=None))


def _is_cuda(kind: int) -> bool:
    if kind not in (*dlpack.CUDA_DEVICES, *dlpack.CPU_DEVICES):
        raise TritonModelException(f"DLDevice type {kind} is not support by Python backend.")
    return kind in dlpack.CUDA_DEVICES


def _need_gpus() -> GPUs:
    found = gpus()
    if found is None:
        raise TritonModelException(
            "DLPack capsule passed pointer to memory allocated on GPU device, "
            f"when GPU is not available: {why_no_gpu()}"
        )
    return found


def _over(name: str, array: Any, there: GPUs) -> Tensor:
    """Return a tensor with this GPU array itself, so that the engine can count references to the array."""
    if not array.flags.c_contiguous:
        raise TritonModelException(dlpack.NOT_CONTIGUOUS)
    datatype = DATATYPE_OF_DTYPE.get(array.dtype)
    if datatype is None:
        raise TritonModelException(f"DLPack data type ({array.dtype}) is not supported by Triton.")
    there.finish(array)
    return Tensor._of(name, array, datatype)


def _of_capsule(name: str, capsule: object) -> Tensor:
    try:
        dlpack.check_capsule(capsule)
        there = _need_gpus() if _is_cuda(dlpack.device_of_capsule(capsule)[0]) else None
        is_bfloat16 = dlpack.take_bfloat16(capsule)
        array = dlpack.view_of_capsule(capsule) if there is None else there.array_of(capsule)
    except DLPackError as error:
        raise TritonModelException(str(error)) from error
    if there is not None:
        there.finish(array)
    return Tensor._of(name, array, "BF16" if is_bfloat16 else DATATYPE_OF_DTYPE[array.dtype])
