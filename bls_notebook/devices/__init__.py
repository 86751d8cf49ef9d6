"""Devices (the CPU, CUDA's GPUs through CuPy, simulated GPUs) and transfers between them.

`registry` lists the devices, `transfers` moves arrays, `allocation_log` records blocks of memory.
"""
