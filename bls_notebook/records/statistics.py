"""Statistics of a model version, the reason why its requests were not batched, metrics, and the memory of devices.

A record of statistics is built from an entry of Triton's statistics, of this runtime or of a real server's
``/v2/models/NAME/stats``, which omits zeros.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .base import Record
from .units import count

_PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


@dataclass(frozen=True, slots=True, repr=False)
class Times(Record):
    """The number of events and their total duration in nanoseconds."""

    count: int = 0
    ns: int = 0

    @property
    def seconds(self) -> float:
        """Mean duration in seconds; 0 without events."""
        return self.ns / self.count / 1e9 if self.count else 0.0


@dataclass(frozen=True, slots=True, repr=False)
class BatchSeen(Record):
    """The number of executions with a batch of this many rows."""

    rows: int
    executions: int


@dataclass(frozen=True, slots=True, repr=False)
class StatisticsRecord(Record):
    """Statistics of a model version since it was loaded.

    `inferences` counts rows of batches, `executions` calls of `execute`, `success` and `fail` requests. `failures` has
    Triton's reasons (REJECTED, CANCELED, BACKEND, OTHER) and their counts, if known. `batching` says whether the model
    accepts batches, `cached` whether it uses the response cache. Only this runtime has `waited`, the number of
    executions that began while other requests waited, and `ended`, the reasons why the dynamic batcher closed a batch,
    with counts: ``shape:NAME`` (the next request has another shape of that input), ``inputs`` (it has other inputs),
    ``rows``, ``preferred``, ``queue``, ``delay`` or ``full``.
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
        """Mean batch size; 0 without executions."""
        return self.inferences / self.executions if self.executions else 0.0


def statistics_record(
    row: Mapping[str, Any], failures: Iterable[tuple[str, int]] = (), batching: bool = False, cached: bool = False
) -> StatisticsRecord:
    """Return the record of an entry of ``model_stats``.

    `failures` are an argument because Triton reports the reasons of failed requests only in its metrics. `batching` and
    `cached` come from the model's configuration, and are also true if the entry shows batches or use of the cache.
    """
    phases: dict[str, Any] = {
        name: Times(int(times.get("count", 0)), int(times.get("ns", 0)))
        for name, times in row.get("inference_stats", {}).items()
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


_FEW = 1.5  # requests per execution, from which on requests count as batched
_LEAST = 4  # executions; with fewer there is no statement
# The reason and the remedy, by the event that closed a batch.
_REASONS = json.loads(Path(__file__).with_name("unbatched.json").read_text("utf-8"))


@dataclass(frozen=True)
class Unbatched:
    """The observation that requests were not batched, the reason, and the remedy."""

    said: str
    because: str
    mend: str

    @property
    def sentence(self) -> str:
        """Observation, reason and remedy in one line."""
        return f"{self.said}: {self.because} {self.mend}"


def why_not_batched(record: StatisticsRecord) -> Unbatched | None:
    """Return why requests to a version with batching ran one by one; None if there is nothing to say.

    That is the case for few requests, for requests that never waited, and if most requests ran in batches.
    """
    requests = record.success.count - record.cache_hit.count
    if record.max_batch_size < 2 or record.executions < _LEAST or not requests:
        return None
    if requests / record.executions >= _FEW:
        return None
    said = f"{count(requests, 'request')} ran in {count(record.executions, 'execution')}, hardly any together"
    rows = record.inferences / requests
    if record.waited and 2 * rows > record.max_batch_size:
        return Unbatched(said, *(text.format(rows=rows, most=record.max_batch_size) for text in _REASONS["large"]))
    if record.scheduler == "default" and record.waited:
        return Unbatched(
            said,
            f"{record.waited:,} times an instance ran one request while others waited, because without "
            "`dynamic_batching` each request runs alone.",
            "Add `dynamic_batching { }` to config.pbtxt.",
        )
    if record.scheduler != "dynamic" or not record.ended:
        return None
    reason, times = max(record.ended, key=lambda pair: pair[1])
    kind, _, name = reason.partition(":")
    if times * 2 < sum(number for _, number in record.ended):
        return None
    texts = _REASONS.get(kind) if record.waited or kind == "delay" else None
    return None if texts is None else Unbatched(said, *(text.format(times=times, name=name) for text in texts))


OWN = "nv_"  # the prefix of Triton's own metrics


@dataclass(frozen=True, slots=True, repr=False)
class BucketSeen(Record):
    """A bucket of a histogram: its upper bound as Prometheus writes it, and its own (not cumulative) count."""

    bound: str
    count: int


@dataclass(frozen=True, slots=True, repr=False)
class MetricRecord(Record):
    """One metric of a family. If it is a histogram, it has buckets, and `value` is the sum of its observations."""

    labels: tuple[tuple[str, str], ...] = ()
    value: float = 0.0
    buckets: tuple[BucketSeen, ...] = ()

    @property
    def count(self) -> int:
        """The number of observations of a histogram."""
        return sum(bucket.count for bucket in self.buckets)


@dataclass(frozen=True, slots=True, repr=False)
class FamilyRecord(Record):
    """A family of metrics; `kind` is counter, gauge or histogram."""

    name: str
    help: str = ""
    kind: str = "counter"
    metrics: tuple[MetricRecord, ...] = ()

    @property
    def own(self) -> bool:
        """True for a metric of Triton, False for a model's."""
        return self.name.startswith(OWN)


def family_record(family: Any) -> FamilyRecord:
    """Return the record of a `prometheus_client` family."""
    if family.type != "histogram":
        metrics = tuple(MetricRecord(_labels(s.labels), float(s.value)) for s in family.samples)
        return FamilyRecord(family.name, family.documentation, family.type, metrics)
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    counts: dict[tuple[tuple[str, str], ...], list[tuple[str, int]]] = {}
    for sample in family.samples:
        labels = _labels({k: v for k, v in sample.labels.items() if k != "le"})
        if sample.name.endswith("_sum"):
            sums[labels] = float(sample.value)
        elif sample.name.endswith("_bucket"):
            counts.setdefault(labels, []).append((sample.labels["le"], int(sample.value)))
    metrics = tuple(MetricRecord(labels, sums.get(labels, 0.0), _buckets(below)) for labels, below in counts.items())
    return FamilyRecord(family.name, family.documentation, family.type, metrics)


def _labels(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in labels.items() if value))


