"""`Statistics`: what a model version has done, in the quantities of Triton's own statistics.

Guarantees: counting is cheap (the way that most requests take appends one entry to `recent`) and loses
nothing; what is read may lack what is just being counted, and nothing else. All but `hit` and `miss` are
called under the scheduler's lock, or any other lock that all of a model's callers share.

A request spends its time waiting (`queue`), having its inputs handed over (`compute_input`), in `execute`
(`compute_infer`) and having its outputs handed over (`compute_output`). All times are nanoseconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

__all__ = ["FOLD_AT", "Durations", "Statistics"]

FOLD_AT = 256

Durations = tuple[int, int, int, int, int]  # the request, queue, compute_input, _infer, _output
REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
_PHASES = ("compute_input", "compute_infer", "compute_output")


def _stat(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}


class Statistics:
    """Counts of one model version."""

    __slots__ = (
        "_batches",
        "_cache",
        "_cache_lock",
        "_fail_ns",
        "_failures",
        "_fold_lock",
        "_last",
        "_many",
        "_one",
        "_queue_ns",
        "_rows",
        "queued",
        "recent",
    )

    def __init__(self) -> None:
        # Executions of one request each that succeeded, by rows of the request: count, input, infer, output.
        self._one: dict[int, list[int]] = {}
        # Such of one row that did not wait, not yet in `_one`: when each came, began, returned, was answered.
        self.recent: list[tuple[int, int, int, int]] = []
        # Such that were queued, not yet in `_many`: their rows, when each came, was queued, began, returned,
        # was answered.
        self.queued: list[tuple[int, int, int, int, int, int]] = []
        self._fold_lock = threading.Lock()
        self._queue_ns = 0
        self._last = 0
        # Everything else: requests of batches, and executions by rows.
        self._many = [0] * 6  # count and Durations
        self._rows = 0
        self._batches: dict[int, list[int]] = {}
        self._failures = dict.fromkeys(REASONS, 0)
        self._fail_ns = 0
        self._cache = [0] * 5  # hits and their ns, misses and their ns, ns of the requests that were hits
        self._cache_lock = threading.Lock()

    # -- counting ------------------------------------------------------------------------------------

    def fold(self) -> None:
        """Add up what is in `recent` and `queued`; to be called when one has grown to `FOLD_AT`."""
        with self._fold_lock:
            self._last = self._last_ended()
            if self.recent:
                recent = self.recent[:]
                self._one[1] = self._with_recent(recent)
                del self.recent[: len(recent)]  # others are added meanwhile
            if self.queued:
                self._many, self._rows, self._batches = self._with_queued()
                self.queued.clear()

    def _last_ended(self) -> int:
        recent, queued = self.recent[-1:], self.queued[-1:]
        return max(self._last, recent[0][3] if recent else 0, queued[0][5] if queued else 0)

    def _with_queued(self) -> tuple[list[int], int, dict[int, list[int]]]:
        """`_many`, `_rows` and `_batches` with `queued`; the lock of folding is held."""
        batches = {rows: list(row) for rows, row in list(self._batches.items())}
        many, whole = list(self._many), self._rows
        entries = list(self.queued)
        for rows in {entry[0] for entry in entries}:
            same = [entry for entry in entries if entry[0] == rows]
            sums = list(map(sum, zip(*same, strict=True)))
            whole += sums[0]
            arrived, queued, begun, inferred, ended = sums[1:]
            phases = (queued - arrived, inferred - begun, ended - inferred)
            many = _added(many, (len(same), ended - arrived, begun - queued, *phases))
            batches[rows] = _added(batches.get(rows, (0, 0, 0, 0)), (len(same), *phases))
        return many, whole, batches

    def _with_recent(self, recent: list[tuple[int, int, int, int]]) -> list[int]:
        """The entry of one row in `_one`, with the recent requests; the lock of folding is held."""
        row = list(self._one.get(1, (0, 0, 0, 0)))
        if recent:
            begun, started, inferred, ended = map(sum, zip(*recent, strict=True))
            row[0] += len(recent)
            row[1] += started - begun
            row[2] += inferred - started
            row[3] += ended - inferred
        return row

    def one(self, rows: int, begun: int, started: int, inferred: int, ended: int, queue_ns: int) -> None:
        """Count an execution of one request: when it came, `execute` began and returned, it was answered."""
        row = self._one.get(rows)
        if row is None:
            row = self._one[rows] = [0, 0, 0, 0]
        row[0] += 1
        row[1] += started - begun - queue_ns
        row[2] += inferred - started
        row[3] += ended - inferred
        self._last = ended
        if queue_ns:
            self._queue_ns += queue_ns

    def execution(self, rows: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Count an execution, whatever came of it, without its requests."""
        row = self._batches.get(rows)
        if row is None:
            row = self._batches[rows] = [0, 0, 0, 0]
        row[0] += 1
        row[1] += input_ns
        row[2] += infer_ns
        row[3] += output_ns
        self._last = time.perf_counter_ns()

    def succeeded(self, rows: int, durations: Durations) -> None:
        """Count a request of an execution that `execution` counts."""
        many = self._many
        many[0] += 1
        for index, ns in enumerate(durations, 1):
            many[index] += ns
        self._rows += rows

    def failed(self, ns: int, reason: str = "BACKEND") -> None:
        """Count a request that failed; `reason` is one of Triton's."""
        self._failures[reason] += 1
        self._fail_ns += ns

    def hit(self, request_ns: int, lookup_ns: int) -> None:
        """Count a request that the response cache answered. Needs no lock."""
        with self._cache_lock:
            self._cache[0] += 1
            self._cache[1] += lookup_ns
            self._cache[4] += request_ns
            self._last = time.perf_counter_ns()

    def miss(self, ns: int) -> None:
        """Count a request whose answer was put in the response cache. Needs no lock."""
        with self._cache_lock:
            self._cache[2] += 1
            self._cache[3] += ns

    # -- reading -------------------------------------------------------------------------------------

    def failures(self) -> dict[str, int]:
        """Return how many requests failed, by reason."""
        return dict(self._failures)

    @property
    def success_count(self) -> int:
        """How many requests succeeded, those that the cache answered included."""
        with self._fold_lock:
            ones = sum(row[0] for row in list(self._one.values())) + len(self.recent)
            many = self._many[0] + len(self.queued)
        return ones + many + self._cache[0]

    @property
    def fail_count(self) -> int:
        """How many requests failed."""
        return sum(self._failures.values())

    def as_dict(self) -> dict[str, Any]:
        """Return everything in the shape of a row of Triton's ``model_stats``, without name and version."""
        with self._fold_lock:
            ones = {rows: list(row) for rows, row in list(self._one.items())}
            if self.recent:
                ones[1] = self._with_recent(self.recent[:])
            many, in_batches, batches = self._with_queued()
        count = sum(row[0] for row in ones.values())
        sums = [sum(row[i] for row in ones.values()) for i in (1, 2, 3)]
        cache = list(self._cache)
        computed = count + many[0]
        misses_ns = cache[3]  # Triton adds the time of looking up and putting in to the request's
        whole = sum(sums) + self._queue_ns + many[1] + cache[4] + misses_ns
        for rows, row in ones.items():
            batches[rows] = _added(batches.get(rows, (0, 0, 0, 0)), row)
        stats = {
            "success": _stat(computed + cache[0], whole),
            "fail": _stat(self.fail_count, self._fail_ns),
            "queue": _stat(computed + cache[0], self._queue_ns + many[2]),
        }
        for index, phase in enumerate(_PHASES):
            stats[phase] = _stat(computed, sums[index] + many[3 + index])
        stats["cache_hit"] = _stat(cache[0], cache[1])
        stats["cache_miss"] = _stat(cache[2], cache[3])
        return {
            "last_inference": self._last_inference(),
            "inference_count": sum(rows * row[0] for rows, row in ones.items()) + in_batches,
            "execution_count": sum(row[0] for row in batches.values()),
            "inference_stats": stats,
            "response_stats": {},
            "batch_stats": [
                {
                    "batch_size": rows,
                    **{p: _stat(row[0], row[1 + i]) for i, p in enumerate(_PHASES)},
                }
                for rows, row in sorted(batches.items())
            ],
            "memory_usage": [],
        }

    def _last_inference(self) -> int:
        """Milliseconds since 1970 of the last execution, 0 for none."""
        last = self._last_ended()
        if not last:
            return 0
        return round(time.time() * 1e3 - (time.perf_counter_ns() - last) / 1e6)


def _added(first: Iterable[int], second: Iterable[int]) -> list[int]:
    return [a + b for a, b in zip(first, second, strict=True)]
