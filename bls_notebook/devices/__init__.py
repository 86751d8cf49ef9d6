"""Devices: the CPU, CUDA's GPUs through CuPy, simulated GPUs; and moving arrays between them.

`registry` says what is there, `moves` is how the engine moves arrays, `observer` is who is told of it.
"""

from .device import CPU, Device, parse_device
from .errors import DeviceError, DLPackError, NoDeviceError, OutOfMemoryError
from .registry import backend_of, cupy, devices, gpu_count, gpus, need_gpu, simulate_gpus, simulated_gpus

__all__ = [
    "CPU",
    "DLPackError",
    "Device",
    "DeviceError",
    "NoDeviceError",
    "OutOfMemoryError",
    "backend_of",
    "cupy",
    "devices",
    "gpu_count",
    "gpus",
    "need_gpu",
    "parse_device",
    "simulate_gpus",
    "simulated_gpus",
]
