"""The verdict on a workload: why its requests take as long as they do, and what would make them faster. Pure.

`CAUSES` is the whole logic: the first cause with evidence is the cause. `_words` fills the placeholders of its texts;
the characters after the colon of a placeholder join it to the text before, and are left out if it is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import median

from bls_notebook.profiling.intervals import union
from bls_notebook.profiling.records.spans import NOTEBOOK, ModelSeen
from bls_notebook.profiling.records.verdicts import WORTH, Verdict, WhatIf, give_or_take, listed, time_of, times
from bls_notebook.records import Remedy
from bls_notebook.records import count as count_of

from .call_remarks import MUCH, estimate, if_own, may_help, on_server, remarks, small_batches, uneven, waits_to_fill
from .critical_path import shares
from .queue_simulation import ModelKey, key_of
from .verdict_evidence import (
    COMPARED,
    IN_TURN,
    LITTLE,
    LOCKED,
    ONE_CORE,
    ROUGH,
    TOGETHER,
    WorkloadEvidence,
    waits_for,
    with_lost_errors,
)
from .workload_simulation import self_times

OWN_CODE = 0.6  # fraction of a cell's time without a request: above it, the notebook's own code took the time
SHORT = 5_000_000  # ns: a shorter cell does not show whose time it was
LITTLE_GAIN = 1.5  # speedup above which requests have enough work, however short they are
CACHED_CALLS = 1_000_000  # ns of a request whose calls the cache answered: below it, nothing else took long
GAIN_TOGETHER = 1.5  # predicted speedup above which sending requests together is worth it
IDLE_CORES = 0.4  # idle fraction of the processors: above it, the one thread of an event loop may be the limit
BUSY_CORES = 0.2  # idle fraction of the processors: below it, they are busy
_COMPUTES = 0.25  # processor time over the time of requests in turn, on a busy machine: above it, they compute
_PART = 0.1  # fraction of a request's work from which a model is named
NEAR = 0.8  # fraction of the best speedup that counts as near it

ADVISED, SHOWN, UNKNOWN = "advised", "shown", "unknown"


@dataclass(frozen=True)
class Cause:
    """A row of `CAUSES`: its evidence (``when``), its texts, the field of the evidence with the model to blame.

    The prediction for other instance counts is ``advised``, only ``shown``, or ``unknown``. An ``exception`` is another
    sentence, with its condition; with an ``other_remedy``, that is its remedy, and advises a count.
    """

    when: Callable[[WorkloadEvidence], object]
    sentence: str
    remedy: str = "{count}"
    model: Callable[[WorkloadEvidence], ModelKey | None] = attrgetter("root")
    counts: str = SHOWN
    exception: tuple[Callable[[WorkloadEvidence], bool], str] = (lambda e: False, "")
    other_remedy: str = ""


def is_near(e: WorkloadEvidence) -> bool:
    """Return whether async helped about as much as it can."""
    return e.measured.speedup > WORTH and e.reached > NEAR


def is_outside(e: WorkloadEvidence) -> bool:
    """Return whether no request was under way for most of a cell's time."""
    return e.way != COMPARED and e.outside > OWN_CODE


def takes_turns(e: WorkloadEvidence) -> bool:
    """Return whether requests take turns with the GIL, or Python code takes most of a request's time."""
    m = e.measured
    if e.is_apart(e.pythonic) or (e.way == TOGETHER and m.cores > 1 and m.cpu_gathered > ONE_CORE * m.gathered):
        return False
    return e.held > LOCKED or (e.is_bound and e.simulation.python * WORTH > e.simulation.own_cpu)


def lacks_cores(e: WorkloadEvidence) -> bool:
    """Return whether the processors are the limit."""
    return (e.way == TOGETHER and e.spare < BUSY_CORES) or (e.is_bound and not is_near(e))


def suspected(e: WorkloadEvidence) -> str:
    """Return why the cause is unknown on a busy machine: waits for processors may imitate it. Empty if it is known."""
    m = e.measured
    # The share of the GIL is unknown if other programs had the processors while it was measured.
    is_unknown = e.way == COMPARED and m.gil_share < 0 and not e.is_apart(e.pythonic)
    turns = takes_turns(e)
    may_turn = is_unknown and m.cpu_sequential > LOCKED * m.sequential and not turns
    if e.disturbance < ROUGH and not may_turn:
        return ""
    if e.contended:
        return "which can look like a wait for each other"
    if e.simulation.sync_caller or (e.blocked and not e.is_bound):
        return ""
    if turns and e.way == COMPARED:
        return ""
    if turns or may_turn:
        return "which can look like a wait for the interpreter's lock (GIL)"
    if is_outside(e):
        return "which may be why it took so long"
    computes = m.cpu_sequential > _COMPUTES * max(0, m.sequential - m.waited_sequential)
    return "which may be why they took so long" if computes or lacks_cores(e) else ""


