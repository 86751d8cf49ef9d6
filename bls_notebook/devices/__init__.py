"""Devices: the CPU, CUDA's GPUs through CuPy, simulated GPUs; and moving arrays between them.

`registry` knows the devices, `transfers` moves arrays, `allocation_log` records blocks of memory.
"""
