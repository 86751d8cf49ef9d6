"""Statistics of a model version, in Triton's shape and as a record; Triton's own metrics, as metric families.

The metrics (``nv_inference_*`` and ``nv_cache_*``) are computed from the models' statistics when Prometheus asks.
Names, labels and help texts are those of a tritonserver's ``/metrics``. The metrics of the machine (``nv_gpu_*``,
``nv_cpu_*``, ``nv_pinned_*``) are missing.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from bls_notebook.engine.core.metrics_config import FIRST_RESPONSE, MetricsConfig
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.metrics import bound_text

if TYPE_CHECKING:
    from bls_notebook.records.statistics import StatisticsRecord

_Row = tuple[LoadedModel, dict[str, Any]]
_Read = Callable[[LoadedModel, dict[str, Any]], float]

# Durations in microseconds: a part of the metric's name, the field of the statistics, and two parts of the help text.
_DURATIONS = (
    ("request", "success", "inference request", "includes"),
    ("queue", "queue", "inference queuing", "includes"),
    ("compute_input", "compute_input", "compute input", "does not include"),
    ("compute_infer", "compute_infer", "compute inference", "does not include"),
    ("compute_output", "compute_output", "inference compute output", "does not include"),
)


def statistics_of(model: LoadedModel) -> dict[str, Any]:
    """Return the statistics of a version in Triton's shape.

    A remote model's statistics are its server's, over all clients, or the local counts if the server reports none.
    """
    if model.seen.remote:
        backend: Any = model.instances[0].backend
        for row in backend.statistics():
            if str(row.get("version")) == str(model.version):
                return {**row, "name": model.name}
    return {"name": model.spec.name, "version": str(model.version), **model.statistics.as_dict()}


def statistics_record_of(model: LoadedModel) -> StatisticsRecord:
    from bls_notebook.records.statistics import statistics_record  # first needed here

    failures = model.statistics.failures().items()
    spec, statistics = model.spec, model.statistics
    return replace(
        statistics_record(statistics_of(model), failures, spec.max_batch_size > 0, spec.response_cache),
        scheduler=spec.scheduler,
        max_batch_size=spec.max_batch_size,
        waited=statistics.waited,
        ended=tuple(statistics.ended.copy().items()),
    )


@contextmanager
def uncounted(server: Server) -> Iterator[None]:
    """Restore the counts, last errors and recorded problems of all models after the requests of a tool.

    Requests of others in the meantime are not counted either. A model that the tool reloads keeps its counts.
    """
    failure = server.last_failure
    saved = {(m.name, m.version): (m.statistics.saved(), m.last_error) for m in _own_models(server)}
    problems = {(m.name, m.version): tuple(map(dict, _problems(m))) for m in _own_models(server)}
    try:
        yield
    finally:
        server.last_failure = failure
        for model in _own_models(server):
            if (model.name, model.version) in saved:
                counts, model.last_error = saved[model.name, model.version]
                model.statistics.restore(counts)
                for recorded, before in zip(_problems(model), problems[model.name, model.version], strict=True):
                    recorded.clear()
                    recorded.update(before)


def _problems(model: LoadedModel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the warnings about a model's responses, and its refused requests, by their messages."""
    check = model.check
    return model.outputs.found, getattr(check, "then", check).refused  # a stub's check wraps the model's own


def _own_models(server: Server) -> list[LoadedModel]:
    return [model for name in server.names() for model in server.own(name).values()]


_SUMMARY_SECONDS = 60  # the age of the requests from which quantiles are computed, as on Triton


def _labels(model: LoadedModel, **others: str) -> dict[str, str]:
    tags = {f"_{name}": value for name, value in model.spec.config.metric_tags.items()}
    namespace = {"namespace": model.namespace} if model.namespace else {}
    return {**tags, "model": model.spec.name, **namespace, "version": str(model.version), **others}


def _summaries(rows: Iterable[_Row], config: MetricsConfig) -> Iterable[Any]:
    """Yield the summaries of durations. Of requests from the cache, only queueing counts; Triton omits the whole."""
    since = time.perf_counter_ns() - _SUMMARY_SECONDS * 1_000_000_000
    latest = {model: model.statistics.latest_durations(since) for model, _ in rows}
    for at, (name, part, what, cached) in enumerate(_DURATIONS):
        form = "Cumulative" if name.startswith("compute") else "Summary of"
        text = f"{form} {what} duration in microseconds ({cached} cached requests)"
        yield _summary(
            f"nv_inference_{name}_summary_us", text, config,
            [
                (model, row["inference_stats"][part], [durations[at] for durations in latest[model]])
                for model, row in rows
                if name != "request" or not model.spec.response_cache
            ],
        )  # fmt: skip
    cached_rows = [row for row in rows if row[0].spec.response_cache]
    for name in ("hit", "miss") if cached_rows else ():
        text = f"Summary of cache {name} counts/durations per model, in microseconds."
        of_models = [
            (model, row["inference_stats"][f"cache_{name}"], model.statistics.latest_lookups(name == "hit", since))
            for model, row in cached_rows
        ]
        yield _summary(f"nv_cache_{name}_summary_per_model", text, config, of_models)


