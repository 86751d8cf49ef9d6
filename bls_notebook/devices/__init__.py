"""Devices (the CPU, CUDA's GPUs through CuPy, simulated GPUs) and transfers between them.

`registry` lists the devices, `transfers` moves arrays, `allocation_log` records blocks of memory.
"""

from bls_notebook.lazy_names import offer

offer(__name__, {
    "device": "Device DeviceError DLPackError OutOfMemoryError WorkerSimulation",
    "host_memory": "resident_bytes return_free_memory share_one_heap",
    "registry":
        "backend_of cuda_gpu_count device_of device_records devices gpu_arrays gpu_count gpus MOST_GPUS need_gpu "
        "simulated_gpus",
    "transfers": "nbytes to_cpu to_gpu",
})  # fmt: skip
