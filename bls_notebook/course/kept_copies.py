"""Copies of tensors that models keep from request to request. No recording of memory contains them."""

from __future__ import annotations

import sys

import numpy as np

from bls_notebook.extending import Host
from bls_notebook.lifetimes.owners import reachable, roots_of
from bls_notebook.records.units import size
from bls_notebook.testing.claim_checks import Judgement

_LEAST = 4096  # bytes of an array or a list that is large


def judge_copies(host: Host, requests: int) -> Judgement | None:
    """Return a judgement that fails if a model keeps a large copy for each of so many requests; None if none does."""
    found: dict[str, list[int]] = {}
    for name in host.names():
        for model in host.versions(name).values():
            for value, owner in reachable(roots_of(model)):
                if isinstance(value, (np.ndarray, list, bytes, bytearray)) and sys.getsizeof(value) >= _LEAST:
                    found.setdefault(owner().partition("[")[0], []).append(sys.getsizeof(value))
    for name, sizes in found.items():
        if len(sizes) >= requests:
            seen = f"{size(sum(sizes))} in {len(sizes)} copies, held by {name}"
            hint = "A copy takes as much memory as the tensor. Keep what you need of it, such as a number or a shape."
            return Judgement("nothing_left", False, seen, hint)
    return None
