"""Triton's own metrics as families for a Prometheus registry, read from the statistics of the models."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server

if TYPE_CHECKING:
    pass


_Row = tuple[LoadedModel, dict[str, Any]]
_Read = Callable[[LoadedModel, dict[str, Any]], float]


# Of each in microseconds: a part of its name, one of the statistics, and one of its help.
_DURATIONS = (
    ("request", "success", "inference request", "includes"),
    ("queue", "queue", "inference queuing", "includes"),
    ("compute_input", "compute_input", "compute input", "does not include"),
    ("compute_infer", "compute_infer", "compute inference", "does not include"),
    ("compute_output", "compute_output", "inference compute output", "does not include"),
)


def server_families(reference: weakref.ref[Server]) -> list[Any]:
    """Return metric families of the models that are in service, for a `prometheus_client` registry."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    server = reference()
    versions = [] if server is None else [server.serving(name) for name in server.names()]
    rows = [(model, model.statistics.as_dict()) for each in versions for _, model in sorted(each.items())]
    out: list[Any] = []

    def add(name: str, text: str, read: _Read, kind: Any = CounterMetricFamily, of: Iterable[_Row] = rows) -> None:
        family = kind(name, text, labels=["model", "version"])
        for model, row in of:
            family.add_metric([model.name, str(model.version)], read(model, row))
        out.append(family)

    def count(part: str) -> _Read:
        return lambda _, row: int(row["inference_stats"][part]["count"])

    def microseconds(part: str) -> _Read:
        return lambda _, row: float(row["inference_stats"][part]["ns"] // 1000)

    add("nv_inference_request_success", "Number of successful inference requests, all batch sizes", count("success"))
    failures = CounterMetricFamily(
        "nv_inference_request_failure",
        "Number of failed inference requests, all batch sizes",
        labels=["model", "reason", "version"],
    )
    for model, _ in rows:
        for reason, number in model.statistics.failures().items():
            failures.add_metric([model.name, reason, str(model.version)], number)
    out.append(failures)
    computed = "performed (does not include cached requests)"
    add("nv_inference_count", f"Number of inferences {computed}", lambda _, row: row["inference_count"])
    executions = f"Number of model executions {computed}"
    add("nv_inference_exec_count", executions, lambda _, row: row["execution_count"])
    for name, part, what, cached in _DURATIONS:
        text = f"Cumulative {what} duration in microseconds ({cached} cached requests)"
        add(f"nv_inference_{name}_duration_us", text, microseconds(part))
    text = "Instantaneous number of pending requests awaiting execution per-model."
    add("nv_inference_pending_request_count", text, lambda model, _: model.scheduler.pending, GaugeMetricFamily)
    cached_rows = [row for row in rows if row[0].spec.response_cache]
    if server is None or not cached_rows:
        return out
    for name, plural, what in ("hit", "hits", "hit"), ("miss", "misses", "miss (insert+lookup)"):
        text = f"Number of cache {plural} per model"
        add(f"nv_cache_num_{plural}_per_model", text, count(f"cache_{name}"), of=cached_rows)
        text = f"Total cache {what} duration per model, in microseconds"
        add(f"nv_cache_{name}_duration_per_model", text, microseconds(f"cache_{name}"), of=cached_rows)
    have = server.cache.counts()
    if not have.size:
        return out
    for name, text, value in (
        ("util", "Cache utilization [0.0 - 1.0]", have.bytes / have.size),
        ("num_entries", "Number of responses stored in response cache", have.entries),
        ("num_hits", "Number of cache hits in response cache", have.hits),
        ("num_misses", "Number of cache misses in response cache", have.misses),
        ("num_lookups", "Number of cache lookups in response cache", have.hits + have.misses),
        ("num_evictions", "Number of cache evictions in response cache", have.evictions),
        ("lookup_duration", "Total cache lookup duration (hit and miss), in microseconds", have.lookup_ns // 1000),
        ("insertion_duration", "Total cache insertion duration, in microseconds", have.insert_ns // 1000),
    ):
        out.append(GaugeMetricFamily(f"nv_cache_{name}", text, value))
    return out