_NOTHING_QUEUED = "{took}{no_queue}: {brought}{at_best}; the longest request takes {chain} by itself.{most: }"
_UNEXPLAINED: tuple[Callable[[WorkloadEvidence], bool], str] = (
    lambda e: e.is_unexplained,
    "{took}Unknown what the requests waited for: no instance had a queue for long, but together they took longer "
    "than their recorded work explains; {brought}{at_best}.{most: }",
)
# In this order: the first cause with evidence is the verdict.
CAUSES: dict[str, Cause] = {
    "failed": Cause(when=lambda e: e.failed, sentence="{failed}", remedy="{failed_batch}", counts=UNKNOWN),
    "notebook": Cause(
        when=lambda e: is_outside(e) and e.session.wall > SHORT and not suspected(e),
        sentence="Most of the time was {outside}: requests were under way for {busy} of {wall}.",
        remedy="",
        counts=UNKNOWN,
    ),
    "cached": Cause(
        when=lambda e: e.cached.spans and (e.way == IN_TURN or not e.cached.are_calls or e.each < CACHED_CALLS),
        model=lambda e: key_of(e.cached.spans[0]),
        sentence="The response cache answered {cached}: nothing ran that async could overlap.",
        remedy="Compare with inputs that differ, or without response_cache.",
        counts=UNKNOWN,
    ),
    "one": Cause(
        when=lambda e: e.requests < 2 and (e.way == COMPARED or e.each <= LITTLE or not e.has_remedy),
        sentence="{took}{most}",
        remedy="{compare_several}",
    ),
    "batch_in_turn": Cause(
        when=attrgetter("in_turn"),
        model=attrgetter("in_turn"),
        sentence="{took}{name} serves the requests of a batch one after the other{at}: of up to {batch} requests in "
        "one execute, the calls never overlapped{brought:; }.",
        remedy="{gather_batch}",
        counts=UNKNOWN,
    ),
    "batched": Cause(
        when=lambda e: e.batcher and e.measured.speedup > WORTH,
        model=attrgetter("batcher"),
        sentence="{took}The batcher of {name} served up to {batch} requests by one execute{known:: }.",
        counts=ADVISED,
    ),
    "little": Cause(
        when=lambda e: e.requests > 1 and e.each < LITTLE and (e.way == TOGETHER or e.measured.speedup < LITTLE_GAIN),
        sentence="{took}There is too little work: a request takes {each}, of which sending it is a large part"
        "{known:; }.",
        remedy="Put more into a request (a batch), or leave it at exec.",
    ),
    "in_turn": Cause(
        when=lambda e: (
            e.way == IN_TURN and e.requests > 1 and (e.together > GAIN_TOGETHER or e.limit) and not suspected(e)
        ),
        sentence="{took}Each was sent when the one before had been answered.{most: }",
        remedy="If the requests neither need each other's responses nor wait for each other (a lock, the GIL, an event "
        "loop), {send_together}{with_count}{gain}.{measure}",
        counts=ADVISED,
    ),
    "busy": Cause(
        when=suspected,
        sentence="{took}Unknown: the machine was busy. For {disturbed} of the time a runnable thread waited for a "
        "processor, {suspected}{brought:; }.",
        remedy="Measure again on a quiet machine.",
        counts=UNKNOWN,
    ),
    "shared_instance": Cause(
        when=attrgetter("shares_instance"),
        model=attrgetter("contended"),
        sentence="{took}Requests on {instances} of {name} wait for each other: {uncounted}beside others a request "
        "takes up to {longest} instead of {alone}, though processors are idle{known:; }.",
        remedy="Give an instance more of what its requests share (threads of a pool, connections). {if_own}",
        counts=UNKNOWN,
    ),
    "contention": Cause(
        when=lambda e: e.contended,
        model=attrgetter("contended"),
        sentence="{took}{who} wait for each other: {uncounted}beside others a request takes {together} instead of "
        "{alone}, though processors are idle{known:; }, and more instances would bring nothing.",
        remedy="Give each {whose} its own of what they share (a lock, a connection, a file), or use one that takes "
        "several at a time.",
        counts=UNKNOWN,
    ),
    "sync_exec": Cause(
        when=lambda e: e.simulation.sync_caller,
        model=attrgetter("simulation.sync_caller"),
        sentence="{took}{name} calls exec, which blocks, inside its async execute: its calls go one after the other "
        "and nothing else runs in its event loop meanwhile{so}.",
        remedy="Send calls that do not need each other's responses by async_exec, and await asyncio.gather of them"
        "{prediction:: }.",
    ),
    "gil": Cause(
        when=takes_turns,
        model=attrgetter("pythonic"),
        sentence="{took}{name} is pure Python that held the interpreter's lock (GIL) for {held} of the time: its "
        "requests take turns on {turns} of {of} cores{known:, and }.",
        remedy="Do the work in code that releases the lock (NumPy on whole arrays, ONNX), or take fewer, larger "
        "requests. More instances do not help here, where they share one Python{on_server}. {processes} does the same "
        "here, to measure it.",
        exception=(
            lambda e: e.limit is not None or e.way == IN_TURN,
            "{took}Python code of {name} holds the interpreter's lock (GIL) for {held} of the time{waiting:, and }"
            "{known:: }.",
        ),
        other_remedy="Do the work in code that releases the lock (NumPy on whole arrays, ONNX). {count}",
    ),
    "blocking": Cause(
        when=lambda e: e.blocked and (not e.is_bound or e.spare > IDLE_CORES),
        model=attrgetter("blocked"),
        sentence="{took}The coroutine of {name} blocks its event loop (it computes, or waits without await): its "
        "requests ran one after the other{in_each} though they may share an instance{so}.",
        exception=(
            lambda e: e.way == IN_TURN,
            "{took}The coroutine of {name} blocks its event loop (it computes, or waits without await): sent together, "
            "its requests would take turns{in_each}, too.",
        ),
        remedy="Await instead (asyncio.sleep, an async client), or do the work by asyncio.to_thread{prediction:: }.",
    ),
    "cores": Cause(
        when=lacks_cores,
        model=attrgetter("computing"),
        sentence="{took}{name} keeps the processors busy ({cores} of {of} cores){known:: }, and no number of "
        "instances makes it faster on this machine.",
        exception=(
            lambda e: e.measured.cpu_gathered < e.measured.cores * e.measured.gathered / 2,
            "{took}{name} mostly computes, but used only {cores} of {of} cores{known:: }. Other programs may have "
            "used the processors. Measure again on a quiet machine.",
        ),
    ),
    "one_at_a_time": Cause(
        when=lambda e: e.has_one_async_instance(e.limit),
        model=attrgetter("limit"),
        sentence="{took}{several} queued for {name} for {queued} of the time: its execute is async but the model is "
        "not decoupled, so an instance serves one batch at a time{brought:, and }.",
        remedy="{count}{or_make} {name} decoupled{by_async}: one instance can then serve requests side by side while "
        "its execute awaits (it then sends each response by get_response_sender()).",
        counts=ADVISED,
    ),
    "queue": Cause(
        when=lambda e: e.limit and not e.may_share,
        model=attrgetter("limit"),
        sentence="{took}{several} queued on the {instances} of {name} for {queued} of the time{brought:: }{more}.",
        remedy="{count}{or_batch: }",
        counts=ADVISED,
    ),
    "unequal": Cause(
        when=attrgetter("unequal"),
        model=attrgetter("unequal"),
        sentence="{took}Unknown whether async helped: {uncounted}requests to {name} took {alone} to {longest}. "
        "The slower ones waited for others (threads of a pool, a lock), had more to do, or a slower instance.",
        remedy="{compare} settles it.",
        counts=UNKNOWN,
    ),
    "filling": Cause(
        when=lambda e: e.way == TOGETHER and e.filling.share > MUCH,
        model=lambda e: e.filling.model,
        sentence="{took}For {filled} of the time, requests waited for batches of {name} to fill.",
        remedy="A lower max_queue_delay_microseconds ends these waits sooner; more requests at once fill the batches.",
        counts=UNKNOWN,
    ),
    "helped": Cause(when=is_near, sentence="{took}Async helped: {speedup} times as fast{at_best}.{most: }"),
    "partly": Cause(
        when=lambda e: e.measured.speedup > WORTH, sentence=_NOTHING_QUEUED, counts=ADVISED, exception=_UNEXPLAINED
    ),
    "chain": Cause(when=lambda e: True, sentence=_NOTHING_QUEUED, counts=ADVISED, exception=_UNEXPLAINED),
}


