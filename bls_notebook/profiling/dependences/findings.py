"""The evidence in words and figures: what running independent calls together would bring. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from bls_notebook.profiling.analysis.queue_simulation import capacities, key_of
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import Ghost, Span
from bls_notebook.profiling.records.verdicts import time_of, times
from bls_notebook.records.intervals import gaps, total, union

from .evidence import members
from .records import Overlap, SentCall

WORTH = 1.1
"""The least speedup that is worth a change."""
LITTLE = 200_000
"""Nanoseconds of a call, below which passing it to another thread takes a large part of its time."""
_EARLIER = 0.01  # of its caller's time, by which a call could begin earlier
Groups = list[tuple[int, ...]]


def together_or_not(
    session: Session, calls: Sequence[SentCall], stages: Iterable[Sequence[int]]
) -> tuple[Groups, Groups]:
    """Return the stages whose calls were not in flight together, and those whose calls were."""
    together: Groups = []
    already: Groups = []
    for stage in stages:
        flights = _flights(session, calls, stage)
        if len(stage) > 1:
            apart = len(flights) < len(stage) or len(union(flights)) > 1
            (together if apart else already).append(tuple(stage))
    return together, already


def _flights(session: Session, calls: Sequence[SentCall], group: Iterable[int]) -> list[tuple[int, int]]:
    spans = {span.id: span for span in session.spans}
    found = [spans[calls[n].span] for n in group if calls[n].span in spans]
    return [(span.sent, span.ended) for span in found]


def predicted(
    session: Session, calls: Sequence[SentCall], blocked: Sequence[int], more_instances: bool = False
) -> tuple[int, tuple[Ghost, ...]]:
    """Return the time of the recorded requests (ns) with each call sent once its answers are there, and when.

    Calls queue for the instances that there are (times the batch, if a batcher forms batches), unless there
    are `more_instances`. The time is no less than the processor time allows.
    """
    tree, capacity = SpanTree(session), {} if more_instances else capacities(session)
    batch = {key_of(m): m.max_batch_size for m in session.models if m.scheduler == "dynamic_batching"}
    numbers = {call.span: n for n, call in enumerate(calls)}
    wall = session.wall
    ghosts: list[Ghost] = []
    for root in tree.children.get(0, ()):
        children = tree.children.get(root.id, ())
        if not children or any(child.id not in numbers for child in children):
            continue
        ends: dict[int, int] = {}
        busy: dict[object, list[int]] = {}
        early: list[Ghost] = []
        now = root.started
        *before, after = _own_work(root, children)
        for child, work in zip(children, before, strict=True):
            now += work
            begin = max([now, *(ends[n] for n in members(blocked[numbers[child.id]]) if n in ends)])
            queue = busy.setdefault(key_of(child), [])
            if len(queue) >= capacity.get(key_of(child), len(children)) * max(1, batch.get(key_of(child), 1)):
                begin = max(begin, heappop(queue))
            end = ends[numbers[child.id]] = begin + child.duration - child.queue
            heappush(queue, end)
            if child.sent - begin > _EARLIER * root.duration:
                early.append(Ghost(child.id, begin, end))
        over = max([now, *ends.values()]) + after + root.compute_output
        wall -= root.ended - over
        if early and over < root.ended:
            ghosts += [Ghost(root.id, root.started, over), *early]
    least = min(session.wall, round(session.cpu / max(1, session.cores)))
    return max(wall, least, 1), tuple(ghosts)


def _own_work(root: Span, children: Sequence[Span]) -> Iterator[int]:
    """Return the caller's work before each call, and after the last one, ns."""
    flights = [(child.sent, child.ended) for child in children]
    last = root.started
    for moment in (*(child.sent for child in children), root.inferred):
        yield total(gaps(last, moment, flights)) if last < moment else 0
        last = max(last, moment)


