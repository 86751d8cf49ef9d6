"""Custom metrics of models, exposed through `prometheus_client`.

Guarantees: safe from any thread; metrics of equal names and labels share one value; an invalid name, kind, label or
amount raises ValueError, in Triton's words, and changes nothing. A value exists until all its holders have released
it; a value that never had a holder exists as long as the repository.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bls_notebook.records.statistics import FamilyRecord

MetricLabels = tuple[tuple[str, str], ...]
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")


class Metrics:
    """The metrics of one repository: a collector for `prometheus_client`. `server` returns Triton's own families."""

    def __init__(self, server: Callable[[], list[Any]] | None = None) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._families: dict[str, _Family] = {}

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Make families of their own for models that this context loads, so that their values begin at 0."""
        token = separate_metrics.set(Metrics())
        try:
            yield
        finally:
            separate_metrics.reset(token)

    def family(self, name: str, description: str, kind: str) -> _Family:
        """Return the family with this name; make it if it does not exist."""
        if not _NAME.match(name) or name.startswith("__"):
            raise ValueError("Invalid metric name")
        other: Metrics | None = separate_metrics.get()
        if other is not None and other is not self:
            return other.family(name, description, kind)
        with self._lock:
            family = self._families.get(name)
            if family is None:
                family = self._families[name] = _Family(name, description, kind)
            elif family.kind != kind:
                raise ValueError("Family name already exists with different type")
            return family

    def collect(self) -> list[Any]:
        return [family for _, family in self._named()]

    def _named(self) -> list[tuple[str, Any]]:
        """Return the families with their full names: `prometheus_client` removes ``_total`` from some."""
        with self._lock:
            families = list(self._families.values())
        own = [(family.name, family.collect()) for family in families if family.samples()]
        server = self._server() if self._server is not None else []
        return [(family.name, family) for family in server] + own

    def families(self, filter: str = "") -> list[FamilyRecord]:
        """Return records of the families whose name, help text or a label contains `filter` in any case."""
        from bls_notebook.records.statistics import family_record, matching  # first needed here

        return matching((replace(family_record(family), name=name) for name, family in self._named()), filter)

    def text(self, filter: str = "") -> str:
        """Return the families in Prometheus's text format."""
        wanted = {family.name for family in self.families(filter)} if filter else None
        return "".join(_exposed(name, family) for name, family in self._named() if wanted is None or name in wanted)


# The families of models that are loaded now, if they are separate from the repository's.
separate_metrics: ContextVar[Any] = ContextVar("separate_metrics", default=None)


def _exposed(name: str, family: Any) -> str:
    """Return a family in Prometheus's text format, without the ``_total`` that `prometheus_client` adds to counters."""
    from prometheus_client import generate_latest

    text = generate_latest(SimpleNamespace(collect=lambda: [family])).decode()
    if family.type != "counter" or name.endswith("_total"):
        return text
    lines = []
    for line in text.splitlines(True):
        for start in ("# HELP ", "# TYPE ", ""):
            if line.startswith(f"{start}{name}_total"):
                line = f"{start}{name}{line[len(start) + len(name) + 6 :]}"
                break
        lines.append(line)
    return "".join(lines)


def _key(labels: Mapping[str, str]) -> MetricLabels:
    return tuple(sorted(labels.items()))