class Phrase(str):
    """Words that may be missing; the format spec of a placeholder joins them to the text before."""

    __slots__ = ()

    def __format__(self, joiner: str) -> str:
        return joiner + self if self else ""


def verdict(evidence: WorkloadEvidence) -> Verdict:
    """Return the verdict: the first cause of `CAUSES` with evidence, its sentence and remedy, and predictions.

    ``speedup``, ``best`` and ``predicted`` are relative to one request after the other. ``cause`` is empty for a
    session without requests.
    """
    e, simulation = evidence, evidence.simulation
    if e.way != COMPARED and e.root is None:
        return Verdict("", "")
    name, cause = next((name, cause) for name, cause in CAUSES.items() if cause.when(e))
    key = cause.model(e)
    exception, otherwise = cause.exception
    is_exception = exception(e)
    advises = (cause.counts == ADVISED and not e.idle_batcher) or (is_exception and bool(cause.other_remedy))
    what_ifs = _what_ifs(e, name, advises)
    chosen = simulation.worthwhile(what_ifs) if advises else None
    if e.way == COMPARED and not simulation.explains:
        chosen, what_ifs = None if chosen is None else replace(chosen, speedup=0.0), ()
    if name == "shared_instance":
        chosen = _own_instances(e, key)
    count = 0 if chosen is None else chosen.count
    enough = {model for model in simulation.limits if 0 < count <= simulation.capacity.get(model, 1)}
    found = Verdict(
        name,
        sentence="",
        model=key[0] if key is not None else "",
        speedup=e.measured.speedup,
        best=e.best if name != "contention" else e.measured.speedup,  # more instances bring nothing
        chain=simulation.chain,
        queued=waits_for(key, e.session, e.measured.gathered).share,
        models=(key[0],)
        if name == "shared_instance" and key is not None
        else tuple(model[0] for model in simulation.limits if model not in enough),
        count=count,
        predicted=_by_code(e, name) if chosen is None or name == "shared_instance" else chosen.speedup,
        what_ifs=what_ifs,
    )
    sentence = otherwise if is_exception else cause.sentence
    words = _words(e, found, key, has_shares="{most" in sentence)
    remedy = cause.other_remedy if is_exception and cause.other_remedy else cause.remedy
    advice = [remedy.format_map(words).strip()]
    if e.failed is None:
        advice += [small_batches(e), "" if name == "filling" else waits_to_fill(e)]
    if e.way != COMPARED and e.failed is None:
        advice += remarks(e.session, name)
    found = replace(
        found,
        sentence=sentence.format_map(words).strip(),
        advice=" ".join(filter(None, advice)),
        note=" ".join(filter(None, (_roughness(e, name), estimate(e, sentence), uneven(e), e.limited))),
    )
    return with_lost_errors(found, e.session)


