"""`ModelCounters`: counts and times of a model version's requests, in the quantities of Triton's own statistics.

Guarantees: counting is cheap (most requests append one entry to `alone`), the caller needs no lock, and no request is
lost; a reader may miss only requests that are just being counted.

The phases of a request are waiting (`queue`), receiving inputs (`compute_input`), `execute` (`compute_infer`) and
sending outputs (`compute_output`). All times are nanoseconds.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import Any, cast

FOLD_AT = 256
LATEST = 1024

Durations = tuple[int, int, int, int, int]  # whole request, queue, compute_input, compute_infer, compute_output
Alone = tuple[int, int, int, int, int, int]
REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
_PHASES = ("compute_input", "compute_infer", "compute_output")


# The end of a request, and its Durations; of one from the cache, the first and the look-up; of a miss, only look-up
# and insertion.
_Timed = tuple[int, tuple[int, ...]]


def _timed(entry: Alone) -> _Timed:
    _, arrived, queued, begun, inferred, ended = entry
    return ended, (ended - arrived, begun - queued, queued - arrived, inferred - begun, ended - inferred)


def _stat(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}


class ModelCounters:
    """Counts of one model version."""

    __slots__ = (
        "__weakref__", "_batches", "_cache", "_fail_ns", "_failures", "_first", "_keepers", "_last", "_latest", "_lock",
        "_sums", "alone", "ended", "first_bounds", "waited",
    )  # fmt: skip

    def __init__(self) -> None:
        # Successful requests that ran alone and are not in `_sums` and `_batches` yet: rows, and the times of arrival,
        # queueing (or just before the start, if it did not wait), start, end of `execute`, and answer.
        self.alone: list[Alone] = []
        self.waited = 0  # how often an instance took requests from the queue and left others in it
        self.ended: dict[str, int] = {}  # batches of a dynamic batcher, by the reason that ended them
        self._lock = threading.Lock()
        self._last = 0  # end of the last execution
        self._sums = [0] * 7  # of successful requests: number, rows, and the five Durations
        self._batches: dict[int, list[int]] = {}  # by rows of an execution: number, input, infer, output
        self._failures = dict.fromkeys(REASONS, 0)
        self._fail_ns = 0
        self._keepers = 0
        self._latest: deque[_Timed] | None = None  # of successful requests, while `keep_latencies` is on
        self.first_bounds: tuple[float, ...] | None = None  # of the histogram of first responses, if there is one
        self._first: list[int] = []  # its counts by bucket, and the sum (ms)
        self._cache = [0] * 5  # hits, ns of their look-ups, misses, ns of theirs, ns of the requests that were hits

    def fold(self) -> None:
        """Add `alone` to the sums; call when it has `FOLD_AT` entries."""
        with self._lock:
            entries = self.alone[:]
            self._last = self._last_ended()
            self._sums, self._batches = self._with(entries)
            if self._latest is not None:
                self._latest.extend(map(_timed, entries))
            del self.alone[: len(entries)]  # keeps entries that were added meanwhile

    def _last_ended(self) -> int:
        return max(self._last, *(entry[5] for entry in self.alone[-1:]), 0)

    def _with(self, entries: list[Alone]) -> tuple[list[int], dict[int, list[int]]]:
        """Return `_sums` and `_batches` with these requests added; lock held."""
        sums, batches = self._sums, dict(self._batches)
        kinds = {entry[0] for entry in entries}
        for rows in kinds:
            same = entries if len(kinds) == 1 else [entry for entry in entries if entry[0] == rows]
            whole, arrived, queued, begun, inferred, ended = map(sum, zip(*same, strict=True))
            phases = (queued - arrived, inferred - begun, ended - inferred)
            sums = _added(sums, (len(same), whole, ended - arrived, begun - queued, *phases))
            batches[rows] = _added(batches.get(rows, (0, 0, 0, 0)), (len(same), *phases))
        return sums, batches

    def execution(self, rows: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Count an execution, successful or not; its requests are counted separately."""
        with self._lock:
            self._batches[rows] = _added(self._batches.get(rows, (0, 0, 0, 0)), (1, input_ns, infer_ns, output_ns))
            self._last = time.perf_counter_ns()

    def batch_ended(self, why: str, others: bool) -> None:
        """Count the reason that ended a batch, and whether `others` stayed in the queue. Scheduler's lock held."""
        self.ended[why] = self.ended.get(why, 0) + 1
        self.waited += others

    def succeeded(self, rows: int, durations: Durations) -> None:
        """Count one successful request; `execution` counts the execution itself."""
        with self._lock:
            self._sums = _added(self._sums, (1, rows, *durations))
            self._note(durations)

    def failed(self, ns: int, reason: str = "BACKEND") -> None:
        """Count a failed request; `reason` is one of Triton's."""
        with self._lock:
            self._failures[reason] += 1
            self._fail_ns += ns

    def hit(self, request_ns: int, lookup_ns: int) -> None:
        with self._lock:
            self._cache = _added(self._cache, (1, lookup_ns, 0, 0, request_ns))
            self._note((request_ns, lookup_ns))
            self._last = time.perf_counter_ns()

    def miss(self, ns: int) -> None:
        with self._lock:
            self._cache = _added(self._cache, (0, 0, 1, ns, 0))
            self._note((ns,))

    def count_first_responses(self, bounds: tuple[float, ...]) -> None:
        """Begin a histogram of the times to first responses, with these upper bounds (ms)."""
        self.first_bounds, self._first = bounds, [0] * (len(bounds) + 2)

    def first_response(self, ns: int) -> None:
        """Add a request to the histogram of first responses, if there is one."""
        if self.first_bounds is not None:
            milliseconds = ns // 1_000_000  # whole ones, as in Triton
            with self._lock:
                self._first[bisect_left(self.first_bounds, milliseconds)] += 1
                self._first[-1] += milliseconds

    def first_responses(self) -> tuple[list[int], int]:
        """Return the histogram's counts by bucket, and its sum."""
        with self._lock:
            return self._first[:-1], self._first[-1]

    def _note(self, durations: tuple[int, ...]) -> None:
        """Keep the durations of a request, if `keep_latencies` is on; lock held."""
        if self._latest is not None:
            self._latest.append((time.perf_counter_ns(), durations))

    def failures(self) -> dict[str, int]:
        return dict(self._failures)

    def saved(self) -> tuple[Any, ...]:
        """Return all counts, for `restore`."""
        self.fold()
        with self._lock:
            latest = None if self._latest is None else list(self._latest)
            failures, first = dict(self._failures), list(self._first)
            counts = self._fail_ns, self._last, self.waited, dict(self.ended)
            return list(self._sums), dict(self._batches), failures, list(self._cache), latest, first, *counts

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Forget all requests since these counts were saved."""
        self.fold()
        with self._lock:
            self._sums, self._batches, self._failures, self._cache, latest, first, *counts = saved
            self._first = list(first)
            self._fail_ns, self._last, self.waited, self.ended = counts
            if self._latest is not None:
                self._latest = deque(latest or (), maxlen=LATEST)

    def keep_latencies(self, keep: bool) -> None:
        """Keep the latencies of the latest requests, until each caller has called with False."""
        with self._lock:
            self._keepers += 1 if keep else -1
            if not self._keepers:
                self._latest = None
            elif self._latest is None:
                self._latest = deque(maxlen=LATEST)

    def latest_durations(self, since: int) -> list[Durations]:
        """Return the durations of the latest requests that ended after `since` and were not answered by the cache."""
        return cast(list[Durations], self._latest_of(5, since))

    def latest_lookups(self, hits: bool, since: int) -> list[int]:
        """Return the times of the latest cache hits, or of the misses, after `since`."""
        return [durations[-1] for durations in self._latest_of(2 if hits else 1, since)]

    def _latest_of(self, size: int, since: int) -> list[tuple[int, ...]]:
        self.fold()
        with self._lock:
            return [durations for ended, durations in self._latest or () if ended > since and len(durations) == size]

    def latest(self, since: int) -> tuple[int, int, list[int]]:
        """Return the numbers of successful and failed requests, and latencies (ns) of requests ended after `since`.

        There are few latencies, or none, unless `keep_latencies` is on.
        """
        alone = self.alone[:]
        self.fold()
        with self._lock:
            timed = self._latest or map(_timed, alone)
            latencies = [durations[0] for ended, durations in timed if ended > since and len(durations) > 1]
            return self._sums[0] + self._cache[0], sum(self._failures.values()), latencies

    def as_dict(self) -> dict[str, Any]:
        """Return a row of Triton's ``model_stats``, without name and version."""
        with self._lock:
            (computed, inferences, *sums), batches = self._with(self.alone[:])
            hits, hits_ns, misses, misses_ns, of_hits_ns = self._cache
            last = self._last_ended()
        whole = sums[0] + of_hits_ns + misses_ns  # Triton includes the time of look-ups and insertions
        stats = {
            "success": _stat(computed + hits, whole),
            "fail": _stat(sum(self._failures.values()), self._fail_ns),
            "queue": _stat(computed + hits, sums[1]),
            **{phase: _stat(computed, ns) for phase, ns in zip(_PHASES, sums[2:], strict=True)},
            "cache_hit": _stat(hits, hits_ns),
            "cache_miss": _stat(misses, misses_ns),
        }
        # Milliseconds since 1970 of the last execution, 0 for none.
        now, ago = time.time() * 1e3, (time.perf_counter_ns() - last) / 1e6
        return {
            "last_inference": round(now - ago) if last else 0,
            "inference_count": inferences,
            "execution_count": sum(row[0] for row in batches.values()),
            "inference_stats": stats,
            "response_stats": {},
            "batch_stats": [
                {"batch_size": rows, **{phase: _stat(row[0], ns) for phase, ns in zip(_PHASES, row[1:], strict=True)}}
                for rows, row in sorted(batches.items())
            ],
            "memory_usage": [],
        }


def _added(first: Iterable[int], second: Iterable[int]) -> list[int]:
    return [a + b for a, b in zip(first, second, strict=True)]