def _buckets(below: Sequence[tuple[str, int]]) -> tuple[BucketSeen, ...]:
    """Return buckets with their own counts; Prometheus's counts are cumulative."""
    before = (0, *(count for _, count in below))
    return tuple(BucketSeen(le, count - less) for (le, count), less in zip(below, before, strict=False))


def matching(families: Iterable[FamilyRecord], text: str = "") -> list[FamilyRecord]:
    """Return the families that match a text: the models' own first, then Triton's.

    The text is part of a name, a help text or a label, written ``name="value"``; case does not matter. If only labels
    of a family match, the family keeps only the metrics with these labels.
    """
    word = text.casefold()
    out = []
    for family in families:
        if word not in f"{family.name} {family.help}".casefold():
            metrics = tuple(m for m in family.metrics if word in ",".join(f'{k}="{v}"' for k, v in m.labels).casefold())
            if not metrics:
                continue
            family = replace(family, metrics=metrics)
        out.append(family)
    return sorted(out, key=lambda family: family.own)


@dataclass(frozen=True, slots=True, repr=False)
class DeviceRecord(Record):
    """A device and its memory in bytes; -1 means unknown.

    `name` is ``cpu`` or ``gpu:0``. `ours` is used by this process's arrays, `cached` is free memory in its pool, and
    `others` is all other memory in use.
    """

    name: str
    hardware: str = ""
    simulated: bool = False
    ours: int = -1
    cached: int = 0
    others: int = -1
    total: int = -1


@dataclass(frozen=True, slots=True, repr=False)
class DeviceTable(Record):
    """The devices of a machine at one moment, the CPU first."""

    devices: tuple[DeviceRecord, ...] = ()

    def __iter__(self) -> Iterator[DeviceRecord]:
        return iter(self.devices)

    def __len__(self) -> int:
        return len(self.devices)

    def __getitem__(self, name: int | str) -> DeviceRecord:
        """Return a device by its position, or by its name."""
        if isinstance(name, int):
            return self.devices[name]
        for device in self.devices:
            if device.name == name:
                return device
        raise KeyError(f"no device {name!r}; the devices are {', '.join(d.name for d in self.devices)}")
