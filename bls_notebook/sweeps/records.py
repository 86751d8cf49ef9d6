"""`Sweep`: throughput and latency of a model under loads and settings. Frozen, JSON-able."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from bls_notebook.records import Record, RecordFile

SCHEMA = 1
LEAST = {"p50": 1, "p95": 20, "p99": 100}
"""The responses without which a percentile is unknown: with fewer, it would be the slowest response."""
_EQUAL = 0.98  # a fraction of the most rows per second: above it, loads differ by chance


@dataclass(frozen=True, slots=True, repr=False)
class Percentiles(Record):
    """Percentiles of ``count`` latencies (s); 0 if there are too few of them."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class ModelLoad(Record):
    """A model that the requests of a point reached: its requests, and the means (s) of their waits and executions.

    A server reports no percentiles. Its counts include the requests of its other clients.
    """

    name: str
    requests: int
    queued: float
    computed: float
    latency: Percentiles = Percentiles()


@dataclass(frozen=True, slots=True, repr=False)
class Growth(Record):
    """A quantity that grew beyond noise under a constant load: ``memory``, ``/dev/shm`` (bytes) or ``files``."""

    quantity: str
    amount: float
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class SweepPoint(Record):
    """One load with one setting.

    The load is a number of clients that send their next request upon the response (``concurrency``), or arrivals at a
    ``rate`` (1/s) whatever the responses. ``instances`` are the changed instance counts. ``responses`` succeeded
    within ``seconds``, others ``failed``, by message. A latency counts from the scheduled arrival; ``late`` is the mean
    delay (s) with which the load generator sent. ``problem`` says why the point has no figures. ``others`` is the
    fraction of the processors' time that other programs used; 0 if unknown.
    """

    instances: tuple[tuple[str, int], ...]
    rows: int
    concurrency: int = 0
    rate: float = 0.0
    seconds: float = 0.0
    latency: Percentiles = Percentiles()
    failed: tuple[tuple[str, int], ...] = ()
    late: float = 0.0
    problem: str = ""
    models: tuple[ModelLoad, ...] = ()
    grown: tuple[Growth, ...] = ()
    others: float = 0.0

    @property
    def failures(self) -> int:
        return sum(count for _, count in self.failed)

    @property
    def throughput(self) -> float:
        """Successful responses per second; 0 for a point without figures."""
        return self.latency.count / self.seconds if self.seconds and not self.problem else 0.0

    @property
    def row_rate(self) -> float:
        """Rows of successful responses per second."""
        return self.throughput * self.rows

    @property
    def load(self) -> str:
        return f"{self.concurrency} at once" if self.concurrency else f"{self.rate:g} per s"

    def keeps(self, budget: float) -> bool:
        """Return whether all requests succeeded, 95% of them within a budget (s)."""
        return not self.problem and not self.failures and 0 < self.latency.p95 <= budget


@dataclass(frozen=True, slots=True, repr=False)
class ResourceSample(Record):
    """The resources of the processes at a moment (s after the start): memory and ``/dev/shm`` in bytes, open files."""

    at: float
    memory: int
    shm: int
    files: int


@dataclass(frozen=True, slots=True, repr=False)
class Sweep(Record):
    """Throughput and latency of a model, a point for each load and setting: the result of `bls.sweep`.

    ``place`` says where the models ran: in the ``kernel``, in ``processes`` (each instance of a Python model is one),
    on an ``endpoint`` of a kernel, or on a ``server``. ``budget`` is the latency (s) that 95% of the requests may take,
    0 for none. ``planned`` is the number of points without Ctrl-C.
    """

    model: str
    place: str
    points: tuple[SweepPoint, ...]
    budget: float = 0.0
    address: str = ""
    samples: tuple[ResourceSample, ...] = ()
    planned: int = 0
    schema: int = SCHEMA

    @property
    def best(self) -> SweepPoint | None:
        """The point with the most rows per second within the budget; None without one."""
        within = [point for point in self.points if point.keeps(self.budget)]
        return self.most(within) if within else None

    @staticmethod
    def most(points: Sequence[SweepPoint]) -> SweepPoint:
        """Return the point with the most rows per second; of loads that reach as many, the one with the lowest p95."""
        top = max(points, key=lambda point: point.row_rate)
        setting = top.rows, top.instances
        equal = [p for p in points if (p.rows, p.instances) == setting and p.row_rate >= _EQUAL * top.row_rate]
        return min(equal, key=lambda point: point.latency.p95 or inf)

    def save(self, path: str | Path) -> Path:
        """Write the sweep to a JSON file, for `bls.open_file`; compressed if its name ends with ``.gz``."""
        return _FILE.save(self, path)


_FILE = RecordFile(Sweep, "bls_notebook.sweep", SCHEMA, "a sweep", "a sweep")
load_sweep = _FILE.load
