"""The registry of GPUs: CUDA's, or simulated ones if the user requested them.

Guarantees: safe from any thread. CuPy is not imported, and the driver is not called, before the first request for a GPU
or the first load of a model; without CuPy, that only checks whether CuPy is installed. Simulated GPUs are for machines
without a CUDA GPU; with one, they need `even_with_cuda`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import sys
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.records.remedy_words import remedy
from bls_notebook.records.statistics import DeviceRecord

from .device import CPU, Device, DeviceError, GPUs, NoDeviceError, WorkerSimulation, parse_size
from .host_memory import resident_bytes

DEFAULT_MEMORY = 4 << 30
MOST_GPUS = 64
COUNT_VARIABLE = "BLS_NOTEBOOK_SIMULATED_GPUS"
MEMORY_VARIABLE = "BLS_NOTEBOOK_SIMULATED_GPU_MEMORY"

_lock = threading.RLock()
gpu_arrays: dict[type[Any], GPUs] = {}  # GPUs by the class of their arrays; empty until a GPU was requested and exists
_simulator: Callable[[int, int, bool], GPUs]
_simulated: GPUs | None = None  # while GPUs are simulated
_cuda: GPUs | None = None
_asked_cuda = False
_asked_environment = False


def gpus() -> GPUs | None:
    """Return the GPUs, or None."""
    _read_environment()
    return _simulated if _simulated is not None else cuda()


def gpu_count() -> int:
    found = gpus()
    return 0 if found is None else found.count


def devices() -> list[Device]:
    found = gpus()
    return [CPU] if found is None else [CPU, *(Device("gpu", i, found.simulated) for i in range(found.count))]


def need_gpu(index: int = 0) -> GPUs:
    """Return the GPUs if this index exists; else raise NoDeviceError, which says why and how to get one."""
    found = gpus()
    if found is None:
        raise NoDeviceError(f"gpu:{index} is not there: {why_no_gpu()}")
    if not 0 <= index < found.count:
        existing = ", ".join(str(d) for d in devices())
        remedy = f"; simulate more with bls.simulate_gpus({index + 1})" if found.simulated else ""
        raise NoDeviceError(f"gpu:{index} is not there; the devices here are {existing}{remedy}")
    return found


def backend_of(array: object) -> GPUs | None:
    """Return the GPUs that an array belongs to; None for any other object."""
    for cls in type(array).__mro__:
        backend = gpu_arrays.get(cls)
        if backend is not None:
            return backend
    if _cuda is None and type(array).__module__.partition(".")[0] == "cupy" and cuda() is not None:
        return backend_of(array)
    return None


def device_of(array: Any) -> Device:
    """Return the device of an array: the CPU, unless it is an array of a known GPU."""
    there = None if isinstance(array, np.ndarray) else backend_of(array)
    return CPU if there is None else there.device_of(array)


def simulated_gpus() -> int:
    _read_environment()
    return 0 if _simulated is None else _simulated.count


def simulate_gpus(count: int, memory: int | str | None = None, *, even_with_cuda: bool = False) -> int:
    """Simulate GPUs on a machine without one (`bls.simulate_gpus`). Only arrays on them take host memory."""
    global _simulated, _asked_environment
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MOST_GPUS:
        raise ValueError(f"simulate_gpus: got {count!r}, expected a number of GPUs from 0 to {MOST_GPUS}")
    capacity = DEFAULT_MEMORY if memory is None else parse_size(memory)
    with _lock:
        _asked_environment = True  # this call overrides the environment
        if count == 0 or (not even_with_cuda and cuda() is not None):
            _simulated = None
            return 0
        # Without CuPy, PyTorch may still use a CUDA GPU.
        _simulated = _simulator(count, capacity, even_with_cuda or cuda_gpu_count() == 0)
        gpu_arrays[_simulated.array_class] = _simulated
        return count


def simulation_of_workers() -> WorkerSimulation | None:
    """Return the simulated GPUs of new workers, or None."""
    found = gpus()
    return None if found is None else found.for_workers()


def register_simulator(simulator: Callable[[int, int, bool], GPUs]) -> None:
    """Register a function of (count, bytes of each, visible in PyTorch) that returns the single `GPUs` object."""
    global _simulator
    _simulator = simulator


def cuda() -> GPUs | None:
    """Return CUDA's GPUs; None if there are none, or without CuPy."""
    global _cuda, _asked_cuda
    if _asked_cuda:
        return _cuda
    with _lock:
        if not _asked_cuda:
            if has_cupy() and cuda_gpu_count() > 0:
                from .cuda_gpus import CudaGPUs

                try:
                    _cuda = CudaGPUs()
                except DeviceError as error:
                    warnings.warn(f"bls_notebook uses no GPU: {error}", RuntimeWarning, stacklevel=3)
                else:
                    gpu_arrays[_cuda.array_class] = _cuda
            _asked_cuda = True
    return _cuda