def _what_ifs(e: WorkloadEvidence, cause: str, advises: bool) -> tuple[WhatIf, ...]:
    """Predict other instance counts of the models that limit the workload or, without these, of the first ones."""
    if CAUSES[cause].counts == UNKNOWN:
        return ()
    simulation, limits = e.simulation, e.simulation.limits
    # On a server each instance is a process, so every model that holds the GIL gains from more instances.
    is_apart = cause == "gil" and not advises
    others = simulation.models if is_apart else {r.model for r in simulation.requests} & simulation.models.keys()
    further = bool(limits) and (cause in ("queue", "one_at_a_time", "batched") or (advises and cause == "gil"))
    what_ifs = simulation.what_ifs(limits or tuple(others), e.counts, further=further)
    return tuple(what for what in what_ifs if simulation.is_sure(what.wall))


def _own_instances(e: WorkloadEvidence, key: ModelKey | None) -> WhatIf | None:
    """Return more instances to try for requests that wait for each other on one; their gain is unknown."""
    now = len(e.simulation.models[key].instances) if key else 0
    counts = [count for count in (*e.counts, 2 * now) if now < count <= e.requests]
    return WhatIf(max(counts), 0, 0.0, 0.0) if now and counts else None


def _by_code(e: WorkloadEvidence, cause: str) -> float:
    """Return the predicted speedup of a change to the code, 0 if unknown."""
    if e.way == IN_TURN:
        return e.together if cause == "in_turn" and not e.idle_batcher else 0.0
    if cause == "batch_in_turn":
        return e.gathered.speedup_of("")
    change = {"sync_exec": "gather", "blocking": "await"}.get(cause)
    speedup = 0.0 if change is None else e.simulation.speedup_of(change)
    return speedup if speedup and e.simulation.is_sure(e.measured.sequential / speedup) else 0.0


