"""System shared memory that clients register: regions by name, for inputs to read and outputs to write.

Guarantees: a key can only name a POSIX shared memory object (no path leaves /dev/shm). No access leaves its
region. If the client shrinks an object, requests that use it get an error. The file of a region is closed when it
is unregistered and no request uses it. The objects belong to the clients and are never removed.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bls_notebook.network.limits import PATH_CHARACTERS

from .errors import ALREADY_EXISTS, CANCELLED, INTERNAL, NOT_FOUND, UNAVAILABLE, UNSUPPORTED, refuse

_KEY = re.compile(r"/?[^/\0]{1,255}")
_DOTS = ("", ".", "..")
_RESERVED = "triton_python_backend_shm_region_"  # prefix of the objects of Triton's Python backend
_FOLDER = "/dev/shm"  # where POSIX shared memory is on Linux


@dataclass
class Region:
    """A part of a shared memory object: `byte_size` bytes from `offset` on."""

    name: str
    key: str
    offset: int
    byte_size: int
    handle: int  # a file descriptor; if the memory were mapped, a client that shrinks it would kill this process
    users: int = 0  # requests in flight
    leaving: bool = False  # unregistered, and removed once it has no users


@dataclass(frozen=True)
class Part:
    """A part of a region that is not read yet: its size is checked first."""

    use: RegionUse
    name: str
    offset: int
    byte_size: int
    add: Callable[[int], None]  # counts the bytes, and raises above the limits

    def __len__(self) -> int:
        return self.byte_size

    def read(self) -> bytes:
        """Return a copy of the bytes; ProtocolError if the inputs of the request are too large."""
        self.add(self.byte_size)
        return self.use.read(self.name, self.offset, self.byte_size)


_DISABLED = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."


class Regions:
    """The regions that clients have registered, at most `most`, because each keeps a file open; thread-safe.

    A region that a request in flight uses is unregistered when that request ends.
    """

    def __init__(self, most: int, allowed: bool = True) -> None:
        self._most, self._allowed = most, allowed
        self._lock = threading.Lock()
        self._regions: dict[str, Region] = {}

    def require_allowed(self) -> None:
        """Raise ProtocolError if clients may not use shared memory."""
        if not self._allowed:
            refuse(_DISABLED, UNSUPPORTED)

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register a part of a client's shared memory object."""
        self.require_allowed()
        if not sys.platform.startswith("linux"):
            refuse("system shared memory is supported on Linux only", UNSUPPORTED)
        if len(name) > PATH_CHARACTERS:
            refuse(f"the name of a shared memory region has more than {PATH_CHARACTERS:,} characters")
        if offset < 0 or byte_size < 0:
            refuse(f"shared memory region '{name}': offset and byte_size must not be negative")
        if not key.strip("/"):
            refuse(f"cannot register shared memory region '{name}' - invalid shm key '{key}'")
        if key.lstrip("/").startswith(_RESERVED):
            refuse(
                f"cannot register shared memory region '{name}' with key '{key}' as the key contains the reserved "
                f"prefix '{_RESERVED}'"
            )
        with self._lock:
            if name in self._regions:
                refuse(f"shared memory region '{name}' already in manager", ALREADY_EXISTS)
            if len(self._regions) >= self._most:
                refuse(f"{self._most} shared memory regions are registered, the limit of this endpoint", UNAVAILABLE)
            self._regions[name] = Region(name, key, offset, byte_size, _open_object(name, key, offset + byte_size))

    def unregister(self, name: str = "") -> None:
        """Unregister a region, or all without a name; ignore an unknown name."""
        self.require_allowed()
        self.remove(name)

    def remove(self, name: str = "") -> None:
        """Remove a region, or all without a name, once no request uses it."""
        with self._lock:
            for region in list(self._regions.values()):
                if name in ("", region.name):
                    region.leaving = True
                    self._remove_unused(region)

    def _remove_unused(self, region: Region) -> None:
        if region.leaving and not region.users:
            del self._regions[region.name]
            os.close(region.handle)

    def status(self, name: str = "") -> list[dict[str, Any]]:
        """Return name, key, offset and size of a region, or of all regions."""
        with self._lock:
            if name and name not in self._regions:
                refuse(f"Unable to find system shared memory region: '{name}'", NOT_FOUND)
            fields = ("name", "key", "offset", "byte_size")
            return [
                {field: getattr(region, field) for field in fields}
                for key, region in sorted(self._regions.items())
                if name in ("", key)
            ]

    def acquire(self, name: str) -> Region:
        """Return a region that is not removed before `release`; ProtocolError if it is unknown."""
        with self._lock:
            region = self._regions.get(name) or refuse(f"Unable to find shared memory region: '{name}'", NOT_FOUND)
            region.users += 1
            return region

    def release(self, region: Region) -> None:
        """Give a region back at the end of a request; remove it if it has been unregistered meanwhile."""
        with self._lock:
            region.users -= 1
            self._remove_unused(region)


