"""Public functions for GPUs: list the devices, simulate GPUs, and get CuPy."""

from __future__ import annotations

from typing import Any

from bls_notebook.devices import registry
from bls_notebook.devices.device import NoDeviceError
from bls_notebook.engine.errors import BLSError
from bls_notebook.records.statistics import DeviceTable

from .config import ModelConfigMessage, model_config_pb2


def list_devices() -> DeviceTable:
    """Return the devices of this machine and the owners of their memory.

    Returns
    -------
    DeviceTable
        A record of each device, the CPU first; a notebook shows it as a table.
    """
    return DeviceTable(tuple(registry.device_records()))


def simulate_gpus(count: int, memory: int | str | None = None, *, even_with_cuda: bool = False) -> int:
    """Simulate GPUs on a machine without CUDA: host memory that behaves like GPU memory.

    Instances are assigned to these GPUs, and tensors are transferred, as with CUDA. `import cupy` in a model returns a
    substitute for CuPy. Arrays must be transferred explicitly, and allocations can run out of memory.

    Parameters
    ----------
    count : int
        Number of GPUs; 0 ends the simulation.
    memory : int or str, optional
        Capacity of each GPU: bytes, or text such as ``"2 GiB"``. Default: 4 GiB.
    even_with_cuda : bool
        Whether to simulate GPUs although there is a CUDA GPU, which is then not used.

    Returns
    -------
    int
        Number of GPUs that are simulated now; 0 if the machine has CUDA GPUs, which are used instead.

    Raises
    ------
    BLSError
        The count or the capacity is invalid.

    Examples
    --------
    >>> bls.simulate_gpus(1, "512 MiB")
    1
    """
    try:
        return registry.simulate_gpus(count, memory, even_with_cuda=even_with_cuda)
    except ValueError as error:
        raise BLSError(str(error)) from None


def cupy() -> Any:
    """Return CuPy if there is a CUDA GPU, or its substitute if GPUs are simulated.

    Returns
    -------
    module
        `cupy`, or a module with the same names for simulated GPUs.

    Raises
    ------
    BLSError
        There is no GPU; the message says how to simulate one.

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


def gpus_in(config: ModelConfigMessage) -> int:
    """Return the number of GPUs that a configuration needs."""
    gpu = model_config_pb2().ModelInstanceGroup.KIND_GPU
    return max((max(group.gpus, default=0) + 1 for group in config.instance_group if group.kind == gpu), default=0)
