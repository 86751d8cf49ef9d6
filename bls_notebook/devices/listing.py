"""`device_records`: the devices that there are and their memory, as plain data."""

from __future__ import annotations

from bls_notebook.observe.records.repository import DeviceRecord

from .host import host_usage
from .registry import devices, gpus

__all__ = ["device_records"]


def device_records() -> list[DeviceRecord]:
    """Return a record of each device: the CPU, then the GPUs."""
    records = []
    found = gpus()
    for device in devices():
        usage = host_usage() if found is None or device.kind == "cpu" else found.usage(device.index)
        records.append(
            DeviceRecord(
                device.name,
                usage.name,
                device.simulated,
                usage.ours,
                usage.cached,
                usage.others,
                usage.total,
            )
        )
    return records