@cache
def cuda_gpu_count() -> int:
    """Return the number of GPUs that the CUDA driver shows to this process; 0 without a driver."""
    for name in ["nvcuda.dll"] if sys.platform == "win32" else ["libcuda.so.1", "libcuda.so"]:
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        count = ctypes.c_int(0)
        if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0:
            return count.value
        return 0
    return 0


@cache
def has_cupy() -> bool:
    """Return whether CuPy is installed; does not import it."""
    return "cupy" in sys.modules or importlib.util.find_spec("cupy") is not None


def why_no_gpu() -> str:
    switch = f"simulate one with {remedy('{simulate}')}, or {COUNT_VARIABLE}=1 in the environment"
    if cuda_gpu_count() == 0:
        return f"this machine has no CUDA GPU; {switch}"
    if has_cupy():
        return f"CuPy does not work here, see the warning; to go without, {switch}"
    packages = "its package depends on the version of CUDA: cupy-cuda12x, cupy-cuda13x, ..."
    return f"there is a CUDA GPU, but CuPy is not installed ({packages}); install it, or {switch}"


def _read_environment() -> None:
    global _asked_environment
    if _asked_environment:
        return
    with _lock:
        if _asked_environment:
            return
        _asked_environment = True
        count, memory = os.environ.get(COUNT_VARIABLE, ""), os.environ.get(MEMORY_VARIABLE)
        try:
            if count:
                simulate_gpus(int(count), memory or None)
        except ValueError as error:
            warnings.warn(
                f"{COUNT_VARIABLE}={count!r}, {MEMORY_VARIABLE}={memory!r}: {error}; no GPU is simulated",
                RuntimeWarning,
                stacklevel=4,
            )


def cupy() -> Any:
    """Return CuPy, or its substitute on simulated GPUs."""
    return need_gpu().array_module()


def simulated_cupy() -> Any:
    """Return the substitute for `cupy` in models, or None."""
    found = _simulated
    return None if found is None else found.array_module()


def device_records() -> list[DeviceRecord]:
    found = gpus()
    return [_host(), *(found.usage(i) for i in range(found.count))] if found is not None else [_host()]


def _host() -> DeviceRecord:
    """Return the record of the CPU and the machine's memory (bytes). This process counts as ours; -1 is unknown."""
    total = _known(lambda: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    ours = resident_bytes()
    free = _known(lambda: int(Path("/proc/meminfo").read_text("utf-8").split("MemAvailable:")[1].split()[0]) * 1024)
    others = max(0, total - free - ours) if min(total, free, ours) >= 0 else -1
    cores = os.cpu_count() or 0
    hardware = f"{platform.machine()}, {cores} cores" if cores else platform.machine()
    return DeviceRecord("cpu", hardware, False, ours, 0, others, total)


def _known(read: Callable[[], int]) -> int:
    try:
        return read()
    except (AttributeError, ValueError, OSError, IndexError):
        return -1
