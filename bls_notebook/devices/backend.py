"""What a kind of GPU has to know how to do: `GPUs`, kept by `cuda` and by `simulated`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .device import Device

if TYPE_CHECKING:
    from bls_notebook.records.devices import DeviceRecord

_Array = np.ndarray[Any, Any]


class GPUs(Protocol):
    """The GPUs of one kind, and the arrays on them.

    Every method that gives data to another side gives it finished: whatever stream the data is being made
    on, that work is over when the method returns.
    """

    simulated: bool
    array_class: type[Any]

    @property
    def count(self) -> int:
        """How many GPUs there are, numbered from 0."""

    def usage(self, index: int) -> DeviceRecord:
        """Return what a GPU is, and who uses its memory."""

    def device_of(self, array: Any) -> Device:
        """Return the GPU that an array is on."""

    def from_host(self, host: _Array, index: int) -> Any:
        """Return a copy of a C-contiguous array in host memory, on a GPU."""

    def to_host(self, array: Any) -> _Array:
        """Return a copy of an array, in host memory; writeable."""

    def to_gpu(self, array: Any, index: int) -> Any:
        """Return a copy of an array, on a GPU that may be another one than its own."""

    def finish(self, array: Any) -> None:
        """Wait for all work on an array's GPU that has been handed to it."""

    def unheld(self, array: Any) -> bool:
        """Whether the array alone has its memory: no view, no capsule, nobody who knows the memory."""

    def capsule(self, array: Any) -> object:
        """Return a DLPack capsule that shares an array's memory."""

    def array_of(self, capsule: object) -> Any:
        """Return an array that shares the memory of a capsule, which is used up; DLPackError if of others."""

    def array_module(self) -> Any:
        """Return what models import as `cupy`."""

    def current(self) -> int:
        """Return the number of the GPU that this thread works on."""

    def set_current(self, index: int) -> None:
        """Make a GPU the one that this thread works on."""