def _roughness(e: WorkloadEvidence, cause: str) -> str:
    """Return why the figures are rough; empty if they are not."""
    m, session = e.measured, e.session
    if e.failed is not None:
        return ""
    if cause == "busy":
        return ""
    if e.way != COMPARED:
        said = f"Other programs used the processors: runnable threads waited {time_of(session.disturbed)} for one."
        return said if e.disturbance >= ROUGH else ""
    if e.disturbance >= ROUGH:
        return (
            f"Other programs used the processors: for {e.disturbance:.0%} of the time a runnable thread waited for "
            "one. The figures are rough; measure again on a quiet machine."
        )
    unsure = give_or_take(m.relative_error)
    if not unsure or cause == "little":  # runs with so little work always differ much
        return ""
    return (
        f"The runs differed much: the speedup is {times(m.speedup)}{unsure}, and predictions are "
        "as uncertain. Other programs may use the machine; measure again when it is quiet."
    )


# Causes in which the parts of a request's time do not matter.
_WITHOUT_SHARES = ("failed", "notebook", "cached", "one", "batched", "little")


def _where(e: WorkloadEvidence) -> str:
    """Name the models that take most of the time, if there are several, and Python code under the GIL."""
    own = {key: sum(times) for key, times in self_times(e.simulation.sequential).items()}
    whole = sum(own.values())
    largest = sorted((key for key in own if own[key] >= _PART * whole), key=lambda key: -own[key])[:3]
    if len(largest) < 2:
        return ""
    words = []
    for key in largest:
        is_python = e.python.get(key, 0) > LOCKED * own[key] and not suspected(e)
        words.append(f"{own[key] / whole:.0%} in `{key[0]}`{' (Python code under the GIL)' if is_python else ''}")
    whole_of = "the time in `execute`" if e.way == TOGETHER else "a request's work"  # together, they may have waited
    return f"Of {whole_of}, {listed(words)}. "