def advice(session: Session, calls: Sequence[SentCall], blocked: Sequence[int], together: Groups) -> str:
    """Say which callees lack instances for the calls that they would have at once; empty if none does."""
    now, wall = capacities(session), predicted(session, calls, blocked, more_instances=True)[0]
    if wall * WORTH > predicted(session, calls, blocked)[0]:
        return ""
    models = {span.id: key_of(span) for span in session.spans}
    most: Counter[tuple[str, int]] = Counter()
    for group in together:
        most |= Counter(models[calls[n].span] for n in group if calls[n].span in models)
    lacking = {name: n for (name, version), n in most.items() if n > now.get((name, version), 1)}
    counts = " and ".join(f"`instance_group.count` {n} for `{name}`" for name, n in lacking.items())
    return f"With {counts}, {times(session.wall / wall)} times as fast is predicted." if lacking else ""


def named(calls: Sequence[SentCall], group: Iterable[int]) -> str:
    """Name calls: ```a` and 3 calls of `b```."""
    counts = Counter(calls[n].model for n in group)
    words = [f"`{model}`" if n == 1 else f"{n} calls of `{model}`" for model, n in counts.items()]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def order(overlap: Overlap) -> str:
    """Say in which stages the calls of the first request can be sent: ```a` and `b` together, then `c```."""
    first = [s for s in overlap.stages if overlap.calls[s[0]].request == overlap.calls[0].request]
    words = [named(overlap.calls, stage) + " together" * (len(stage) > 1) for stage in first]
    return ", then ".join([*words[:9], *([f"{len(words) - 9} more"] if len(words) > 9 else [])])


def sentence(overlap: Overlap) -> str:
    """Say which calls could be in flight together, and what is not known."""
    return " ".join([_verdict(overlap), *_doubts(overlap)])


def _verdict(overlap: Overlap) -> str:
    model, calls = f"`{overlap.model}`", overlap.calls
    if overlap.problem:
        return f"Not known: {overlap.problem}."
    if max(Counter(call.request for call in calls).values(), default=0) < 2:
        return f"{model} sends one call, or none: there is nothing that could run beside it."
    if overlap.together:
        spent = {
            group: (total(union(flights)), max((end - begin for begin, end in flights), default=0))
            for group in overlap.together
            for flights in [_flights(overlap.written, calls, group)]
        }
        group, (apart, at_once) = max(spent.items(), key=lambda item: item[1][0] - item[1][1])
        changes = f"{overlap.changes} changes" if overlap.changes > 1 else "one change"
        little = ", which is about what passing a call to another thread takes" * (at_once < LITTLE)
        return (
            f"{model} waits for {named(calls, group)}, one after the other; no dependence between them was "
            f"seen in {changes} of each answer: together they take {time_of(at_once)} instead of "
            f"{time_of(apart)}, by the spans of the recorded run{little}."
        )
    if overlap.already:
        already = " and ".join(named(calls, group) + " together" for group in overlap.already[:3])
        return f"{model} already runs {already}; nothing else could start earlier."
    if any(each.kind in ("state", "unknown") for each in overlap.dependences):
        return f"No calls of {model} were shown to be independent."
    if all(each.kind == "sequence" for each in overlap.dependences):
        return f"All calls of {model} belong to one sequence: none could start earlier."
    return f"Each call of {model} needs an earlier answer, as changed answers showed: none could start earlier."


def _doubts(overlap: Overlap) -> Iterator[str]:
    varying, stateful = (" and ".join(f"`{n}`" for n in names) for names in (overlap.varying, overlap.stateful))
    if varying:
        yield (
            f"{varying} answered equal requests differently (by chance, or because of state): whether the "
            "order of these calls matters is not known, and equal answers cannot be proven."
        )
    if stateful:
        yield f"The answers of {stateful} depend on earlier requests (state): the order of its calls matters."
    if any(each.kind == "sequence" for each in overlap.dependences):
        yield "Requests of one sequence keep their order."
    unknown = [each for each in overlap.dependences if each.kind == "unknown"]
    for reason in dict.fromkeys(each.reason for each in unknown):
        pairs = [each for each in unknown if each.reason == reason]
        earlier, later = (overlap.calls[n].model for n in (pairs[0].earlier, pairs[0].later))
        more = f" (and of {len(pairs) - 1} more pairs)" * (len(pairs) > 1)
        yield f"Whether `{later}` needs the answer of `{earlier}`{more} is not known: {reason}."