class _Family:
    def __init__(self, name: str, description: str, kind: str) -> None:
        self.name, self.description, self.kind = name, description, kind
        self._lock = threading.Lock()
        self._metrics: dict[MetricLabels, _Metric] = {}
        self._holds: dict[MetricLabels, int] = {}
        self._released: deque[MetricLabels] = deque()  # destructors append here, because they must not take locks

    def metric(self, labels: dict[str, str], buckets: list[float] | None, hold: bool = False) -> _Metric:
        """Return the metric with these labels, made if it does not exist; with `hold`, it exists until `release`."""
        for label, value in labels.items():
            if not isinstance(value, str):
                raise ValueError(f"attempt to access JSON non-string as string: label '{label}' is {value!r}")
            if label.startswith("__") or not _LABEL.match(label):
                raise ValueError(f"Invalid label name '{label}'")
            if value.encode("utf-8", "ignore") != value.encode("utf-8", "replace"):
                raise ValueError(
                    "failed to parse the request JSON buffer: The surrogate pair in string is invalid: "
                    f"label '{label}' is {value!r}"
                )
        if self.kind == "histogram":
            # As on the server, an empty list is allowed (all observations are in +Inf), and so is NaN.
            if buckets is None or any(upper <= lower for lower, upper in pairwise(buckets)):
                raise ValueError("Bucket Boundaries must be strictly sorted")
        elif buckets is not None:
            raise ValueError(f"a {self.kind} takes no buckets")
        key = _key(labels)
        with self._lock:
            self._settle()
            metric = self._metrics.get(key)
            if metric is None:
                metric = self._metrics[key] = _Metric(self.kind, labels, buckets)
            if hold:
                self._holds[key] = self._holds.get(key, 0) + 1
            return metric

    def release(self, metrics: Iterable[_Metric]) -> None:
        """Release metrics. Takes no locks."""
        self._released.extend(_key(metric.labels) for metric in metrics)

    def _settle(self) -> None:
        """Delete released metrics without a holder; lock held."""
        while self._released:
            key = self._released.popleft()
            self._holds[key] -= 1
            if not self._holds[key]:
                del self._holds[key], self._metrics[key]

    def samples(self) -> list[_Metric]:
        with self._lock:
            self._settle()
            return list(self._metrics.values())

    def collect(self) -> Any:
        from prometheus_client.core import Metric

        name = self.name.removesuffix("_total") if self.kind == "counter" else self.name
        out = Metric(name, self.description, self.kind)
        for metric in self.samples():
            if self.kind != "histogram":
                out.add_sample(name + ("_total" if self.kind == "counter" else ""), metric.labels, metric.value())
                continue
            buckets, total = metric.observed()
            for bound, count in buckets:
                out.add_sample(f"{name}_bucket", {**metric.labels, "le": bound}, count)
            out.add_sample(f"{name}_count", metric.labels, buckets[-1][1])
            out.add_sample(f"{name}_sum", metric.labels, total)
        return out


class _Metric:
    def __init__(self, kind: str, labels: dict[str, str], buckets: list[float] | None) -> None:
        self._kind, self.labels = kind, labels
        self._lock = threading.Lock()
        self._value = 0.0
        self._bounds = buckets or []
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def _refuse(self, problem: str, *kinds: str) -> None:
        """Raise ValueError if the metric has one of these kinds."""
        if self._kind in kinds:
            raise ValueError(f"TRITONSERVER_METRIC_KIND_{self._kind.upper()} {problem}")

    def increment(self, amount: float) -> None:
        self._refuse("does not support Increment", "histogram")
        if amount < 0:
            self._refuse("can only be incremented monotonically by non-negative values.", "counter")
        with self._lock:
            self._value += amount

    def set(self, value: float) -> None:
        self._refuse("does not support Set", "counter", "histogram")
        with self._lock:
            self._value = value

    def observe(self, value: float) -> None:
        self._refuse("does not support Observe", "counter", "gauge")
        with self._lock:
            self._total += value
            index = sum(value > bound for bound in self._bounds)
            self._counts[index] += 1

    def value(self) -> float:
        self._refuse("does not support Value", "histogram")
        return self._value

    def observed(self) -> tuple[list[tuple[str, float]], float]:
        """Return a histogram's cumulative buckets and the sum of the observations."""
        with self._lock:
            out, running = [], 0
            for bound, count in zip([*map(bound_text, self._bounds), "+Inf"], self._counts, strict=True):
                running += count
                out.append((bound, float(running)))
            return out, self._total


def bound_text(value: float) -> str:
    """Return the upper bound of a bucket as the label ``le`` has it."""
    return str(int(value)) if float(value).is_integer() else str(value)
