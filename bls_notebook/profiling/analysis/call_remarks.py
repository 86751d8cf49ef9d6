"""Remarks on the calls of a run: calls that could go together, responses out of order, a blocked event loop. Pure."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from operator import itemgetter
from statistics import median

from bls_notebook.profiling.intervals import events, occupied
from bls_notebook.profiling.records import verdicts
from bls_notebook.profiling.records.spans import SessionData, Span
from bls_notebook.profiling.records.verdicts import time_of
from bls_notebook.records import Remedy

from .queue_simulation import capacities, key_of
from .span_tree import SpanTree
from .verdict_evidence import COMPARED, LITTLE, WorkloadEvidence, blocked_loops

_MANY = 8  # calls of one model by one `execute`: from here on, short ones could be one request
_NAMED = 4  # the most callees that a sentence names; it counts the others
MUCH = 0.15  # fraction of the time that gathering calls could save, or that requests wait for a batch to fill: less
# is not mentioned


def remarks(session: SessionData, cause: str) -> list[str]:
    """Return remarks on what may make the models slow or wrong, besides the cause of a verdict; some are empty."""
    blocked = "" if cause == "blocking" else _perhaps_blocked(session)
    in_turn = "" if cause in ("sync_exec", "batch_in_turn") else _one_after_the_other(session)
    return [blocked, in_turn, _order_of_arrival(session), _unawaited(session)]


def estimate(e: WorkloadEvidence, sentence: str) -> str:
    """Say that the template of a verdict's sentence claims a speedup which is an estimate; empty if it does not."""
    if not e.estimated or not ("{speedup" in sentence or "{brought" in sentence):
        return ""
    return (
        "The speedup is an estimate, because the requests waited for processors or the GIL beside each other: "
        "`bls.compare` measures it."
    )


def uneven(e: WorkloadEvidence) -> str:
    """Say that a server would distribute the requests otherwise, if that matters."""
    if e.failed is not None or e.uneven is None:
        return ""
    return (
        f"Instances of `{e.uneven[0]}` are free once `execute` has passed a request to threads. Here they take turns; "
        "a server gives some several requests and others few, so it may need longer."
    )


def on_server(v: verdicts.Verdict) -> str:
    """Say whether more instances would help on a server."""
    best = max((what.on_server for what in v.what_ifs), default=0.0)
    if v.what_ifs and best < verdicts.WORTH * max(1.0, v.speedup):
        return ", and by the prediction hardly on a Triton server, where each is a process of its own"
    gain = f": up to {verdicts.times(best)} times as fast there" if v.what_ifs else ""
    return f"; on a Triton server each instance is a process of its own{gain}"


def if_own(e: WorkloadEvidence, v: verdicts.Verdict) -> str:
    """Advise to try more instances for requests that share one: only a trial shows their gain."""
    if not v.count:
        return ""
    return (
        "More instances help if each has its own. How much is unknown: an instance is free once its `execute` "
        "returns, so a server gives some several requests at once and others few. "
        f"{_verify(v.model)} measures {v.count} here."
    )


def may_help(e: WorkloadEvidence, v: verdicts.Verdict) -> str:
    """Advise to try more instances if the simulation does not explain the run."""
    names = verdicts.listed([f"`{name}`" for name in v.models])
    asked = next(span.model for span in e.session.spans if not span.parent)
    return (
        f"More instances may help, such as {v.count} of {names}. Their gain cannot be predicted: by the recorded work "
        f"the requests would take {time_of(e.simulation.now)} now, and they took {time_of(e.measured.gathered)}. "
        f"{_verify(asked)} measures it."
    )


def _verify(model: str) -> Remedy:
    return Remedy(f"`bls.compare({model!r}, inputs, verify=True)`", f"`%blsprofile {model} … --verify`")


def small_batches(e: WorkloadEvidence) -> str:
    """Say that the instances of callers limit the batches of a model; empty if none shows that."""
    key = e.batcher
    spans = [] if key is None else [span for span in e.session.spans if key_of(span) == key]
    tree = SpanTree.of(e.session)
    callers = dict.fromkeys(key_of(tree.spans[span.parent]) for span in spans if span.parent)
    if key is None or not callers or not all(caller in e.simulation.limits for caller in callers):
        return ""
    most = e.simulation.batches[key].most
    at_once = occupied(events((span.queued, span.ended) for span in spans)).most
    if at_once > most or (most + 1) * max(span.rows for span in spans) > e.simulation.models[key].max_batch_size:
        return ""
    names = verdicts.listed([f"`{name}`" for name, _ in callers])
    return (
        f"No more than {most} requests reached `{key[0]}` at once: with more instances of {names}, its batches could "
        "be larger, which no prediction here includes."
    )


def waits_to_fill(e: WorkloadEvidence) -> str:
    """Say that requests waited for batches to fill; empty if they did not wait long."""
    model, share = e.filling
    if model is None or share < MUCH:
        return ""
    who = "One after the other, requests" if e.way == COMPARED else "Requests"
    return (
        f"{who} waited for batches of `{model[0]}` to fill for {share:.0%} of the time (max_queue_delay_microseconds)."
    )


def _perhaps_blocked(session: SessionData) -> str:
    """Name a model whose coroutine may block its event loop, if threads also waited for processors; or empty."""
    names = sorted(name for name, _ in blocked_loops(session, 0))
    if not names:
        return ""
    return (
        f"Perhaps the coroutine of `{names[0]}` blocks its event loop (it computes, or waits without await): requests "
        "waited while it ran others. Or they waited for a processor."
    )


