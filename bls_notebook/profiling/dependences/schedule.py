"""When the calls of a recorded run could start, and how long the run would take then. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from bls_notebook.profiling.analysis.queue_simulation import ModelKey, capacities, key_of
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.intervals import Interval, gaps, total, union
from bls_notebook.profiling.records.spans import Ghost, Span
from bls_notebook.profiling.session import Session

from .records import Overlap, SentCall

WORTH = 1.1  # the least speedup that is worth a change
_EARLIER = 0.01  # of its caller's time, by which a call could begin earlier
_HANDOVER = 200_000  # ns of the caller's time, at most, that sending a call from an event loop takes more than `exec`


def stages(blocked: Sequence[set[int]], senders: Sequence[object]) -> tuple[tuple[int, ...], ...]:
    """Return the calls of each `execute` by the earliest stage in which they can be sent."""
    depth: list[int] = []
    out: dict[tuple[int, int], list[int]] = {}
    for call, before in enumerate(blocked):
        depth.append(1 + max((depth[earlier] for earlier in before), default=0))
        out.setdefault((senders.index(senders[call]), depth[call]), []).append(call)
    return tuple(tuple(out[key]) for key in sorted(out))


def flights(session: Session, calls: Sequence[SentCall], group: Iterable[int]) -> list[Interval]:
    """Return when the calls of a group were in flight."""
    spans = {span.id: span for span in session.spans}
    return [(span.sent, span.ended) for n in group if (span := spans.get(calls[n].span)) is not None]


def predicted(
    session: Session, calls: Sequence[SentCall], blocked: Sequence[set[int]]
) -> tuple[int, tuple[Ghost, ...]]:
    """Return the time of the recorded requests (ns) with each call sent once its answers are there, and when.

    Calls queue for the instances of their model (times the batch, if a batcher forms batches). The time is no less
    than the processor time allows.
    """
    tree, capacity = SpanTree(session), _capacities(session)
    numbers = {call.span: n for n, call in enumerate(calls)}
    wall, ghosts = session.wall, list[Ghost]()
    for root in tree.children.get(0, ()):
        children = tree.children.get(root.id, ())
        if not children or any(child.id not in numbers for child in children):
            continue
        ends: dict[int, int] = {}
        busy: dict[ModelKey, list[int]] = {}
        early, now = list[Ghost](), root.started
        *before, after = _own_work(root, children)
        for child, work in zip(children, before, strict=True):
            now += work
            number = numbers[child.id]
            ready = max([now, *(ends[n] for n in blocked[number] if n in ends)])
            handover = _HANDOVER * (child.sent - ready > _EARLIER * root.duration)
            begin, end = _served(tree, child, ready + handover, busy, capacity)
            now, ends[number] = now + handover, end
            if child.sent - begin > _EARLIER * root.duration:
                early.append(Ghost(child.id, begin, end))
        over = max([now, *ends.values()]) + after + root.compute_output
        wall -= root.ended - over
        if early and over < root.ended:
            ghosts += [Ghost(root.id, root.started, over), *early]
    least = min(session.wall, round(session.cpu / max(1, session.cores)))
    return max(wall, least, 1), tuple(ghosts)


def _served(
    tree: SpanTree, span: Span, sent: int, busy: dict[ModelKey, list[int]], capacity: Mapping[ModelKey, int]
) -> tuple[int, int]:
    """Return when an instance begins and ends a call that is sent at a time, and the calls that it makes itself.

    `busy` lists for each model when its instances become idle; the call and its own calls are added.
    """
    key, begin, late = key_of(span), sent, [(0, 0)]  # of the calls so far: when they ended, and how much later
    queue = busy.setdefault(key, [])
    if len(queue) >= capacity.get(key, len(queue) + 1):
        begin = max(begin, heappop(queue))
    for inner in sorted(tree.children.get(span.id, ()), key=lambda inner: inner.sent):
        before = max(by for ended, by in late if ended <= inner.sent)
        due = begin + inner.sent - span.sent - span.queue + before
        late.append((inner.ended, before + _served(tree, inner, due, busy, capacity)[1] - due - inner.duration))
    end = begin + span.duration - span.queue + max(by for _, by in late)
    heappush(queue, end)
    return begin, end


def _capacities(session: Session) -> dict[ModelKey, int]:
    """Return the number of requests that each model serves at once, with full batches."""
    capacity = capacities(session)
    for model in session.models:
        capacity[key_of(model)] *= max(1, model.max_batch_size) if model.scheduler == "dynamic_batching" else 1
    return capacity


def _own_work(root: Span, children: Sequence[Span]) -> Iterator[int]:
    """Return the caller's work before each call, and after the last one, ns."""
    in_flight, last = [(child.sent, child.ended) for child in children], root.started
    for moment in (*(child.sent for child in children), root.inferred):
        yield total(gaps(last, moment, in_flight)) if last < moment else 0
        last = max(last, moment)


def longest(overlap: Overlap) -> tuple[int, ...]:
    """Return the stage whose calls, which can run together, took the longest."""
    return max(overlap.together, key=lambda group: total(union(flights(overlap.written, overlap.calls, group))))


def lacking(overlap: Overlap) -> Counter[str]:
    """Return how many calls of a stage a model gets at once, for models that serve fewer."""
    most, capacity = Counter[str](), {key[0]: n for key, n in _capacities(overlap.written).items()}
    for stage in overlap.together:
        most |= Counter(overlap.calls[n].model for n in stage)
    return Counter({model: n for model, n in most.items() if n > capacity.get(model, n)})


def callees(session: Session) -> Counter[str]:
    """Count the calls of each model that the recorded requests sent themselves."""
    roots = {span.id for span in session.spans if not span.parent}
    return Counter(span.model for span in session.spans if span.parent in roots)


def below(session: Session) -> defaultdict[str, set[str]]:
    """Return each called model with all models beneath it."""
    models, below = {span.id: span.model for span in session.spans}, defaultdict[str, set[str]](set)
    parents = {span.id: span.parent for span in session.spans}
    for span in session.spans:
        above = span.id
        while above:
            below[models[above]].add(span.model)
            above = parents.get(above, 0)
    return below
