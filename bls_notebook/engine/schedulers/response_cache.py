"""`ResponseCache`: answers that were given before, the least recently used of them dropped first.

Guarantees: safe from any thread; the tensors of its entries never take more than its size; what it
gives and what it is given are copied, so nobody's writes reach an entry. The size counts the bytes of
tensors.

Differs from the real server's, on purpose: shapes and data types belong to the key (there ``[[1, 2]]`` and
``[[1], [2]]`` share an answer), outputs that were not asked for are withheld, errors are never kept, and
an answer is dropped with the loaded model that gave it. As there, what lies on a GPU is neither looked up nor
kept.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from bls_notebook.observe.recording import nbytes
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

__all__ = ["DEFAULT_CACHE_BYTES", "CacheCounts", "ResponseCache"]

DEFAULT_CACHE_BYTES = 16 * 2**20
Key = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What a cache has done and holds."""

    entries: int
    bytes: int
    size: int
    hits: int
    misses: int
    evictions: int
    lookup_ns: int
    insert_ns: int


class _Entry:
    __slots__ = ("bytes", "outputs", "parameters", "requested", "warnings")

    def __init__(self, requested: tuple[str, ...], response: InferenceResponse, size: int) -> None:
        self.requested = frozenset(requested)
        self.outputs = [_copy(t) for t in response._outputs]
        self.parameters = response._parameters
        self.warnings = response._warnings
        self.bytes = size


class ResponseCache:
    """The response cache of a repository.

    Parameters
    ----------
    size : int
        Bytes of tensors that it may hold; 0 for no cache.
    """

    def __init__(self, size: int = DEFAULT_CACHE_BYTES) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = 0
        self._lookup_ns = self._insert_ns = 0

    @staticmethod
    def takes(request: InferenceRequest) -> bool:
        """Whether a request may be looked up: its inputs are on the CPU."""
        return all(t.is_cpu() for t in request._inputs)

    @staticmethod
    def key(model: int, request: InferenceRequest) -> Key:
        """Return what makes requests to a loaded model equal: their inputs."""
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

    def lookup(self, key: Key, requested: tuple[str, ...]) -> InferenceResponse | None:
        """Return a copy of the answer to an equal request that asked for these outputs, or for more."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or not entry.requested.issuperset(requested):
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
        response = InferenceResponse()
        response._outputs = [_copy(t) for t in entry.outputs if t._name in requested]
        response._parameters = entry.parameters
        response._warnings = entry.warnings
        return response

    def insert(self, key: Key, requested: tuple[str, ...], response: InferenceResponse) -> None:
        """Keep a copy of an answer, unless it is an error, on a GPU, or larger than the cache."""
        if not all(t.is_cpu() for t in response._outputs):
            return
        size = nbytes(response._outputs)
        if response._error is not None or size > self.size:
            return
        entry = _Entry(requested, response, size)
        with self._lock:
            old = self._entries.pop(key, None)
            self._bytes += size - (old.bytes if old is not None else 0)
            self._entries[key] = entry
            while self._bytes > self.size:
                _, dropped = self._entries.popitem(last=False)
                self._bytes -= dropped.bytes
                self._evictions += 1

    def timed(self, lookup_ns: int, insert_ns: int) -> None:
        """Count the time that looking up and putting in took."""
        with self._lock:
            self._lookup_ns += lookup_ns
            self._insert_ns += insert_ns

    def forget(self, model: int) -> None:
        """Drop every answer of a loaded model."""
        with self._lock:
            for key in [k for k in self._entries if k[0] == model]:
                self._bytes -= self._entries.pop(key).bytes

    def counts(self) -> CacheCounts:
        """Return what it has done and holds."""
        with self._lock:
            return CacheCounts(
                len(self._entries), self._bytes, self.size, self._hits, self._misses, self._evictions,
                self._lookup_ns, self._insert_ns,
            )  # fmt: skip


def _copy(tensor: Tensor) -> Tensor:
    return Tensor._of(tensor._name, tensor._array.copy(), tensor._datatype)