def _summary(
    name: str, text: str, config: MetricsConfig, of_models: Iterable[tuple[LoadedModel, dict[str, int], list[int]]]
) -> Any:
    """Return a summary in microseconds; `of_models` has the count and the sum, and the latest durations, in ns."""
    from prometheus_client.core import Metric

    family = Metric(name, text, "summary")
    for model, figures, latest in of_models:
        labels = _labels(model)
        family.add_sample(f"{name}_count", labels, figures["count"])
        family.add_sample(f"{name}_sum", labels, figures["ns"] // 1000)
        values = sorted(ns // 1000 for ns in latest)
        for quantile in config.quantiles:
            value = values[max(0, int(quantile * len(values)) - 1)] if values else math.nan
            family.add_sample(name, {**labels, "quantile": f"{quantile:g}"}, value)
    return family


def _first_responses(rows: Iterable[_Row]) -> Any:
    """Return the histograms of the times to first responses."""
    from prometheus_client.core import Metric

    family = Metric(FIRST_RESPONSE, "Duration from request to first response in milliseconds", "histogram")
    for model, _ in rows:
        bounds = model.statistics.first_bounds
        if bounds is None:
            continue
        counts, total = model.statistics.first_responses()
        for bound, below in zip([*map(bound_text, bounds), "+Inf"], accumulate(counts), strict=True):
            family.add_sample(f"{FIRST_RESPONSE}_bucket", _labels(model, le=bound), below)
        family.add_sample(f"{FIRST_RESPONSE}_count", _labels(model), sum(counts))
        family.add_sample(f"{FIRST_RESPONSE}_sum", _labels(model), total)
    return family


def server_families(reference: weakref.ref[Server]) -> list[Any]:
    """Return the metric families of the models in service, for a `prometheus_client` registry.

    As on Triton, all counters of models stay 0 if there are no counters of durations.
    """
    from prometheus_client.core import GaugeMetricFamily, Metric

    server = reference()
    versions = [] if server is None else [server.serving(name) for name in server.names()]
    rows = [(model, model.statistics.as_dict()) for serving in versions for _, model in sorted(serving.items())]
    metrics_config = MetricsConfig() if server is None else server.metrics_config
    out: list[Any] = []

    def add(name: str, text: str, read: _Read, of: Iterable[_Row] = rows) -> None:
        family = Metric(name, text, "counter")
        for model, row in of:
            family.add_sample(f"{name}_total", _labels(model), read(model, row) if metrics_config.counters else 0)
        out.append(family)

    def gauge(name: str, text: str, read: Callable[[LoadedModel], float]) -> None:
        family = Metric(name, text, "gauge")
        for model, _ in rows:
            family.add_sample(name, _labels(model), read(model))
        out.append(family)

    def count(part: str) -> _Read:
        return lambda _, row: int(row["inference_stats"][part]["count"])

    def microseconds(part: str) -> _Read:
        return lambda _, row: float(row["inference_stats"][part]["ns"] // 1000)

    add("nv_inference_request_success", "Number of successful inference requests, all batch sizes", count("success"))
    failures = Metric("nv_inference_request_failure", "Number of failed inference requests, all batch sizes", "counter")
    for model, _ in rows:
        for reason, number in model.statistics.failures().items():
            failed = number if metrics_config.counters else 0
            failures.add_sample(f"{failures.name}_total", _labels(model, reason=reason), failed)
    out.append(failures)
    computed = "performed (does not include cached requests)"
    add("nv_inference_count", f"Number of inferences {computed}", lambda _, row: row["inference_count"])
    add("nv_inference_exec_count", f"Number of model executions {computed}", lambda _, row: row["execution_count"])
    for name, part, what, cached in _DURATIONS if metrics_config.counters else ():
        text = f"Cumulative {what} duration in microseconds ({cached} cached requests)"
        add(f"nv_inference_{name}_duration_us", text, microseconds(part))
    text = "Instantaneous number of pending requests awaiting execution per-model."
    gauge("nv_inference_pending_request_count", text, lambda model: model.scheduler.pending)
    gauge("nv_model_load_duration_secs", "Model load time in seconds", lambda model: model.load_seconds)
    out += [_first_responses(rows)] if metrics_config.histograms else ()
    out += _summaries(rows, metrics_config) if metrics_config.summaries else ()
    cached_rows = [row for row in rows if row[0].spec.response_cache]
    if server is None or not cached_rows:
        return out
    kinds = ("hit", "hits", "hit"), ("miss", "misses", "miss (insert+lookup)")
    for name, plural, what in kinds if metrics_config.counters else ():
        text = f"Number of cache {plural} per model"
        add(f"nv_cache_num_{plural}_per_model", text, count(f"cache_{name}"), of=cached_rows)
        text = f"Total cache {what} duration per model, in microseconds"
        add(f"nv_cache_{name}_duration_per_model", text, microseconds(f"cache_{name}"), of=cached_rows)
    cache_counts = server.cache.counts()
    if not cache_counts.size:
        return out
    for name, text, value in (
        ("util", "Cache utilization [0.0 - 1.0]", cache_counts.bytes / cache_counts.size),
        ("num_entries", "Number of responses stored in response cache", cache_counts.entries),
        ("num_hits", "Number of cache hits in response cache", cache_counts.hits),
        ("num_misses", "Number of cache misses in response cache", cache_counts.misses),
        ("num_lookups", "Number of cache lookups in response cache", cache_counts.hits + cache_counts.misses),
        ("num_evictions", "Number of cache evictions in response cache", cache_counts.evictions),
        (
            "lookup_duration",
            "Total cache lookup duration (hit and miss), in microseconds",
            cache_counts.lookup_ns // 1000,
        ),
        ("insertion_duration", "Total cache insertion duration, in microseconds", cache_counts.insert_ns // 1000),
    ):
        out.append(GaugeMetricFamily(f"nv_cache_{name}", text, value))
    return out
