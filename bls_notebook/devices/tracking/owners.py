"""Which block of memory an array lies in: the object whose end is the end of the memory."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np

from bls_notebook.devices.moves import device_of
from bls_notebook.observe.recording import text_bytes

__all__ = ["bytes_of", "gpu_block", "owner_of"]

_ndarray = np.ndarray


def owner_of(array: np.ndarray[Any, Any]) -> Any:
    """Return what owns the memory of a NumPy array, as far as its end can be seen.

    Parameters
    ----------
    array : numpy.ndarray
        Any array, a view too.

    Returns
    -------
    object
        The array at the bottom of the views. Where that lies in memory of something else (a file that is
        mapped, a DLPack capsule), that, if it can be weakly referenced.
    """
    base = array.base
    while isinstance(base, _ndarray):
        array, base = base, base.base
    if base is None:
        return array
    try:
        ref(base)
    except TypeError:
        return array
    return base


def bytes_of(owner: Any, array: np.ndarray[Any, Any]) -> int:
    """Return how large the block is that `array` lies in, as far as that is known."""
    if isinstance(owner, _ndarray):
        return text_bytes(owner) if owner.dtype.char == "O" else int(owner.nbytes)
    while isinstance(array.base, _ndarray):
        array = array.base
    return int(array.nbytes)


def gpu_block(array: Any) -> tuple[tuple[str, int], int]:
    """Return the key and the size of the block that an array (or text) on a GPU lies in.

    Its number is an address, which may lie within a block that is known; negative on a simulated GPU.
    """
    array = getattr(array, "payload", array)
    device = device_of(array)
    memory = array.data.mem
    number = memory.key if device.simulated else memory.ptr
    return (device.name, number), int(memory.size)
