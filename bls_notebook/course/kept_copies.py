"""Copies of tensors that models keep from request to request. No recording of memory contains them."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping

import numpy as np

from bls_notebook.extending import Host
from bls_notebook.lifetimes.owners import reachable, roots_of
from bls_notebook.records import size
from bls_notebook.testing.claim_checks import Judgement

_LEAST = 4096  # bytes of a copy that is large
_COPIES = (np.ndarray, list, bytes, bytearray, array)


def kept_sizes(host: Host) -> dict[str, list[int]]:
    """Return the sizes of the large copies that models keep, by owner."""
    found: dict[str, list[int]] = {}
    for name in host.names():
        for model in host.versions(name).values():
            for value, owner in reachable(roots_of(model)):
                if isinstance(value, _COPIES) and sys.getsizeof(value) >= _LEAST:
                    found.setdefault(owner().partition("[")[0], []).append(sys.getsizeof(value))
    return found


def judge_copies(before: Mapping[str, list[int]], host: Host, requests: int) -> Judgement | None:
    """Return a judgement that fails if a model keeps more after each of so many requests; None if none does.

    `before` are the sizes after the same requests: a copy that all requests share, such as their sum, does not grow.
    """
    for name, sizes in kept_sizes(host).items():
        earlier = before.get(name, [])
        added, grown = len(sizes) - len(earlier), sum(sizes) - sum(earlier)
        if grown >= requests * _LEAST and (earlier or added >= requests):
            seen = f"{size(grown)} {f'in {added} copies' if added >= requests else 'added to a copy'}, held by {name}"
            hint = "A copy takes as much memory as the tensor. Keep what you need of it, such as a number or a shape."
            return Judgement("nothing_left", False, seen, hint)
    return None
