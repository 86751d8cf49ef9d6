"""Records of metric families, with the values that Prometheus would read at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .base import Record

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
    """Return the families that match a text: first those of models, then Triton's own.

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
