"""What requests wait for that is no queue: each other, a loop that is blocked; and what needed no model.

Pure functions of the sessions of one workload: by `exec` one after the other, and by `async_exec` all at
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import NamedTuple

from bls_notebook.profiling.records.spans import ModelSeen, SessionData, Span
from bls_notebook.profiling.records.verdicts import LoopSeen, Measured
from bls_notebook.records.intervals import total, union

from .replay import Key, key_of
from .span_tree import SpanTree

CONTENDED = 1.7  # times as long: beside others, something is waited for
_IDLE = 0.2  # of the time at work, in all its threads: it hardly computes
_AT_ONCE = 8  # threads, at most, that wait so
_BLOCKED = 0.5  # of the time in a model's own code: its loop is blocked


def self_times(session: SessionData) -> dict[Key, list[int]]:
    """Return how long each execution of each model was at work itself, ns."""
    tree, out = SpanTree(session), dict[Key, list[int]]()
    for execution, members in tree.members.items():
        if members[0].ran:
            out.setdefault(key_of(members[0]), []).append(total(tree.self_time(execution)))
    return out


def contention(
    sequential: SessionData, gathered: SessionData, measured: Measured, expected: int
) -> Key | None:
    """Return the model whose requests wait for each other on something that is no processor; None for none.

    A request of it takes longer beside others than alone, and all of them much longer than `expected`, which
    is what queues, the processors and Python's lock explain (ns), while there are processors to spare.
    """
    m = measured
    # What hardly computes is hardly kept from it: its threads waited beside each other, to wake up.
    at_once = 1 if m.cpu_gathered > _IDLE * m.gathered else max(2, min(m.requests, _AT_ONCE))
    waited = m.waited_gathered // at_once
    spare = m.cores * m.gathered - m.cpu_gathered - waited
    if m.gathered - waited < CONTENDED * expected or spare < 0.25 * m.cores * m.gathered:
        return None
    alone, together = self_times(sequential), self_times(gathered)
    # The mean: where whoever comes first is served first again, a few wait for very long.
    slower = {
        key: sum(times) - len(times) * median(alone[key])
        for key, times in together.items()
        if key in alone and mean(times) > CONTENDED * max(1, median(alone[key]))
    }
    return max(slower, key=slower.__getitem__, default=None)


def serial_loops(
    models: Iterable[ModelSeen],
    sequential: SessionData,
    gathered: SessionData,
    loops: Sequence[LoopSeen] = (),
) -> set[Key]:
    """Return the decoupled async models whose coroutines block their event loop: one request at a time.

    That is known where it was looked at (`loops`), else told by the time that their requests took together.
    """
    looked = {(seen.model, seen.version): seen.share for seen in loops}
    out = set()
    for model in models:
        key = key_of(model)
        if not (model.decoupled and model.is_async):
            continue
        if key in looked:
            if looked[key] > _BLOCKED:
                out.add(key)
            continue
        alone = total((s.started, s.ended) for s in sequential.spans if key_of(s) == key)
        spans = [(s.started, s.ended) for s in gathered.spans if key_of(s) == key and s.ran]
        covered = total(union(spans))
        if len(spans) > 1 and alone and covered > 0.7 * alone / max(1, len(model.instances)):
            out.add(key)
    return out


class Cached(NamedTuple):
    """The requests that the response cache answered, of how many; none where most were not answered so."""

    spans: Sequence[Span] = ()
    asked: int = 0

    @property
    def words(self) -> str:
        """How many of how many, in words."""
        what = "calls by models" if self.spans and self.spans[0].parent else "requests"
        return f"{len(self.spans)} of {self.asked} {what}"


def answered_by_cache(sequential: SessionData, gathered: SessionData) -> Cached:
    """Return the requests that the response cache answered in both runs.

    Those of the notebook; or, where none of these was, the calls that called no other model.
    """
    for roots in True, False:
        runs = []
        for run in sequential, gathered:
            callers = {s.parent for s in run.spans}
            asked = [s for s in run.spans if (not s.parent if roots else s.parent and s.id not in callers)]
            cached = [s for s in asked if s.cached]
            runs.append(Cached(cached, len(asked)) if 2 * len(cached) > len(asked) else Cached())
        fewest = min(runs, key=lambda found: len(found.spans))
        if fewest.spans:
            return fewest
    return Cached()
