"""``%blssweep``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.magics import MagicCall
from bls_notebook.operations import (
    MODEL,
    QUIET,
    SAVE,
    OperationSpec,
    counts,
    number,
    option,
    pairs,
    timeout,
    whole_number,
)

if TYPE_CHECKING:
    from .records import Sweep


def _several(convert: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a converter of comma-separated text."""
    return lambda text: tuple(map(convert, text.split(",")))


_COUNTS = _several(whole_number(1))


def _positive(text: str) -> float:
    value = number(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number greater than 0")
    return value


def _instances(text: str) -> dict[str, tuple[int, ...]]:
    """Convert ``1,2`` (of the model itself, here ""), or ``MODEL=1,2``."""
    name, _, numbers = text.rpartition("=")
    return {name.strip(): counts(numbers)}


def _place(url: str) -> str:
    return url.partition("://")[2].rstrip("/")


def _sweep(
    call: MagicCall, model: str, server: str = "", instances: Mapping[str, Any] | None = None, **options: Any
) -> Sweep:
    own: Any = (call.notebook.state.get(key) for key in ("shipping.server", "network.endpoint"))
    place = _place(server)
    # Of this notebook's own server, instances can be changed and processes watched.
    target = next((each for each in own if each is not None and place in (each.grpc_url, _place(each.url))), server)
    named = {name or model: numbers for name, numbers in (instances or {}).items()}
    return bls.sweep(model, instances=named, server=target, **options)


SWEEP = OperationSpec(
    """Measure throughput and latency of a model for each load. --concurrency has numbers of clients that wait for each
    response; --rate has requests per second that arrive at random times, whatever the responses, and whose latency
    counts from the scheduled arrival. Every combination with --rows and --instances is a point of --seconds; instances
    are restored afterwards. The table and the picture show p50, p95 and p99 and the point with the most rows per second
    that answers 95% of the requests within --budget. Failed requests are counted and named. A point whose load could
    not be generated, or whose queue grew without end, says so in place of figures. Ctrl-C ends the sweep with the
    points so far. In scripts: bls.sweep(). Guide: docs/guides/sweeps.md.""",
    options=(
        MODEL,
        option("--rows", "N,...", "rows of a request, for models that batch (default: as given)", _COUNTS),
        option("--concurrency", "N,...", "clients that wait for each response (default: 1,2,4,8)", _COUNTS),
        option("--rate", "N,...", "requests that arrive per second", _several(_positive)),
        pairs("--instances", "N,...", "instance counts of MODEL, or NAME=N,... of a callee; repeatable", _instances),
        option("--seconds", "N", "duration of each point (default: 5)", _positive),
        timeout("the latency that p95 of the best point must keep", "--budget"),
        option("--server", "URL", "send to a running server: grpc://host:port or http://host:port"),
        SAVE,
        QUIET,
    ),
    examples="""
    %blssweep digit_reader IMAGE=image --concurrency 1,4,16 --budget 50ms
    %blssweep pipeline IN=x --rows 1,8,32 --rate 20,50 --instances resize=1,2 --seconds 10
    found = %blssweep add_sub INPUT0=a INPUT1=b --server grpc://127.0.0.1:8001
    """,
    form="inputs",
    notebook=_sweep,
    problems=lambda sweep: [message for point in sweep.points for message, _ in point.failed],
)  # fmt: skip
