"""Records of devices and their memory at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .base import Record


@dataclass(frozen=True, slots=True, repr=False)
class DeviceRecord(Record):
    """A device and its memory in bytes; -1 means unknown.

    `name` is ``cpu`` or ``gpu:0``. `ours` is used by this process's arrays, `cached` is free memory in its pool, and
    `others` is all other memory in use.
    """

    name: str
    hardware: str = ""
    simulated: bool = False
    ours: int = -1
    cached: int = 0
    others: int = -1
    total: int = -1


@dataclass(frozen=True, slots=True, repr=False)
class DeviceTable(Record):
    """The devices of a machine at one moment, the CPU first."""

    devices: tuple[DeviceRecord, ...] = ()

    def __iter__(self) -> Iterator[DeviceRecord]:
        return iter(self.devices)

    def __len__(self) -> int:
        return len(self.devices)

    def __getitem__(self, name: int | str) -> DeviceRecord:
        """Return a device by its position, or by its name."""
        if isinstance(name, int):
            return self.devices[name]
        for device in self.devices:
            if device.name == name:
                return device
        raise KeyError(f"no device {name!r}; the devices are {', '.join(d.name for d in self.devices)}")