def _one_after_the_other(session: SessionData) -> str:
    """Name the calls of an `execute` that could perhaps run together; empty if there are none."""
    tree = SpanTree.of(session)
    found: dict[str, list[tuple[int, Span, list[Span]]]] = {}
    for execution, calls in tree.children.items():
        if not execution or len(calls) < 2:
            continue
        caller = tree.members[execution][0]
        mine = [c for c in calls if c.kind in ("sync", "async") and c.ran]
        in_turn = all(one.ended <= after.sent for one, after in pairwise(mine))
        saved = sum(c.duration for c in mine) - max((c.duration for c in mine), default=0)
        sequences = [(c.model, c.correlation_id) for c in mine if c.correlation_id]  # whose requests keep their order
        alone = len(mine) == len(calls) and in_turn and len({*sequences}) == len(sequences)
        is_much = alone and saved > max(LITTLE, MUCH * (caller.ended - caller.started - _delay(mine)))
        found.setdefault(caller.model, []).append((saved if is_much else 0, caller, mine))
    # The median execution: the first request of a session often takes far longer than the others.
    typical = [sorted(each, key=itemgetter(0))[len(each) // 2] for each in found.values()]
    best = max(typical, key=itemgetter(0), default=None)
    if best is None or not best[0]:
        return ""
    saved, caller, mine = best
    name, count = Counter(call.model for call in mine).most_common(1)[0]
    each = median(call.duration for call in mine if call.model == name)
    if count >= _MANY and mine[-1].ended - mine[0].sent < LITTLE * len(mine):  # the other calls are short, too
        return (
            f"`{caller.model}` sends {count} requests to `{name}`, one after the other, at {time_of(each)} each: so "
            "little work that sending it is a large part of the time. If the calls do not need each other's responses, "
            f"and `{name}` accepts it, send one request with all the data."
        )
    each_execute = " of each `execute`" if len(found[caller.model]) > 1 else ""
    each_execute += _with_instances(session, mine)
    if any(call.kind == "async" for call in mine):
        return (
            f"`{caller.model}` waits for {called(mine)}: if they do not need each other's responses, asyncio.gather of "
            f"them may save up to {time_of(saved)}{each_execute}."
        )
    overlap = Remedy(f"`bls.overlap({caller.model!r}, inputs)`", f"`%blsoverlap {caller.model} …`")
    return (
        f"`{caller.model}` waits for {called(mine)}: {overlap} finds out whether "
        f"they need each other; running them together may save up to {time_of(saved)}{each_execute}."
    )


def _with_instances(session: SessionData, calls: list[Span]) -> str:
    """Say which models need more instances to serve these calls together; empty if none does."""
    rows, most = Counter(map(key_of, calls)), capacities(session)
    batching = {key_of(model) for model in session.models if model.max_batch_size > 1 and model.scheduler != "default"}
    few = [f"{number} instances of `{key[0]}`" for key, number in rows.items() if number > most.get(key, number)]
    few = few if not batching & rows.keys() else []
    return f", with {verdicts.listed(few)}" if few else ""


def _delay(calls: list[Span]) -> float:
    """Return how much longer one of many calls took than the others, as if another program had the processor."""
    name, count = Counter(call.model for call in calls).most_common(1)[0] if calls else ("", 0)
    steps = [after.sent - call.sent for call, after in pairwise(calls) if call.model == name]
    return max(steps) - median(steps) if count >= _MANY else 0


_ARRIVAL = re.compile(r"^[^#\n]*?\b(asyncio\.(?:as_completed|wait))(?=\()", re.MULTILINE)  # any order of responses


def _order_of_arrival(session: SessionData) -> str:
    """Name a model that perhaps took responses as they arrived, in another order than its calls; empty without one."""
    tree = SpanTree.of(session)
    for execution, calls in tree.children.items():
        text = session.sources[calls[0].source - 1].text if execution and calls[0].source else ""
        code = _ARRIVAL.search(text)
        if code is None:
            continue
        for name in dict.fromkeys(call.model for call in calls):
            ends = [call.ended for call in calls if call.model == name]
            if ends != sorted(ends):
                line, caller = text.count("\n", 0, code.end()) + 1, tree.members[execution][0].model
                return (
                    f"The responses of `{name}` did not arrive in the order of the calls, and the code of "
                    f"`{caller}` uses {code[1]} (line {line}). If `{caller}` uses each response as it arrives, and the "
                    "order matters, use asyncio.gather: it returns the responses in the order of the calls."
                )
    return ""


_WORTH_NAMING = 1_000_000  # ns: shorter work for which nobody waits is not mentioned


def _unawaited(session: SessionData) -> str:
    """Name the model that worked longest for responses that nobody waited for; empty without one."""
    tree, work = SpanTree.of(session), Counter[tuple[str, str]]()
    for number, left in tree.unawaited().items():
        call = tree.spans[number]
        work[call.model, tree.spans[call.parent].model] += call.ended - max(call.started, left) if call.ran else 0
    ((name, caller), most), *_ = work.most_common(1) or [(("", ""), 0)]
    if most < _WORTH_NAMING:
        return ""
    return (
        f"`{name}` worked for {time_of(most)} although nobody waited for its response any more: as on a server, "
        f"`{caller}` cancels no request when it cancels an await (`asyncio.wait_for`, `task.cancel()`). Let `{name}` "
        "stop by itself (send `timeout=`, in microseconds, and read `request.timeout()`), or make it decoupled and use "
        "`ResponseIterator.cancel()`."
    )


def called(spans: list[Span]) -> str:
    """Name the called models in order: ```resize`, then for `detect```."""
    names = verdicts.calls_of(spans)
    if len(names) > _NAMED + 1:
        names[_NAMED:] = [f"{len(names) - _NAMED} other models"]
    return ", then for ".join(names)
