"""Triton's own metrics (``nv_inference_*`` and ``nv_cache_*``), read from the statistics when asked for.

Names, labels and help are those of a tritonserver's ``/metrics``. What belongs to a machine and not to its
models (``nv_gpu_*``, ``nv_cpu_*``, ``nv_pinned_*``) is not there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.schedulers.response_cache import CacheCounts

__all__ = ["ServerFamilies"]

Row = dict[str, Any]


def _us(*path: str) -> Callable[[Row], float]:
    def read(row: Row) -> float:
        value: Any = row["inference_stats"]
        for key in path:
            value = value[key]
        return float(value // 1000)

    return read


# name, help, value of a row of the statistics
_COUNTERS: tuple[tuple[str, str, Callable[[Row], float]], ...] = (
    (
        "nv_inference_request_success",
        "Number of successful inference requests, all batch sizes",
        lambda row: row["inference_stats"]["success"]["count"],
    ),
    (
        "nv_inference_count",
        "Number of inferences performed (does not include cached requests)",
        lambda row: row["inference_count"],
    ),
    (
        "nv_inference_exec_count",
        "Number of model executions performed (does not include cached requests)",
        lambda row: row["execution_count"],
    ),
    (
        "nv_inference_request_duration_us",
        "Cumulative inference request duration in microseconds (includes cached requests)",
        _us("success", "ns"),
    ),
    (
        "nv_inference_queue_duration_us",
        "Cumulative inference queuing duration in microseconds (includes cached requests)",
        _us("queue", "ns"),
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
        _us("compute_input", "ns"),
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
        _us("compute_infer", "ns"),
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Cumulative inference compute output duration in microseconds (does not include cached requests)",
        _us("compute_output", "ns"),
    ),
)
_CACHE_COUNTERS: tuple[tuple[str, str, Callable[[Row], float]], ...] = (
    (
        "nv_cache_num_hits_per_model",
        "Number of cache hits per model",
        lambda row: row["inference_stats"]["cache_hit"]["count"],
    ),
    (
        "nv_cache_hit_duration_per_model",
        "Total cache hit duration per model, in microseconds",
        _us("cache_hit", "ns"),
    ),
    (
        "nv_cache_num_misses_per_model",
        "Number of cache misses per model",
        lambda row: row["inference_stats"]["cache_miss"]["count"],
    ),
    (
        "nv_cache_miss_duration_per_model",
        "Total cache miss (insert+lookup) duration per model, in microseconds",
        _us("cache_miss", "ns"),
    ),
)
_CACHE_GAUGES: tuple[tuple[str, str, Callable[[CacheCounts], float]], ...] = (
    ("nv_cache_util", "Cache utilization [0.0 - 1.0]", lambda c: c.bytes / c.size),
    ("nv_cache_num_entries", "Number of responses stored in response cache", lambda c: c.entries),
    ("nv_cache_num_hits", "Number of cache hits in response cache", lambda c: c.hits),
    ("nv_cache_num_misses", "Number of cache misses in response cache", lambda c: c.misses),
    (
        "nv_cache_num_lookups",
        "Number of cache lookups in response cache",
        lambda c: c.hits + c.misses,
    ),
    ("nv_cache_num_evictions", "Number of cache evictions in response cache", lambda c: c.evictions),
    (
        "nv_cache_lookup_duration",
        "Total cache lookup duration (hit and miss), in microseconds",
        lambda c: c.lookup_ns // 1000,
    ),
    (
        "nv_cache_insertion_duration",
        "Total cache insertion duration, in microseconds",
        lambda c: c.insert_ns // 1000,
    ),
)


class ServerFamilies:
    """Metric families of the models that are in service.

    Parameters
    ----------
    server : Server
        Not kept alive.
    """

    def __init__(self, server: Server) -> None:
        self._server = weakref.ref(server)

    def _models(self) -> Iterator[LoadedModel]:
        server = self._server()
        if server is not None:
            for name in server.names():
                yield from (model for _, model in sorted(server.serving(name).items()))

    def collect(self) -> list[Any]:
        """Return the families, for a `prometheus_client` registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

        rows = [
            ([model.name, str(model.version)], model, model.statistics.as_dict()) for model in self._models()
        ]
        out: list[Metric] = []
        labels = ["model", "version"]
        for name, text, read in _COUNTERS:
            family = CounterMetricFamily(name, text, labels=labels)
            for values, _, row in rows:
                family.add_metric(values, read(row))
            out.append(family)
        failures = CounterMetricFamily(
            "nv_inference_request_failure",
            "Number of failed inference requests, all batch sizes",
            labels=["model", "reason", "version"],
        )
        for (name, version), model, _ in rows:
            for reason, count in model.statistics.failures().items():
                failures.add_metric([name, reason, version], count)
        out.insert(1, failures)
        pending = GaugeMetricFamily(
            "nv_inference_pending_request_count",
            "Instantaneous number of pending requests awaiting execution per-model.",
            labels=labels,
        )
        for values, model, _ in rows:
            pending.add_metric(values, model.scheduler.pending)
        out.append(pending)
        cached = [(values, row) for values, model, row in rows if model.spec.response_cache]
        server = self._server()
        if cached and server is not None:
            for name, text, read in _CACHE_COUNTERS:
                family = CounterMetricFamily(name, text, labels=labels)
                for values, row in cached:
                    family.add_metric(values, read(row))
                out.append(family)
            counts = server.cache.counts()
            for name, text, read_counts in _CACHE_GAUGES if counts.size else ():
                out.append(GaugeMetricFamily(name, text, read_counts(counts)))
        return out
