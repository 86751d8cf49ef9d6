"""The host memory that this process has freed and glibc keeps for it, in a heap for each thread that allocates.

Without glibc, these functions do nothing.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress


def return_free_memory() -> bool:
    """Return freed memory to the operating system; return False if that is impossible here.

    It takes about 0.3 ms, and 30 ms for each GB that it returns.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
        return True
    return False


def share_one_heap() -> None:
    """Let all threads that start from now on allocate from one heap.

    By default, glibc creates up to eight per core, and `return_free_memory` cannot return the end of one, up to 64 MB.
    The two thresholds are the largest that glibc chooses itself. With smaller ones, each large request maps its pages
    anew: requests of 2 MB take 1.5 times as long.
    """
    with suppress(AttributeError, OSError, TypeError):
        for option, value in ((-8, 1), (-3, 32 << 20), (-1, 64 << 20)):  # M_ARENA_MAX, M_MMAP_ and M_TRIM_THRESHOLD
            ctypes.CDLL(None).mallopt(option, value)


def resident_bytes(pid: int = 0) -> int:
    """Return the bytes of a process, by default this one, that are in the machine's memory; -1 if unknown."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError, IndexError):
        return -1
