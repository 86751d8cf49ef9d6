"""`Device`, the location of a tensor; `GPUs`, the interface to GPUs of one kind; parsing of both; errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bls_notebook.records.units import bytes_in

if TYPE_CHECKING:
    import numpy as np

    from bls_notebook.records.statistics import DeviceRecord

    _Array = np.ndarray[Any, Any]


class DeviceError(RuntimeError):
    """An error of a device."""


class NoDeviceError(DeviceError):
    """The requested GPU does not exist; the message says how to get one."""


class DLPackError(ValueError):
    """A DLPack capsule that cannot be consumed."""


class OutOfMemoryError(MemoryError):
    """A simulated GPU has not enough memory left. Sizes are bytes; the message is worded as CuPy's."""

    def __init__(self, size: int, total: int, limit: int, device: str) -> None:
        super().__init__(
            f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes, "
            f"limit set to: {limit:,} bytes) on {device}."
        )
        self._arguments = (size, total, limit, device)

    def __reduce__(self) -> tuple[type[OutOfMemoryError], tuple[int, int, int, str]]:
        return type(self), self._arguments


@dataclass(frozen=True)  # a worker runs this module, and its Python may be 3.8
class Device:
    """The CPU, or one GPU."""

    kind: str  # ``cpu`` or ``gpu``
    index: int = 0  # number of the GPU, from 0; 0 for the CPU
    simulated: bool = False  # whether the GPU is simulated, in host memory

    @property
    def name(self) -> str:
        """Name in magics and arguments: ``cpu``, ``gpu:0``."""
        return "cpu" if self.kind == "cpu" else f"gpu:{self.index}"

    @property
    def label(self) -> str:
        """Name in displays: ``gpu:0 (simulated)``."""
        return f"{self.name} (simulated)" if self.simulated else self.name

    def __str__(self) -> str:
        return self.label


CPU = Device("cpu")


def parse_device(text: str) -> tuple[str, int]:
    """Return kind and number of ``cpu``, ``gpu`` (the first) or ``gpu:1``; raise ValueError for others."""
    kind, colon, number = text.partition(":")
    plain = not colon or (number.isascii() and number.isdigit())
    if kind not in ("cpu", "gpu") or not plain or (kind == "cpu" and int(number or 0) != 0):
        raise ValueError(f"device: got {text!r}, expected 'cpu', 'gpu' or 'gpu:<number>'")
    return kind, int(number or 0)


def parse_size(size: int | str) -> int:
    """Return the bytes of an int, or of text such as ``512 MiB`` or ``4GB``; raise ValueError unless positive."""
    text = size.strip() if isinstance(size, str) else size
    number = bytes_in(f"{text}b" if isinstance(text, str) and text[-1:].isalpha() and text[-1] not in "bB" else text)
    if number is None or number <= 0:
        raise ValueError(f"size of memory: got {size!r}, expected bytes, or text such as '512 MiB' or '4 GB'")
    return number


@dataclass(frozen=True)
class WorkerSimulation:
    """Simulated GPUs for a worker: the modules of their code, in order of import, their number and their bytes.

    The function ``begin(count, capacity)`` of the last module returns the `GPUs`.
    """

    modules: tuple[str, ...]
    count: int
    capacity: int


class GPUs(Protocol):
    """The GPUs of one kind, and the arrays on them. Pending work on an array is complete when a method returns it."""

    simulated: bool
    array_class: type[Any]

    @property
    def count(self) -> int:
        """Number of GPUs; their indices begin at 0."""

    def usage(self, index: int) -> DeviceRecord:
        """Return a GPU's hardware and the use of its memory."""

    def device_of(self, array: Any) -> Device:
        """Return the GPU that an array is on."""

    def from_host(self, host: _Array, index: int) -> Any:
        """Return a copy on a GPU of a C-contiguous array in host memory."""

    def to_host(self, array: Any) -> _Array:
        """Return a writeable copy of an array in host memory."""

    def to_gpu(self, array: Any, index: int) -> Any:
        """Return a copy of an array on a GPU, its own or another one."""

    def finish(self, array: Any) -> None:
        """Wait for all work that has been submitted to an array's GPU."""

    def unheld(self, array: Any) -> bool:
        """Return whether the array has the only reference to its memory: no view, no capsule, no other object."""

    def capsule(self, array: Any, owner: object) -> object:
        """Return a DLPack capsule that shares an array's memory; a simulated one keeps `owner` alive."""

    def array_of(self, capsule: object) -> Any:
        """Consume a capsule; return an array that shares its memory. DLPackError if the memory is not on these GPUs."""

    def for_workers(self) -> WorkerSimulation | None:
        """Return what a worker needs to simulate as many GPUs; None for real ones."""

    def array_module(self) -> Any:
        """Return the module that models import as `cupy`."""

    def current(self) -> int:
        """Return the index of this thread's current GPU."""

    def set_current(self, index: int) -> None:
        """Make a GPU this thread's current one."""
