"""`device_records`: the devices that there are and their memory, as plain data."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

from bls_notebook.records.devices import DeviceRecord

from .registry import gpus


def device_records() -> list[DeviceRecord]:
    """Return a record of each device: the CPU, then the GPUs."""
    found = gpus()
    return [_host(), *(found.usage(i) for i in range(found.count))] if found is not None else [_host()]


def _host() -> DeviceRecord:
    """The CPU and the memory of the machine: the whole process counts as ours; -1 for what is not known."""
    total = _known(lambda: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    ours = _known(lambda: int(_read("self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    free = _known(lambda: int(_read("meminfo").split("MemAvailable:")[1].split()[0]) * 1024)
    others = max(0, total - free - ours) if min(total, free, ours) >= 0 else -1
    cores = os.cpu_count() or 0
    hardware = f"{platform.machine()}, {cores} cores" if cores else platform.machine()
    return DeviceRecord("cpu", hardware, False, ours, 0, others, total)


def _known(read: Callable[[], int]) -> int:
    """What the system says without another package; -1 where it does not."""
    try:
        return read()
    except (AttributeError, ValueError, OSError, IndexError):
        return -1


def _read(name: str) -> str:
    return Path("/proc", name).read_text()
