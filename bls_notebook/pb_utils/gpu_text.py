"""`TextOnGPU`: a BYTES tensor in a GPU's memory, where nothing can read it.

Triton moves BYTES outputs to the GPU too where `preferred_memory` says so: then `as_numpy` refuses, and so
does DLPack. Only a model that takes its inputs on the CPU sees the text again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bls_notebook.devices import moves

from .dtypes import deserialize_bytes_tensor, serialize_byte_tensor


class TextOnGPU:
    """Elements of a BYTES tensor in wire form, in an array of bytes on a GPU.

    Parameters
    ----------
    shape : tuple of int
        Of the tensor.
    payload : array
        On a GPU.
    """

    __slots__ = ("__weakref__", "payload", "shape")

    dtype = np.dtype(object)

    def __init__(self, shape: tuple[int, ...], payload: Any) -> None:
        self.shape = shape
        self.payload = payload

    @classmethod
    def of(cls, array: np.ndarray[Any, Any], index: int) -> TextOnGPU:
        """Return a copy of a BYTES tensor's array, on a GPU."""
        wire = np.frombuffer(bytes(serialize_byte_tensor(array) or b""), np.uint8)
        return cls(array.shape, moves.to_gpu(wire, index))

    @property
    def ndim(self) -> int:
        """How many dimensions."""
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
        """Return a copy, on the same GPU."""
        return TextOnGPU(self.shape, moves.copied(self.payload))

    def at(self, index: int) -> TextOnGPU:
        """Return a copy on a GPU; the text itself where it is there."""
        moved = moves.to_gpu(self.payload, index)
        return self if moved is self.payload else TextOnGPU(self.shape, moved)

    def on_cpu(self) -> np.ndarray[Any, Any]:
        """Return the elements, in an object array of bytes."""
        return deserialize_bytes_tensor(moves.to_cpu(self.payload).tobytes()).reshape(self.shape)
