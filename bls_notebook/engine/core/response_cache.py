"""`ResponseCache`: a cache of responses that drops the least recently used first.

Guarantees: safe from any thread. The tensors of its entries never take more memory than its size. Tensors are copied
when they enter and when they leave, so writes to them do not change an entry.

Four deliberate differences from Triton's cache: shapes and data types are part of the key (Triton returns the same
response for ``[[1, 2]]`` and ``[[1], [2]]``); outputs that were not requested are withheld; errors are not kept; a
response is dropped when its model version is unloaded. As in Triton, requests and responses with tensors on a GPU do
not use the cache.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bls_notebook.devices.transfers import nbytes
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

DEFAULT_CACHE_BYTES = 16 * 2**20
CacheKey = tuple[int, bytes]


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


class _Entry(NamedTuple):
    requested: frozenset[str]
    response: InferenceResponse
    bytes: int


class ResponseCache:
    """The response cache of a repository; `size` in bytes of tensors, 0 for no cache."""

    def __init__(self, size: int = DEFAULT_CACHE_BYTES) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[CacheKey, _Entry] = OrderedDict()
        self._counts = CacheCounts(size)

    @staticmethod
    def takes(request: InferenceRequest) -> bool:
        """Return whether a request can use the cache: all its inputs are on the CPU."""
        return all(t.is_cpu() for t in request._inputs)

    @staticmethod
    def key(model: int, request: InferenceRequest) -> CacheKey:
        """Return the key of a request to a loaded model: a digest of its inputs."""
        digest = hashlib.blake2b(digest_size=32)
        for tensor in sorted(request._inputs, key=Tensor.name):
            array = tensor._array
            digest.update(f"{tensor._name!r} {tensor._datatype} {array.shape};".encode())
            if array.dtype == np.object_:
                for element in array.reshape(-1).tolist():
                    digest.update(len(element).to_bytes(8, "little"))
                    digest.update(element)
            else:
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return model, digest.digest()

    def lookup(self, key: CacheKey, requested: tuple[str, ...]) -> InferenceResponse | None:
        """Return a copy of the response to an equal request for at least these outputs, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or not entry.requested.issuperset(requested):
                self._counts.misses += 1
                return None
            self._counts.hits += 1
            self._entries.move_to_end(key)
        return _copy(entry.response, requested)

    def insert(self, key: CacheKey, requested: tuple[str, ...], response: InferenceResponse) -> None:
        """Keep a copy of a response, unless it is an error, on a GPU, or larger than the cache."""
        if not all(t.is_cpu() for t in response._outputs):
            return
        size = nbytes(response._outputs)
        if response._error is not None or size > self.size:
            return
        entry = _Entry(frozenset(requested), _copy(response, requested), size)
        with self._lock:
            old = self._entries.pop(key, None)
            self._counts.bytes += size - (old.bytes if old is not None else 0)
            self._entries[key] = entry
            while self._counts.bytes > self.size:
                _, dropped = self._entries.popitem(last=False)
                self._counts.bytes -= dropped.bytes
                self._counts.evictions += 1

    def timed(self, lookup_ns: int, insert_ns: int) -> None:
        with self._lock:
            self._counts.lookup_ns += lookup_ns
            self._counts.insert_ns += insert_ns

    def forget(self, model: int) -> None:
        with self._lock:
            for key in [k for k in self._entries if k[0] == model]:
                self._counts.bytes -= self._entries.pop(key).bytes

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._counts.bytes = 0

    def counts(self) -> CacheCounts:
        with self._lock:
            return replace(self._counts, entries=len(self._entries))


def _copy(response: InferenceResponse, requested: tuple[str, ...]) -> InferenceResponse:
    out = InferenceResponse()
    out._outputs = [
        Tensor._of(t._name, t._array.copy(), t._datatype) for t in response._outputs if t._name in requested
    ]
    out._parameters = response._parameters
    out._warnings = response._warnings
    return out
