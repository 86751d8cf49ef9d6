"""Asks whether there is a CUDA GPU, without importing anything that needs one."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import sys
from functools import cache

__all__ = ["cuda_gpu_count", "has_cupy"]


@cache
def cuda_gpu_count() -> int:
    """Return how many GPUs the CUDA driver shows to this process; 0 without a driver."""
    names = ["nvcuda.dll"] if sys.platform == "win32" else ["libcuda.so.1", "libcuda.so"]
    for name in names:
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
    """Whether CuPy is installed; it is not imported."""
    return "cupy" in sys.modules or importlib.util.find_spec("cupy") is not None
