"""The calls of a batch by its requests: whether an `execute` serves its requests one by one, or gathers them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from bls_notebook.profiling.records.spans import Span

AS_ONE, ONE_BY_ONE, GATHERED = "as one", "one by one", "gathered"
"""How an `execute` serves a batch: it computes once, or it serves one request after the other, or all together."""
Calls = tuple[Span, ...]


def calls_of_requests(
    calls: Sequence[Span], requests: int, alone: Sequence[Sequence[str]] = ()
) -> tuple[str, tuple[Calls, ...]]:
    """Return how an `execute` served its requests, and the calls that it sent for each of them.

    `calls` are in the order of sending. `alone` are the models that each request calls if it is served by itself; if
    that is unknown, every request is taken to call the same ones. If the numbers contradict that, or there are no
    calls, the batch is served as one.
    """
    if requests < 2 or not calls:
        return AS_ONE, ()
    if len(alone) != requests:
        each, rest = divmod(len(calls), requests)
        first = [call.model for call in calls[:each]]
        alone = [] if rest or not each else [first] * requests
    if not all(alone) or sum(map(len, alone)) != len(calls):
        return AS_ONE, ()
    ends = list(accumulate(map(len, alone)))
    parts = tuple(tuple(calls[end - len(own) : end]) for own, end in zip(alone, ends, strict=True))
    is_same = all(sorted(call.model for call in part) == sorted(own) for own, part in zip(alone, parts, strict=True))
    if is_same and all(max(c.ended for c in one) <= after[0].sent for one, after in pairwise(parts)):
        return ONE_BY_ONE, parts
    by_model: dict[str, list[Span]] = {}
    for call in calls:
        by_model.setdefault(call.model, []).append(call)
    if any(len(same) % requests for same in by_model.values()) or not _overlap(calls):
        return AS_ONE, ()
    # The first calls to a model belong to different requests, unless each request sends several at once.
    shares: list[list[Span]] = [[] for _ in range(requests)]
    for model, same in by_model.items():
        if any(list(own).count(model) != len(same) // requests for own in alone):
            return AS_ONE, ()
        for i, call in enumerate(same):
            shares[i % requests].append(call)
    return GATHERED, tuple(tuple(sorted(share, key=lambda call: call.sent)) for share in shares)


def _overlap(calls: Sequence[Span]) -> bool:
    return any(after.sent < one.ended for one, after in pairwise(calls))
