"""Why requests were not batched: from what a model version has done, in words.

`why_not_batched` is pure: it knows nothing but a `StatisticsRecord`. For each batch that it took from its
queue, the scheduler has counted what ended it (`ended`).
"""

from __future__ import annotations

from dataclasses import dataclass

from .quantities import count
from .statistics import StatisticsRecord

_FEW = 1.5  # rows: below, a batch is hardly one
_LEAST = 4  # executions of which anything is told


@dataclass(frozen=True)
class Unbatched:
    """Why: what was seen, why it was so, and what to do."""

    said: str
    because: str
    mend: str

    @property
    def sentence(self) -> str:
        """All of it in a line."""
        return f"{self.said}: {self.because} {self.mend}"


def why_not_batched(seen: StatisticsRecord) -> Unbatched | None:
    """Return why a version's requests ran one by one though it takes batches; None where there is nothing.

    Nothing is told of few requests, of requests that never waited, or where most did run together.
    """
    requests = seen.success.count - seen.cache_hit.count
    if seen.max_batch_size < 2 or seen.executions < _LEAST or not requests:
        return None
    if requests / seen.executions >= _FEW:
        return None
    said = f"{count(requests, 'request')} ran in {count(seen.executions, 'execution')}, hardly any together"
    if seen.scheduler == "default" and seen.waited:
        return Unbatched(
            said,
            f"{seen.waited:,} times an instance took one while others waited; without `dynamic_batching` "
            "each runs by itself.",
            "Add `dynamic_batching { }` to config.pbtxt.",
        )
    if seen.scheduler != "dynamic" or not seen.ended:
        return None
    reason, times = max(seen.ended, key=lambda pair: pair[1])
    kind, _, name = reason.partition(":")
    if times * 2 < sum(number for _, number in seen.ended):
        return None
    told = _TOLD.get(kind) if seen.waited or kind == "delay" else None
    return None if told is None else Unbatched(said, *(words.format(times=times, name=name) for words in told))


# What ended a batch: why, and what to do.
_TOLD = {
    "shape": (
        "{times:,} times the next request in the queue had another shape of input {name!r}, and only equal "
        "shapes share a batch.",
        "Pad to equal sizes, or set `allow_ragged_batch: true` for it and handle the rows by themselves.",
    ),
    "inputs": (
        "{times:,} times the next request in the queue had other optional inputs, and only requests with the "
        "same ones share a batch.",
        "Send the same inputs with every request.",
    ),
    "rows": (
        "{times:,} times the next request in the queue had too many rows for what max_batch_size left.",
        "Raise max_batch_size, or send fewer rows at once.",
    ),
    "preferred": (
        "{times:,} times a batch of a preferred size was run as soon as it was there.",
        "Take the small sizes out of `preferred_batch_size`.",
    ),
    "queue": (
        "{times:,} times nothing else was waiting when an instance took a request, and it does not wait for "
        "others (`max_queue_delay_microseconds` is 0).",
        "Send more requests at once, or let them wait: `max_queue_delay_microseconds: 1000`.",
    ),
    "delay": (
        "{times:,} times nobody else came within `max_queue_delay_microseconds`.",
        "Send more requests at once, or raise the delay.",
    ),
}
