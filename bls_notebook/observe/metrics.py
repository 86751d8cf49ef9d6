"""Metrics of models, kept and exposed by `prometheus_client`.

Guarantees: safe from any thread; metrics of equal names and labels share one value; a bad name, kind,
label or amount raises ValueError, in Triton's words, and changes nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Metrics"]

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")


class Metrics:
    """The metrics of one repository; a collector for a `prometheus_client` registry.

    Parameters
    ----------
    server : callable, optional
        Gives families that are exposed beside those of the models.
    """

    def __init__(self, server: Callable[[], list[Any]] | None = None) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._families: dict[str, _Family] = {}

    def family(self, name: str, description: str, kind: str) -> _Family:
        """Return the family of that name, made if it is new."""
        if not _NAME.match(name):
            raise ValueError("Invalid metric name")
        with self._lock:
            found = self._families.get(name)
            if found is None:
                found = self._families[name] = _Family(name, description, kind)
            elif found.kind != kind:
                raise ValueError("Family name already exists with different type")
            return found

    def collect(self) -> list[Any]:
        """Return what `prometheus_client` exposes."""
        with self._lock:
            families = list(self._families.values())
        return (self._server() if self._server is not None else []) + [f.collect() for f in families]

    def text(self) -> str:
        """Return all values in Prometheus's text format, under the names that the models gave."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        # prometheus_client calls a counter `hits` `hits_total`; Triton leaves a name as it is.
        lines = []
        suffixed = {f"{f.name}_total": f.name for f in list(self._families.values()) if f.renamed}
        for family in self._server() if self._server is not None else ():
            if family.type == "counter":
                suffixed[f"{family.name}_total"] = family.name
        for line in generate_latest(registry).decode().splitlines():
            for long, name in suffixed.items():
                for start in (f"# HELP {long} ", f"# TYPE {long} ", f"{long} ", f"{long}{{"):
                    if line.startswith(start):
                        line = line.replace(long, name, 1)
            lines.append(line)
        return "\n".join(lines) + ("\n" if lines else "")


class _Family:
    def __init__(self, name: str, description: str, kind: str) -> None:
        self.name, self.description, self.kind = name, description, kind
        self._lock = threading.Lock()
        self._metrics: dict[tuple[tuple[str, str], ...], _Metric] = {}

    @property
    def renamed(self) -> bool:
        """Whether prometheus_client puts a suffix to its name."""
        return self.kind == "counter" and not self.name.endswith("_total")

    def metric(self, labels: dict[str, str], buckets: list[float] | None) -> _Metric:
        """Return the metric with these labels, made if it is new."""
        for label in labels:
            if not _LABEL.match(label) or label.startswith("__"):
                raise ValueError(f"Invalid label name '{label}'")
        if self.kind == "histogram":
            if not buckets or sorted(set(buckets)) != buckets:
                raise ValueError("histogram buckets must be given, and increase")
        elif buckets is not None:
            raise ValueError(f"a {self.kind} takes no buckets")
        key = tuple(sorted(labels.items()))
        with self._lock:
            found = self._metrics.get(key)
            if found is None:
                found = self._metrics[key] = _Metric(self.kind, labels, buckets)
            return found

    def collect(self) -> Any:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            Metric,
        )

        with self._lock:
            metrics = list(self._metrics.values())
        names = sorted({label for m in metrics for label in m.labels})
        out: Metric
        if self.kind == "histogram":
            out = HistogramMetricFamily(self.name, self.description, labels=names)
            for m in metrics:
                out.add_metric(
                    [m.labels.get(n, "") for n in names], buckets=m.cumulative(), sum_value=m.total
                )
            return out
        family = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        out = family(self.name, self.description, labels=names)
        for m in metrics:
            out.add_metric([m.labels.get(n, "") for n in names], m.value())
        return out


class _Metric:
    def __init__(self, kind: str, labels: dict[str, str], buckets: list[float] | None) -> None:
        self._kind, self.labels = kind, labels
        self._lock = threading.Lock()
        self._value = 0.0
        self._bounds = buckets or []
        self._counts = [0] * (len(self._bounds) + 1)
        self.total = 0.0

    def _title(self) -> str:
        return f"TRITONSERVER_METRIC_KIND_{self._kind.upper()}"

    def increment(self, amount: float) -> None:
        """Add to a counter or gauge."""
        if self._kind == "histogram":
            raise ValueError(f"{self._title()} does not support Increment")
        if self._kind == "counter" and not amount >= 0:
            raise ValueError(f"{self._title()} can only be incremented monotonically by non-negative values.")
        with self._lock:
            self._value += amount

    def set(self, value: float) -> None:
        """Set a gauge."""
        if self._kind != "gauge":
            raise ValueError(f"{self._title()} does not support Set")
        with self._lock:
            self._value = value

    def observe(self, value: float) -> None:
        """Add an observation to a histogram."""
        if self._kind != "histogram":
            raise ValueError(f"{self._title()} does not support Observe")
        with self._lock:
            self.total += value
            index = sum(value > bound for bound in self._bounds)
            self._counts[index] += 1

    def value(self) -> float:
        """Return the value of a counter or gauge."""
        if self._kind == "histogram":
            raise ValueError(f"{self._title()} does not support Value")
        return self._value

    def cumulative(self) -> list[tuple[str, float]]:
        """Return the histogram's buckets as Prometheus has them."""
        with self._lock:
            out, running = [], 0
            for bound, count in zip([*map(str, self._bounds), "+Inf"], self._counts, strict=True):
                running += count
                out.append((bound, float(running)))
            return out
