"""Devices: the CPU, CUDA's GPUs through CuPy, simulated GPUs; and moving arrays between them.

`registry` says what is there, `moves` is how the engine moves arrays, `observer` is who is told of it.
"""
