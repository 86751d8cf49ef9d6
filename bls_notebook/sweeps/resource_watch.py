"""Memory, ``/dev/shm`` and open files of processes over time, and the growth that is beyond noise.

Linux only: elsewhere there are no samples.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from time import monotonic

import numpy as np

from .records import Growth, ResourceSample

_PERIOD, _SAMPLES = 0.25, 400  # s between samples, at least; samples of a sweep, about
LEAST_SAMPLES = 16  # samples of a constant load without which nothing is called growth
_SETTLES = 0.25  # fraction of a load that is not judged: pools fill, lazy imports run
_NOISE = 3.0  # growth in units of the scatter around the trend
_FLOORS = {"memory": 4 << 20, "shm": 64 << 10, "files": 4}
NAMES = {"memory": "memory", "shm": "/dev/shm", "files": "open files"}


def growth(samples: Sequence[ResourceSample]) -> Iterator[Growth]:
    """Yield the quantities that grew steadily under a constant load, and by more than they scatter."""
    samples = samples[int(len(samples) * _SETTLES) :]
    if len(samples) < LEAST_SAMPLES:
        return
    at = np.array([sample.at for sample in samples])
    for quantity, floor in _FLOORS.items():
        values = np.array([getattr(sample, quantity) for sample in samples], float)
        slope, base = np.polyfit(at, values, 1)
        scatter = float(np.std(values - (base + slope * at)))
        middles = [float(np.median(part)) for part in np.array_split(values, 4)]
        grown = float(slope * (at[-1] - at[0]))
        # A step, such as one new pool, leaves quarters without growth.
        steady = all(after > before for before, after in pairwise(middles))
        if steady and grown > max(floor, _NOISE * scatter):
            yield Growth(NAMES[quantity], grown, float(at[-1] - at[0]))


def with_children(process: int) -> list[int]:
    """Return a process and all processes that it started, directly or not."""
    found = [process]
    for each in found:  # which grows
        with suppress(OSError, ValueError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def resources(process: int, began: float) -> ResourceSample | None:
    """Return the resources of a process and its children now; None if it has ended, or without ``/proc``."""
    memory = files = 0
    for each in with_children(process):
        with suppress(OSError, ValueError, IndexError):
            resident, shared = Path(f"/proc/{each}/statm").read_text().split()[1:3]
            memory += (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
            files += len(os.listdir(f"/proc/{each}/fd"))
    if not memory:
        return None
    shm = 0
    with suppress(OSError):
        disk = os.statvfs("/dev/shm")
        shm = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    return ResourceSample(monotonic() - began, memory, shm, files)


class ResourceWatch:
    """Takes samples of a process (None: of none) on a thread, in a ``with`` block of about so many seconds."""

    def __init__(self, process: int | None, seconds: float) -> None:
        self.samples: list[ResourceSample] = []
        self._process, self._period = process, max(_PERIOD, seconds / _SAMPLES)
        self._began = monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bls-resources", daemon=True)

    def _watch(self) -> None:
        while self._process is not None and (sample := resources(self._process, self._began)) is not None:
            self.samples.append(sample)
            if self._over.wait(self._period):
                return

    def __enter__(self) -> ResourceWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
