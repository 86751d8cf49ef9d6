"""Families of metrics as records: what Prometheus would read of them at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .base import Record

OWN = "nv_"  # what names of Triton's own metrics begin with


@dataclass(frozen=True, slots=True, repr=False)
class BucketSeen(Record):
    """A bucket of a histogram: its upper bound as Prometheus writes it, and how many fell into it alone."""

    bound: str
    count: int


@dataclass(frozen=True, slots=True, repr=False)
class MetricRecord(Record):
    """One metric of a family. A histogram has buckets, and ``value`` is the sum of its observations."""

    labels: tuple[tuple[str, str], ...] = ()
    value: float = 0.0
    buckets: tuple[BucketSeen, ...] = ()

    @property
    def count(self) -> int:
        """How many observations a histogram has."""
        return sum(bucket.count for bucket in self.buckets)


@dataclass(frozen=True, slots=True, repr=False)
class FamilyRecord(Record):
    """A family of metrics; ``kind`` is counter, gauge or histogram."""

    name: str
    help: str = ""
    kind: str = "counter"
    metrics: tuple[MetricRecord, ...] = ()

    @property
    def own(self) -> bool:
        """Whether it is one of Triton's own, not of a model."""
        return self.name.startswith(OWN)


def family_record(family: Any) -> FamilyRecord:
    """Return the record of a family of `prometheus_client`, under the name that its maker gave."""
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
    """Buckets by themselves; Prometheus counts in each all that are below its bound."""
    before = (0, *(count for _, count in below))
    return tuple(BucketSeen(le, count - less) for (le, count), less in zip(below, before, strict=False))


def matching(families: Iterable[FamilyRecord], text: str = "") -> list[FamilyRecord]:
    """Return the families with a word in them: those of models first, Triton's own after them.

    The word is part of a name or a help text, or of a label as ``name="value"``, in any case; of a family
    where only labels match, those metrics are left.
    """
    word = text.casefold()
    out = []
    for family in families:
        if word not in f"{family.name} {family.help}".casefold():
            found = tuple(m for m in family.metrics if word in ",".join(f'{k}="{v}"' for k, v in m.labels).casefold())
            if not found:
                continue
            family = replace(family, metrics=found)
        out.append(family)
    return sorted(out, key=lambda family: family.own)