def _words(e: WorkloadEvidence, v: Verdict, key: ModelKey | None, has_shares: bool) -> dict[str, Phrase]:
    """Return the words for the placeholders of `CAUSES`."""
    m, is_compared = e.measured, e.way == COMPARED
    seen = e.simulation.models.get(key) if key else None
    number = 0 if seen is None else len(seen.instances)
    waits = waits_for(key, e.session, m.gathered).requests
    roots = [span for span in e.session.spans if not span.parent]
    of_roots = any(span.model == v.model for span in roots)
    several = f"{waits} of them" if of_roots else count_of(waits, "call")
    instances, chosen = "one instance" if number == 1 else f"{number} instances", v.count and v.predicted
    # A staircase of a cell shows requests of which the shortest was alone.
    alone = (min if e.way == TOGETHER else median)(self_times(e.simulation.sequential).get(key, [0]) if key else [0])
    together = median(self_times(e.session).get(key, [0]) if key else [0])
    callers = "calls by models" if e.cached.are_calls else "requests"
    is_of_clients = e.session.sender != NOTEBOOK
    partly = "partly " if len(union((span.sent, span.ended) for span in roots)) > 1 else ""
    how = f"{partly}under way together" if e.way == TOGETHER else "one after the other"
    in_turn = f"Each {'group' if e.way == TOGETHER else 'one'} was sent when the one before had been answered"
    no_queue = "More instances bring nothing" if v.queued > WORTH - 1 else "Nothing queued for long"
    name = v.cause
    took = f"{e.requests} requests took {time_of(m.gathered)}, {how}. "
    if e.requests == 1:
        took = f"One request took {time_of(m.gathered)}. "
    elif is_compared:
        took = ""
    if name not in _WITHOUT_SHARES and not has_shares:
        took += _where(e)
    # Of requests of a cell that waited for processors, or that mostly cost their sending, the other way is not known.
    brought = "" if name in ("busy", "little") and not is_compared else _brought(e)
    magic = Remedy("", ", or `%bls … --async`")
    asked = v.model if of_roots or not roots else roots[0].model
    compare = Remedy(f"`bls.compare({asked!r}, inputs)`", f"`%blsprofile {asked}`")
    processes = Remedy(f"`repo.load({v.model!r}, isolation='process')`", f"`%tritonrepo load {v.model} --process`")
    words = {
        "failed": e.failed.sentence if e.failed is not None else "",
        "failed_batch": e.failed.batch if e.failed is not None else "",
        "outside": "without a request" if is_of_clients else "the cell's own code",
        "busy": f"{1 - e.outside:.0%}",
        "wall": time_of(e.session.wall),
        "took": took,
        "name": f"`{v.model}`",
        "brought": brought,
        "known": "" if e.way == TOGETHER else brought,  # requests that wait for each other take longer than alone
        "so": f"{', so' if e.measured.speedup < WORTH else ';'} {brought}" if brought and e.way != TOGETHER else "",
        "several": count_of(waits, "request") if is_compared else several,
        "queued": f"{v.queued:.0%}",
        "instances": instances,
        "more": f", and it cannot help more until `instance_group.count` > {number}" if is_compared and chosen else "",
        "held": f"{e.held:.0%}",
        "filled": f"{e.filling.share:.0%}",
        "waiting": _waiting(e),
        "disturbed": f"{e.disturbance:.0%}",
        "suspected": suspected(e),
        "if_own": if_own(e, v),
        "cores": f"{m.cpu_gathered / max(1, m.gathered):.1f}",
        "turns": f"{max(1.0, m.cpu_gathered / max(1, m.gathered)):.1f}",
        "of": str(m.cores),
        "who": f"The {instances} of `{v.model}`" if number > 1 else f"Requests to `{v.model}`",
        "whose": "instance" if number > 1 else "request",
        "no_queue": in_turn if partly else no_queue,
        "in_each": " in each instance" if number > 1 else "",
        "together": time_of(together),
        "alone": time_of(alone),
        "uncounted": "not counting its calls, " if e.is_caller(key) else "",
        "longest": time_of(max(self_times(e.session).get(key, [0]) if key else [0])),
        "compare": str(compare),
        "each": time_of(m.sequential / max(1, e.requests)),
        "cached": f"{len(e.cached.spans)} of {e.cached.asked} {callers}",
        "batch": str(e.simulation.batches[e.in_turn or e.batcher].most if e.batcher else 0),
        "at": f" (line {e.loop.line})" if e.in_turn and e.loop is not None else "",
        "gather_batch": _gather_batch(e, v) if e.in_turn else "",
        "speedup": times(v.speedup),
        # Later groups are simulated at the times of the run, although they would be sent earlier.
        "at_best": "" if partly else f", of {times(v.best)} at best",
        "chain": time_of(v.chain),
        "most": _most(e, v.model) if has_shares else "",
        "count": _count(e, v),
        "with_count": f" with `instance_group.count` {v.count} for {_models(v)}" if v.count else "",
        "or_make": " Or make" if _count(e, v) else "Make",
        "or_batch": _or_batch(seen, "Or let" if _count(e, v) else "Let"),
        "on_server": on_server(v),
        "by_async": ", and send its calls by async_exec" if key in e.simulation.sync_callers else "",
        "prediction": _prediction(e, v),
        "processes": str(processes),
        "gain": f": predicted {times(v.predicted)} times as fast"
        if v.predicted
        else f"; the batcher of `{e.idle_batcher}` can then serve several by one execute",
        "send_together": f"{e.session.sender} can send them together"
        if is_of_clients
        else f"send them together (infer_async and asyncio.gather{magic})",
        "measure": "" if is_of_clients else f" {compare} measures it.",
        "compare_several": "There was nothing to overlap: compare with n of 2 or more." if is_compared else "",
    }
    return {name: Phrase(text) for name, text in words.items()}


def _waiting(e: WorkloadEvidence) -> str:
    """Say how many requests queued for the model that limits the workload; empty if none does."""
    waits, seen = waits_for(e.limit, e.session, e.measured.gathered), e.simulation.models.get(e.limit or ("", 0))
    if seen is None or not waits.requests:
        return ""
    number = len(seen.instances)
    instances = "one instance" if number == 1 else f"{number} instances"
    queued = f"queued on the {instances} of `{seen.name}` for {waits.share:.0%} of it"
    return f"{count_of(waits.requests, 'request')} {queued}"


