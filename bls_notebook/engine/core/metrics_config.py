"""`MetricsConfig`: which of Triton's latency metrics there are, as with its option `--metrics-config`.

`first_response_buckets` returns the buckets of a model's histogram, which its `model_metrics` may set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bls_notebook.engine.errors import BLSError, ConfigError

FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"

_PAIR = re.compile(r"\s*([0-9.]+)\s*:\s*([0-9.eE-]+)\s*")


@dataclass(frozen=True)
class MetricsConfig:
    """Counters, summaries or histograms of durations, and the quantiles of summaries."""

    counters: bool = True
    summaries: bool = False
    histograms: bool = False
    quantiles: tuple[float, ...] = (0.5, 0.9, 0.95, 0.99, 0.999)
    settings: tuple[str, ...] = ()  # as given, such as ``summary_latencies=true``


def parsed_metrics_config(settings: Mapping[str, str]) -> MetricsConfig:
    """Return the configuration in Triton's settings, of which others are ignored; BLSError for a wrong one."""
    quantiles: list[float] = []
    for name, value in settings.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise BLSError(
                f"metrics_config: got {name!r}: {value!r}, expected text, as in {{'summary_latencies': 'true'}}"
            )
    for pair in settings.get("summary_quantiles", "").split(",") if settings.get("summary_quantiles") else ():
        match = _PAIR.fullmatch(pair)
        if match is None or not 0 <= float(match[1]) <= 1:
            raise BLSError(
                f"metrics_config: summary_quantiles: got {pair!r}, expected <quantile>:<error>, as in 0.9:0.01"
            )
        quantiles.append(float(match[1]))
    return MetricsConfig(
        settings.get("counter_latencies") != "false",
        settings.get("summary_latencies") == "true",
        settings.get("histogram_latencies") == "true",
        tuple(quantiles) or MetricsConfig.quantiles,
        tuple(f"{name}={value}" for name, value in settings.items()),
    )


def first_response_buckets(config: Any) -> tuple[float, ...]:
    """Return the upper bounds (ms) of a completed configuration's histogram of first responses."""
    buckets: tuple[float, ...] = (100, 500, 2000, 5000)
    for control in config.model_metrics.metric_control if hasattr(config, "model_metrics") else ():
        if control.metric_identifier.family == FIRST_RESPONSE:
            buckets = tuple(control.histogram_options.buckets)
    if any(upper <= lower for lower, upper in pairwise(buckets)):
        raise ConfigError(f"model {config.name!r}: model_metrics: got buckets {list(buckets)}, expected ascending ones")
    return buckets
