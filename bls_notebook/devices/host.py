"""The memory of the machine itself, as far as the system tells without another package."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from .usage import Usage

__all__ = ["host_usage"]


def host_usage() -> Usage:
    """Return the CPU's memory: the whole process counts as ours; -1 for what is not known."""
    total = _total()
    ours = _resident()
    free = _available()
    others = max(0, total - free - ours) if min(total, free, ours) >= 0 else -1
    return Usage(_processor(), ours, 0, others, total)


def _processor() -> str:
    cores = os.cpu_count() or 0
    return f"{platform.machine()}, {cores} cores" if cores else platform.machine()


def _total() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return -1


def _resident() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return -1


def _available() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return -1