def _brought(e: WorkloadEvidence) -> str:
    """Say how much sending the requests together helped; it is simulated for a cell, and unknown of one request."""
    speedup = e.measured.speedup
    if e.way == COMPARED:
        return "async brought nothing" if speedup < WORTH else f"async was {times(speedup)} times as fast"
    if e.requests < 2 or (e.way == TOGETHER and e.filling.share > MUCH):
        return ""
    if e.way == IN_TURN:
        gain = f"be {times(e.together)} times as fast" if e.together > WORTH else "take as long"
        return f"together they would {gain}"
    gain = "took as long" if speedup < WORTH else f"were {times(speedup)} times as fast"
    return f"they {gain} as if sent one after the other"


def _most(e: WorkloadEvidence, model: str) -> str:
    """Name the models that took most of a cell's time; empty if that is the model of the verdict."""
    by_time = shares(e.session) if e.way != COMPARED else []
    whole = max(1, sum(share.ns for share in by_time))
    largest = [share for share in by_time[:3] if share.ns >= 0.1 * whole] or by_time[:1]
    if not largest or (largest[0].model == model and largest[0].ns > 0.9 * whole):
        return ""
    words = [f"{'waiting for ' if s.queued else ''}`{s.model}` ({s.ns / whole:.0%})" for s in largest]
    return f"The time was spent in {', '.join(words)}."


def _gather_batch(e: WorkloadEvidence, v: Verdict) -> str:
    """Advise to gather the requests of a batch: the code to write, and the gain, perhaps with more instances."""
    loop, simulation = e.loop, e.gathered
    sync = any(call.kind == "sync" for call in e.session.spans if call.parent)
    if loop is None or not loop.is_async:
        where = f" (line {loop.line}: `{loop.text}`)" if loop is not None else ""
        change = "Serve each request in a coroutine, and await asyncio.gather of these in an async execute" + where
    elif loop.changed:
        change = f"In line {loop.line}, write `{loop.changed}` instead of `{loop.text}`"
    else:
        gather = "await asyncio.gather(*[self.serve(request) for request in requests])"
        change = f"Move the body of the loop in line {loop.line} (`{loop.text}`) to a coroutine, and `{gather}`"
    change += ", and send the calls by async_exec" if sync else ""
    change += f", and `{loop.to_import}`" if loop is not None and loop.to_import else ""
    what_ifs = simulation.what_ifs(limits, e.counts) if (limits := simulation.limits) else ()
    more = simulation.worthwhile(what_ifs)
    models = listed([f"`{model}`" for model, _ in limits])
    gain = _prediction(e, v) if v.predicted > WORTH * v.speedup else ""
    if more is not None:
        with_more = _prediction(e, replace(v, predicted=more.speedup))
        if gain:
            return f"{change}: {gain}; with {more.count} instances of {models}, too, {with_more}."
        return f"{change}, and set `instance_group.count` to {more.count} for {models}: {with_more}."
    return f"{change}: {gain}." if gain else f"{change}."


def _models(v: Verdict) -> str:
    return listed([f"`{name}`" for name in v.models])


def _prediction(e: WorkloadEvidence, v: Verdict) -> str:
    """Return the gain of a change: over today's exec in a comparison, over the present time in a cell."""
    if e.way == COMPARED:
        return f"predicted {times(v.predicted)} times as fast as today's exec" if v.predicted else ""
    gain = v.predicted / max(v.speedup, 1e-9)
    return f"predicted {times(gain)} times as fast as now" if gain > WORTH else ""


def _count(e: WorkloadEvidence, v: Verdict) -> str:
    """Advise the number of instances, if more instances help."""
    prediction = _prediction(e, v)
    if not v.count or not prediction:
        return may_help(e, v) if v.count and e.way == COMPARED else ""
    at_best = ""
    if e.way == COMPARED and v.best > v.predicted * WORTH:
        at_best = f" ({times(v.best)} at best, with an instance for each request)"
    return f"Set `instance_group.count` to {v.count} for {_models(v)}: {prediction}{at_best}."


def _or_batch(seen: ModelSeen | None, let: str) -> str:
    if seen is None or seen.max_batch_size <= 1 or seen.scheduler != "default":
        return ""
    return f"{let} it batch: dynamic_batching, as it takes batches of {seen.max_batch_size}."