class RegionUse:
    """The regions that one request uses, until `close`, which may happen while a thread still decodes the request."""

    __slots__ = ("_closed", "_held", "_regions")

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._held: dict[str, Region] = {}
        self._closed = False

    def part(self, name: str, offset: int, byte_size: int, add: Callable[[int], None]) -> Part:
        """Return a part of a region for an input of a request, whose bytes `add` counts."""
        self.check(name, offset, byte_size)
        return Part(self, name, offset, byte_size, add)

    def check(self, name: str, offset: int, byte_size: int) -> None:
        """Raise ProtocolError if the region is unknown or the part is not inside it."""
        if name not in self._held:
            self._held[name] = self._regions.acquire(name)
            if self._closed:
                self.close()
        self._place(name, offset, byte_size)

    def read(self, name: str, offset: int, byte_size: int) -> bytes:
        handle, start = self._place(name, offset, byte_size)
        return _read(handle, byte_size, start)

    def write(self, name: str, region: str, offset: int, byte_size: int, data: bytes | memoryview) -> None:
        """Write an output into a part of a region; `name` is the output's."""
        if len(data) > byte_size:
            refuse(
                f"shared memory size specified with the request for output '{name}' ({byte_size} "
                f"bytes) should be at least {len(data)} bytes to hold the results",
                INTERNAL,
            )
        handle, start = self._place(region, offset, len(data))
        view = memoryview(data)
        while view:
            written = os.pwrite(handle, view, start)
            view, start = view[written:], start + written

    def close(self) -> None:
        """Release the regions; may be called twice."""
        self._closed = True
        with suppress(KeyError):  # empty
            while self._held:
                self._regions.release(self._held.popitem()[1])

    def _place(self, name: str, offset: int, byte_size: int) -> tuple[int, int]:
        region = self._held.get(name) or refuse("the request was cancelled", CANCELLED)
        if not 0 <= offset < region.byte_size:
            refuse(f"Invalid offset for shared memory region: '{name}'")
        if byte_size + offset >= 1 << 64:
            refuse(
                f"Integer overflow detected: byte_size ({byte_size}) + offset ({offset}) exceeds maximum value "
                f"({(1 << 64) - 1}) for region '{name}'"
            )
        if byte_size < 0 or offset + byte_size > region.byte_size:
            refuse(f"Invalid offset + byte size for shared memory region: '{name}'")
        start = region.offset + offset
        if os.fstat(region.handle).st_size < start + byte_size:
            refuse(f"shared memory region '{name}': '{region.key}' has become smaller than its registered size")
        return region.handle, start


def _read(handle: int, byte_size: int, start: int) -> bytes:
    parts, end = [], start + byte_size
    while start < end:  # one call reads 2 GB at most
        parts.append(os.pread(handle, end - start, start))
        if not parts[-1]:
            refuse("the shared memory became smaller while it was read")
        start += len(parts[-1])
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _open_object(name: str, key: str, needed: int) -> int:
    cannot = f"Unable to open shared memory region: '{key}'"
    if not _KEY.fullmatch(key) or key.removeprefix("/") in _DOTS:
        refuse(cannot, INTERNAL)
    try:
        handle = os.open(f"{_FOLDER}/{key.removeprefix('/')}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        refuse(cannot, INTERNAL)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or not 0 < needed <= status.st_size:
        os.close(handle)
        if stat.S_ISREG(status.st_mode) and needed:
            refuse(f"failed to register shared memory region '{name}': invalid args")
        refuse(f"Invalid shared memory region: '{key}'", INTERNAL)
    return handle
