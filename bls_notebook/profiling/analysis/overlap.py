"""Which calls of an `execute` could have been in flight together, and what that would bring.

A call may depend on every answer that the program had looked at before it was sent, and on those whose
outputs are its inputs; on nothing else. That is what `engine.overlap` records (`Program`), and what a run
with the calls sent ahead keeps to: so the prediction is of the very run that proves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bls_notebook.profiling.records.comparison import Measured
from bls_notebook.profiling.records.program import Call, Program
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import Ghost, Span
from bls_notebook.records.intervals import total, union

from .queue_simulation import Batches, Key, Recipe, Sent, capacities, key_of, recipes, replay
from .span_tree import SpanTree
from .verdict_text import calls_of, give_or_take, time_of, times

WORTH = 1.1  # times as fast, at least, to be worth a word
PARTLY = 0.75  # of what was predicted: below, a change has not all of it in it
_EARLIER = 0.01  # of its caller's time, by which a call could have begun earlier
LITTLE = 200_000  # ns of a call: below, handing it to another thread takes a large part of it


def depends_on(program: Program) -> list[int]:
    """Return of each call the calls that it may depend on, directly or not: bit n for call n."""
    looked = 0
    found: list[int] = []
    for _, call, needed in program.steps:
        if needed:
            looked |= 1 << call | found[call]
        else:
            mask = looked
            for need in program.calls[call].needs:
                mask |= 1 << need | found[need]
            found.append(mask)
    return found


def same_calls(session: Session, programs: Sequence[Program]) -> bool:
    """Whether the requests of a session sent the calls of these programs, in their order."""
    tree = SpanTree(session)
    roots = tree.children.get(0, ())
    return len(roots) == len(programs) and all(
        [c.model for c in program.calls] == [s.model for s in tree.children.get(root.id, ())]
        for root, program in zip(roots, programs, strict=True)
    )


def overlapped_wall(
    session: Session,
    programs: Sequence[Program],
    measured: Measured,
    instances: Mapping[Key, int] | None = None,
    batches: Batches | None = None,
) -> int:
    """Return how long requests sent one after the other would take with their calls overlapped, ns.

    No less than what processors and Python's lock allow. `instances` are other counts of them, `batches` of
    models that serve calls together, and how long that takes.
    """
    found, now = recipes(session), capacities(session)
    asis = sum(replay([recipe], now) for recipe in found)
    then = {**now, **(instances or {})}
    ahead = sum(
        replay([_sent_ahead(r, p)], then, batches=batches) for r, p in zip(found, programs, strict=True)
    )
    needed = max(measured.cpu_sequential, min(measured.cpu_sequential + measured.waited_sequential, asis))
    python = round(max(measured.gil_share, 0.0) * session.wall)
    bound = max(min(python, needed), round(needed / max(1.0, measured.parallel or measured.cores)))
    return max(session.wall - asis + ahead, min(bound, session.wall), 1)


def _sent_ahead(recipe: Recipe, program: Program) -> Recipe:
    if not program.calls:
        return recipe
    sent = [Sent(s.recipe, c.needs) for s, c in zip(recipe.sent, program.calls, strict=True)]
    return replace(recipe, sent=tuple(sent), steps=program.steps, waited=(), gap=program.own)


def ghosts(session: Session, programs: Mapping[int, Program]) -> tuple[Ghost, ...]:
    """Return where calls could have begun and ended, and their callers have ended; queues are as they were.

    Programs are by the id of the span that they are of; those that do not fit to what was sent are left out.
    """
    tree = SpanTree(session)
    found: list[Ghost] = []
    for caller, program in programs.items():
        calls = tree.children.get(caller, ())
        if [c.model for c in program.calls] != [s.model for s in calls]:
            continue
        span = tree.spans[caller]
        early: list[Ghost] = []
        ended: list[int] = []
        now, latest = span.started, 0
        for own, call, needed in program.steps:
            now += own
            if needed:
                now = max(now, ended[call])
                continue
            begin = max([now, *(ended[n] for n in program.calls[call].needs)])
            ended.append(begin + calls[call].duration)
            if (
                calls[call].sent - begin > _EARLIER * span.duration and begin < latest
            ):  # beside an earlier call
                early.append(Ghost(calls[call].id, begin, ended[call]))
            latest = max(latest, calls[call].ended)
        over = max([now + program.own, *ended]) + span.compute_output
        if early and could_overlap(program) and over < span.ended:
            found += [Ghost(caller, span.started, over), *early]
    return tuple(found)


def more_instances(
    session: Session, programs: Sequence[Program], measured: Measured, batches: Batches | None = None
) -> str:
    """Say which models lack instances for the calls that they would have at once; empty for none."""
    tree = SpanTree(session)
    now = capacities(session)
    most: dict[Key, int] = {}
    for root, program in zip(tree.children.get(0, ()), programs, strict=True):
        calls = tree.children.get(root.id, ())
        for group in groups(program):
            for key, count in Counter(key_of(calls[call]) for call in group).items():
                if count > max(now.get(key, 1), most.get(key, 0)):
                    most[key] = count
    wall = overlapped_wall(session, programs, measured, None, batches)
    with_more = overlapped_wall(session, programs, measured, most, batches)
    if not most or with_more * WORTH > wall:
        return ""
    counts = " and ".join(f"`instance_group.count` {count} for `{name}`" for (name, _), count in most.items())
    return f"With {counts}, {times(session.wall / with_more)} times as fast is predicted."


def could_overlap(program: Program) -> bool:
    """Whether a program has calls that do not depend on one another."""
    return bool(groups(program))


def what_overlaps(session: Session, programs: Sequence[Program]) -> str:
    """Say which calls do not need each other, and what sending them together would bring."""
    tree = SpanTree(session)
    roots = tree.children.get(0, ())
    model = f"`{roots[0].model}`"  # type: ignore[misc] # mypy takes the tuple for an empty one
    if all(len(program.calls) < 2 for program in programs):
        return f"{model} sends one call, or none: there is nothing that could overlap it."
    gain, together = 0, 0
    best: list[Span] = []
    for root, program in zip(roots, programs, strict=True):
        calls = tree.children.get(root.id, ())
        for group in groups(program):
            spans = [calls[call] for call in group]
            longest = max(span.duration for span in spans)
            saved = total(union((span.sent, span.ended) for span in spans)) - longest
            if saved > gain:
                gain, together, best = saved, longest, spans
    if not best:
        return f"{model} looks at each answer before it sends the next call: none could have begun earlier."
    both = f"together {time_of(together)} instead of {time_of(gain + together)}"
    little = together < LITTLE
    end = ", which is about what handing a call to another thread takes" if little else ""
    return f"{model} waits for {_named(best)}, which do not need each other: {both}{end}."


def groups(program: Program) -> list[list[int]]:
    """Return calls one after the other of which none depends on another, as many as there are."""
    found: list[list[int]] = []
    group: list[int] = []
    members = 0
    for call, mask in enumerate(depends_on(program)):
        if mask & members:
            found.append(group)
            group = [before for before in group if not mask >> before & 1]
            members &= ~mask
        group.append(call)
        members |= 1 << call
    return [each for each in (*found, group) if len(each) > 1]


def _named(spans: Sequence[Span]) -> str:
    together = union((span.sent, span.ended) for span in spans)
    if len(together) < len(spans):  # some are in flight together already
        rounds = [[s for s in spans if begin <= s.sent <= s.ended <= end] for begin, end in together]
        return ", then for ".join(" and ".join(calls_of(each)) for each in rounds)
    words = calls_of(spans)
    return f"{words[0]}, one after the other" if len(words) == 1 else ", then for ".join(words)


def sent_often(programs: Sequence[Program]) -> frozenset[int]:
    """Return the lines of model.py that sent several of the calls which could be in flight together."""
    found: set[int] = set()
    for program in programs:
        for group in groups(program):
            ways = Counter(
                way[at:] for way in (program.calls[n].lines for n in group) for at in range(len(way))
            )
            found |= {way[0] for way, count in ways.items() if count > 1}
    return frozenset(found)


def most_together(programs: Sequence[Program]) -> list[Call]:
    """Return the calls of the largest group that could be in flight together."""
    return max(([p.calls[n] for n in group] for p in programs for group in groups(p)), key=len, default=[])


def changed_proof(measured: Measured, predicted: float, rounds: int, problem: str) -> str:
    """Say what running the changed model showed."""
    if problem:
        return f"{problem.removesuffix('.')}. Nothing is applied."
    if measured.speedup < WORTH:
        but = f"{times(measured.speedup)} times as fast: nothing is applied"
        return f"Equal answers on {rounds} runs, but {but}."
    said = f"{times(measured.speedup)} times as fast{give_or_take(measured.relative_error)}"
    proven = f"Proven: equal answers on {rounds} runs, {said} (predicted {times(predicted)})."
    rest = (
        " Other calls still wait: those that stand where the program cannot be seen through are left to you."
    )
    return proven + rest if measured.speedup < PARTLY * predicted else proven


def proof(measured: Measured, predicted: float, speedup: float, problem: str, batched: bool = False) -> str:
    """Say what sending calls ahead brought; `batched` where some were served by one `execute`."""
    if problem:
        return f"Not proven: {problem.removesuffix('.')}."
    if not speedup:
        return ""
    walls = f"Sent ahead, they take {time_of(measured.gathered)} instead of {time_of(measured.sequential)}"
    if max(speedup, predicted) < WORTH:
        return f"{walls}: as long, with equal answers."
    said = f"{times(speedup)} times as fast{give_or_take(measured.relative_error)}"
    more, how = (" or more", ", by how batches form") if batched else ("", "")
    return f"{walls}: {said} ({times(predicted)}{more} predicted{how}), with equal answers."
