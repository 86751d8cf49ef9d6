"""`ResponseCache`: a cache of responses that drops the least recently used first.

Guarantees: safe from any thread. The tensors of its entries never take more memory than its size. Tensors are copied
when they enter and when they leave, so writes to them do not change an entry.

As in Triton, the key has the bytes of a request's inputs, but neither their shapes nor the requested outputs. An error
becomes an entry without outputs. The first response with a key stays. Responses with an empty output, and requests and
responses with tensors on a GPU, do not use the cache.
Mirrors core/src/cache_manager.cc, core/src/cache_entry.cc and the repository local_cache.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bls_notebook.devices.transfers import nbytes
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

DEFAULT_CACHE_BYTES = 16 * 2**20
CacheKey = tuple[Hashable, bytes]


@dataclass(slots=True)
class CacheCounts:
    """Statistics of a cache; times are nanoseconds."""

    size: int
    entries: int = 0
    bytes: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    lookup_ns: int = 0
    insert_ns: int = 0


Shapes = tuple[tuple[str, tuple[int, ...]], ...]  # of a request's inputs, by name


class CacheEntry(NamedTuple):
    """A cached response, the shapes of its request, the load of the model that made it, and its error, or ""."""

    response: InferenceResponse
    shapes: Shapes
    load: int
    error: str

    @property
    def bytes(self) -> int:
        """Its size in Triton's format."""
        outputs = self.response._outputs
        heads = (len(t._name.encode(errors="surrogatepass")) + len(t._datatype) + 8 * t._array.ndim for t in outputs)
        return 4 + nbytes(outputs) + sum(28 + head for head in heads)


class ResponseCache:
    """The response cache of a repository; `size` in bytes, 0 for no cache."""

    def __init__(self, size: int = DEFAULT_CACHE_BYTES) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[CacheKey, CacheEntry] = OrderedDict()
        self._counts = CacheCounts(size)

    @staticmethod
    def takes(request: InferenceRequest) -> bool:
        """Return whether a request can use the cache: all its inputs are on the CPU."""
        return all(t.is_cpu() for t in request._inputs)

    @staticmethod
    def key(scope: Hashable, request: InferenceRequest) -> tuple[CacheKey, Shapes]:
        """Return the key of a request, a digest of its inputs, and their shapes; loads in one `scope` share entries."""
        digest = hashlib.blake2b(digest_size=32)
        shapes = []
        for tensor in sorted(request._inputs, key=Tensor.name):
            array = tensor._array
            shapes.append((tensor._name, array.shape))
            digest.update(f"{tensor._name!r}".encode())
            if array.dtype == np.object_:
                for element in array.reshape(-1).tolist():
                    digest.update(len(element).to_bytes(4, "little"))
                    digest.update(element)
            else:
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return (scope, digest.digest()), tuple(shapes)

    def lookup(self, key: CacheKey) -> CacheEntry | None:
        """Return a copy of the entry of an equal request, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._counts.misses += 1
                return None
            self._counts.hits += 1
            self._entries.move_to_end(key)
        return entry._replace(response=_copy(entry.response))

    def insert(self, key: CacheKey, entry: CacheEntry) -> bool:
        """Keep a copy of an entry, unless it cannot be cached; return False if there is one with this key."""
        outputs = entry.response._outputs
        keeps = all(t.is_cpu() and t._array.size for t in outputs) and entry.bytes <= self.size
        entry = entry._replace(response=_copy(entry.response)) if keeps else entry
        with self._lock:
            if key in self._entries:
                return False
            if keeps:
                self._counts.bytes += entry.bytes
                self._entries[key] = entry
            while self._counts.bytes > self.size:
                _, dropped = self._entries.popitem(last=False)
                self._counts.bytes -= dropped.bytes
                self._counts.evictions += 1
        return True

    def timed(self, lookup_ns: int, insert_ns: int) -> None:
        with self._lock:
            self._counts.lookup_ns += lookup_ns
            self._counts.insert_ns += insert_ns

    def forget(self, scope: Hashable) -> None:
        with self._lock:
            for key in [k for k in self._entries if k[0] == scope]:
                self._counts.bytes -= self._entries.pop(key).bytes

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._counts.bytes = 0

    def counts(self) -> CacheCounts:
        with self._lock:
            return replace(self._counts, entries=len(self._entries))


def _copy(response: InferenceResponse) -> InferenceResponse:
    out = InferenceResponse()
    out._outputs = [Tensor._of(t._name, t._array.copy(), t._datatype) for t in response._outputs]
    out._parameters = response._parameters
    out._warnings = response._warnings
    return out
