"""Iteration order of the hash tables in which Triton keeps the inputs of a request and the outputs of an ensemble.

They are `std::unordered_map<std::string, ...>` of libstdc++. An error about several inputs names the first one in this
order, and an ensemble returns its outputs in it. Mostly it is the reverse of insertion; names that share a bucket and
large tables differ. A model gets inputs that went through two tables, so few of them mostly keep the request's order.
Sources: core/src/infer_request.cc, core/src/ensemble_scheduler/ensemble_scheduler.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from bls_notebook.pb_utils.tensor import Tensor

_BUCKETS = (13, 29, 59, 127)  # sizes of the table as it grows
_MASK = (1 << 64) - 1
_FACTOR, _SEED = 0xC6A4A7935BD1E995, 0xC70F6907  # of MurmurHash64A, as libstdc++ uses it


def hash_order(names: Sequence[str]) -> list[str]:
    """Return names in the order in which a table iterates over them that got them in the given order."""
    order: list[str] = []
    buckets = _BUCKETS[0]
    for name in dict.fromkeys(names):
        if len(order) == buckets:
            if buckets == _BUCKETS[-1]:
                return list(reversed(names))
            buckets = _BUCKETS[_BUCKETS.index(buckets) + 1]
            inserted, order = order, []
            for each in inserted:
                _insert(order, each, buckets)
        _insert(order, name, buckets)
    return order


def as_received(inputs: list[Tensor], added: Sequence[Tensor] = ()) -> list[Tensor]:
    """Return a request's inputs, and those that a server adds, in the order that a model sees.

    `inputs` may be in this order already: two tables more give the same again, except for more than 13 names.
    """
    both = [*inputs, *added] if added else inputs
    if len(both) < 2:
        return both
    places = _places(tuple([tensor._name for tensor in both]), len(inputs))
    return both if places is None else [both[place] for place in places]


@lru_cache(1024)
def _places(names: tuple[str, ...], sent: int) -> tuple[int, ...] | None:
    """Return the position of each input in `names`, of which the first `sent` are the request's; None if all stay."""
    if len(set(names)) < len(names):
        return None
    order = hash_order([*hash_order(names[:sent]), *names[sent:]])
    return None if order == [*names] else tuple(map(names.index, order))


def _insert(order: list[str], name: str, buckets: int) -> None:
    """Insert a name before the first one of its bucket, or in front of all."""
    bucket = _hash(name.encode("utf-8", "surrogatepass")) % buckets
    places = (at for at, other in enumerate(order) if _hash(other.encode("utf-8", "surrogatepass")) % buckets == bucket)
    order.insert(next(places, 0), name)


def _hash(data: bytes) -> int:
    value = _SEED ^ (len(data) * _FACTOR & _MASK)
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        part = int.from_bytes(data[at : at + 8], "little") * _FACTOR & _MASK
        value = (value ^ (_mixed(part) * _FACTOR & _MASK)) * _FACTOR & _MASK
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    return _mixed(_mixed(value) * _FACTOR & _MASK)


def _mixed(value: int) -> int:
    return value ^ (value >> 47)
