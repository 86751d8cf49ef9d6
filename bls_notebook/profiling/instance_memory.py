"""What memory one more instance of a model takes: one is loaded, looked at and taken away again."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from typing import NamedTuple

from bls_notebook.devices.listing import device_records
from bls_notebook.records.devices import DeviceRecord
from bls_notebook.repository.instance_counts import with_count, with_fields
from bls_notebook.repository.repository import ModelRepository

_NOTICED = 4 << 20  # bytes: less cannot be told from what else the process does
_ROOM = 0.8  # of what is free now


class InstanceMemory(NamedTuple):
    """What an instance takes of the host and of a GPU, in bytes, and for how many more there is room.

    -1 where that was not seen; 0 is less than can be told.
    """

    host: int = -1
    device: int = -1
    room: int = -1


def memory_of_instance(repository: ModelRepository, name: str) -> InstanceMemory:
    """Return what an instance of a model takes; BLSError where none can be loaded."""
    group = repository.config(name).instance_group[0]
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # glibc's: or an instance fills what is free, unseen
        ctypes.CDLL(None).malloc_trim(0)
    before = {device.name: device for device in device_records()}
    with with_fields(repository, {name: with_count(repository, name, 1)}):
        after = {device.name: device for device in device_records()}
    grown = {n: _used(after[n]) - _used(before[n]) for n in before if n in after and before[n].total >= 0}
    rooms = [
        int(_ROOM * (before[n].total - _used(before[n]) - max(0, before[n].others)) / taken)
        for n, taken in grown.items()
        if taken >= _NOTICED
    ]
    host = grown.pop("cpu", -1)
    device = max(grown.values()) if grown and group.gpus else -1
    told = [0 if -1 < each < _NOTICED else each for each in (host, device)]
    room = min(rooms) * max(1, len(group.gpus)) if rooms else -1
    return InstanceMemory(max(-1, told[0]), max(-1, told[1]), room)


def _used(device: DeviceRecord) -> int:
    return max(0, device.ours) + max(0, device.cached)
