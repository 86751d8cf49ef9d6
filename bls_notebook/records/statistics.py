"""What a model version has done, as one record, and why its requests were not batched.

A record is read from a row of Triton's statistics: of this runtime, or of a real server's
``/v2/models/NAME/stats``, which leaves out what is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .base import Record
from .units import count

_PHASES = (
    "success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss",
)  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Times(Record):
    """How often something happened, and how long that took in all, in nanoseconds."""

    count: int = 0
    ns: int = 0

    @property
    def seconds(self) -> float:
        """Mean of one, in seconds; 0 where there was none."""
        return self.ns / self.count / 1e9 if self.count else 0.0


@dataclass(frozen=True, slots=True, repr=False)
class BatchSeen(Record):
    """Executions of one size: ``rows`` is the size of the batch, ``executions`` how many there were."""

    rows: int
    executions: int


@dataclass(frozen=True, slots=True, repr=False)
class StatisticsRecord(Record):
    """What a model version has done.

    ``inferences`` counts rows of batches, ``executions`` calls of `execute`, ``success`` and ``fail`` requests.
    ``failures`` has Triton's reasons (REJECTED, CANCELED, BACKEND, OTHER) with their counts, where they are known.
    ``batching`` says whether the model takes batches, ``cached`` whether it uses the response cache. Of this runtime
    alone: how often others ``waited`` when an instance began, and what ``ended`` the batches that a dynamic batcher
    took from its queue: ``shape:NAME`` (the next request differs in that input), ``inputs`` (it has others), ``rows``,
    ``preferred``, ``queue``, ``delay`` or ``full``, each with a count.
    """

    name: str
    version: str = "1"
    inferences: int = 0
    executions: int = 0
    success: Times = Times()
    fail: Times = Times()
    failures: tuple[tuple[str, int], ...] = ()
    queue: Times = Times()
    compute_input: Times = Times()
    compute_infer: Times = Times()
    compute_output: Times = Times()
    cache_hit: Times = Times()
    cache_miss: Times = Times()
    batches: tuple[BatchSeen, ...] = ()
    batching: bool = False
    cached: bool = False
    scheduler: str = ""
    max_batch_size: int = 0
    waited: int = 0
    ended: tuple[tuple[str, int], ...] = ()

    @property
    def batch(self) -> float:
        """Mean size of a batch; 0 where nothing was executed."""
        return self.inferences / self.executions if self.executions else 0.0


def statistics_record(
    row: Mapping[str, Any], failures: Iterable[tuple[str, int]] = (), batching: bool = False, cached: bool = False
) -> StatisticsRecord:
    """Return the record of a row of ``model_stats``.

    Reasons of failed requests are in Triton's metrics alone. What a model's configuration says of `batching`
    and `cached` is set too where the row shows it.
    """
    phases: dict[str, Any] = {
        name: Times(int(found.get("count", 0)), int(found.get("ns", 0)))
        for name, found in row.get("inference_stats", {}).items()
        if name in _PHASES
    }
    batches = tuple(
        BatchSeen(int(batch["batch_size"]), int(batch.get("compute_infer", {}).get("count", 0)))
        for batch in row.get("batch_stats", ())
    )
    return StatisticsRecord(
        str(row["name"]),
        str(row.get("version", "")),
        int(row.get("inference_count", 0)),
        int(row.get("execution_count", 0)),
        failures=tuple((reason, count) for reason, count in failures if count),
        batches=batches,
        batching=batching or any(batch.rows > 1 for batch in batches),
        cached=cached or any(phases[name].count for name in ("cache_hit", "cache_miss") if name in phases),
        **phases,
    )


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
