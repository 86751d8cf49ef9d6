"""GPUs as scripts and notebooks ask for them: what is there, simulating some, and arrays on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bls_notebook.devices import registry
from bls_notebook.devices.device import NoDeviceError
from bls_notebook.engine.errors import BLSError

if TYPE_CHECKING:
    from bls_notebook.records.devices import DeviceTable


def list_devices() -> DeviceTable:
    """Return the devices that there are, and who uses their memory.

    Returns
    -------
    DeviceTable
        A record of each device, the CPU first; a notebook shows it as a table.
    """
    from bls_notebook.devices.registry import device_records  # first needed here
    from bls_notebook.records.devices import DeviceTable

    return DeviceTable(tuple(device_records()))


def simulate_gpus(count: int, memory: int | str | None = None, *, even_with_cuda: bool = False) -> int:
    """Simulate GPUs on a machine that has none: host memory that behaves as a GPU's.

    Models are then placed, and tensors moved, as with CUDA's GPUs, and `import cupy` in a model gives
    what stands in for it. Arrays have to be moved to and from them by name, and they run out of memory.

    Parameters
    ----------
    count : int
        How many; 0 for none.
    memory : int or str, optional
        Capacity of each: bytes, or text such as ``"2 GiB"``; 4 GiB by default.
    even_with_cuda : bool
        Also where there is a CUDA GPU, which is then not used.

    Returns
    -------
    int
        How many are simulated now: 0 where there are CUDA GPUs, which are used instead.

    Raises
    ------
    BLSError
        A count or a capacity that makes no sense.

    Examples
    --------
    >>> bls.simulate_gpus(1, "512 MiB")
    1
    """
    try:
        return registry.simulate_gpus(count, memory, even_with_cuda=even_with_cuda)
    except ValueError as error:
        raise BLSError(str(error)) from None


def simulated_for(who: str, count: int = 1) -> str:
    """Simulate GPUs for models, where there are none; return what there is to say of it."""
    simulate_gpus(count)
    many = "a GPU is simulated" if count == 1 else f"{count} GPUs are simulated"
    return f"{many} in host memory for {who}: there is none here (`bls.simulate_gpus(0)` ends it)"


def cupy() -> Any:
    """Return CuPy where there is a CUDA GPU, and what stands in for it where GPUs are simulated.

    Returns
    -------
    module
        `cupy`, or a namespace with the same names.

    Raises
    ------
    BLSError
        There is no GPU; the message names the switch.

    Examples
    --------
    >>> cupy = bls.cupy()
    >>> cupy.arange(3) + 1
    array([1, 2, 3])  # gpu:0 (simulated)
    """
    try:
        return registry.cupy()
    except NoDeviceError as error:
        raise BLSError(str(error)) from None
