"""DLPack capsules of simulated GPUs: which block the memory of one lies in, whoever made it here."""

from __future__ import annotations

from weakref import WeakValueDictionary

from bls_notebook.devices import dlpack
from bls_notebook.devices.device import DLPackError

from .machine import Block

# By the address of what a capsule holds.
_exported: WeakValueDictionary[int, Block] = WeakValueDictionary()


def exported(capsule: object, memory: Block) -> object:
    """Return an unused capsule of host memory as one of the GPU whose block that memory is."""
    dlpack.move_capsule(capsule, (2, memory.device_id))
    _exported[dlpack.address_of_capsule(capsule)] = memory
    return capsule


def block_of_capsule(capsule: object) -> Block:
    """Return the block of a capsule that `exported` gave, which is used up then; a DLPackError for others."""
    kind, index = dlpack.device_of_capsule(capsule)
    memory = _exported.pop(dlpack.address_of_capsule(capsule), None)
    if kind not in dlpack.CUDA_DEVICES or memory is None:
        raise DLPackError(
            f"The DLPack capsule holds memory of device type {kind}, number {index}, which is not that of a "
            "simulated GPU"
        )
    return memory
