"""What the work of each model uses: from spans of requests one after the other, and looks at the clocks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bls_notebook.profiling.analysis.replay import Key, key_of
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.records.spans import SessionData
from bls_notebook.records.intervals import total

from .sharing import Use

_HOP = 1_000_000  # ns: more is no engine's
_LITTLE = 0.03  # of the time: so much of a processor is what the engine takes
_KEPT = 4.0  # times as long as computed: more is what waking up takes, of models that wait


class Look(NamedTuple):
    """What happened between two looks at the clock: ns since the session began.

    ``cpu`` is processor time of the models. ``took`` is the time between them without what the second one
    waited for a processor, ``late`` whether that is longer than asked: it waited for Python's lock.
    """

    begin: int
    end: int
    cpu: int
    took: int
    late: bool


def uses(runs: Iterable[tuple[SessionData, Sequence[Look]]], kept: float = 0.0) -> dict[Key, Use]:
    """Return what the work of each model uses, of those that use anything.

    The runs are of requests one after the other, so that what was computed at a time is of the model that
    worked then. ``kept`` is how long others had the processors, as a part of the processor time: it would
    have been computed.
    """
    worked: dict[Key, float] = {}
    cpu: dict[Key, float] = {}
    # Of the time without waits for processors: with Python's lock held, and in all.
    held: dict[Key, float] = {}
    seen: dict[Key, float] = {}
    for session, looks in runs:
        tree = SpanTree(session)
        ends = [look.end for look in looks]
        for execution, members in tree.members.items():
            if not members[0].ran:
                continue
            key = key_of(members[0])
            own = tree.self_time(execution)
            worked[key] = worked.get(key, 0.0) + total(own)
            for begin, end in own:
                for look in looks[bisect_left(ends, begin) :]:
                    if look.begin >= end:
                        break
                    part = (min(end, look.end) - max(begin, look.begin)) / (look.end - look.begin)
                    if part > 0:
                        cpu[key] = cpu.get(key, 0.0) + look.cpu * part
                        held[key] = held.get(key, 0.0) + look.took * part * look.late
                        seen[key] = seen.get(key, 0.0) + look.took * part
    out = {}
    for key, time in worked.items():
        computed = cpu.get(key, 0.0) / max(1.0, time)
        if computed > _LITTLE:
            used = min(1.0, (1.0 + min(kept, _KEPT)) * computed)
            python = min(used, held[key] / max(1.0, seen[key]))
            out[key] = Use(used - python, python, max(1.0, computed))
    return out


def hop(sequential: SessionData, gathered: SessionData, cpu: tuple[int, int], uses: Mapping[Key, Use]) -> int:
    """Return how long the engine computes for a request that is sent beside others, ns.

    That is the processor time (``cpu``, ns, of the same requests one after the other and at once) that no
    model used, without what goes on all the time: so much as it is where requests are sent one after the
    other.
    """
    always = max(0.0, cpu[0] - _explained(sequential, uses)) / max(1, sequential.wall)
    left = cpu[1] - _explained(gathered, uses) - always * gathered.wall
    return min(_HOP, max(0, round(left / max(1, len(gathered.spans)))))


def _explained(session: SessionData, uses: Mapping[Key, Use]) -> float:
    tree = SpanTree(session)
    used = 0.0
    for execution, members in tree.members.items():
        use = uses.get(key_of(members[0]))
        if use is not None and members[0].ran:
            used += (use.cpu * use.width + use.python) * total(tree.self_time(execution))
    return used
