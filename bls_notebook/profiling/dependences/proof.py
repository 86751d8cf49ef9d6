"""Propose the changed program, try it with the recorded answers, prove it with the real callees."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain, count

from bls_notebook.engine import BLSError
from bls_notebook.profiling.analysis.span_tree import SpanTree, lock_waits
from bls_notebook.profiling.intervals import total, union
from bls_notebook.profiling.records.verdicts import calls_of, give_or_take, listed, time_of, times
from bls_notebook.profiling.session import Session
from bls_notebook.profiling.stack_samples import usual_turns
from bls_notebook.profiling.sync_vs_async import middle, ratio, relative_error
from bls_notebook.records import first_line
from bls_notebook.repository.source import numbered_change

from .counterfactual import QUIET, ExhaustedError, ObservedRun, Runs
from .perturbation import equal
from .records import CodeChange, Overlap, SentCall
from .schedule import WORTH, longest, predicted

_PLACES = 8  # of a program that are tried
_LATE = 0.1  # fraction of the predicted time by which a run took longer, at least, for the reason to be named
_NO_PLACE = "its calls are not in a form that can be changed: consecutive statements, a simple loop or comprehension"
_NO_LIBCST = "writing it needs LibCST, which is not installed: pip install 'bls_notebook[overlap]'"


def code_change(runs: Runs, overlap: Overlap, blocked: Sequence[set[int]]) -> CodeChange:
    """Return the change that has independent calls in flight together, tried with the kept answers.

    `blocked` lists the direct and indirect predecessors of each call.
    """
    together = [overlap.calls[n] for n in longest(overlap)]
    decoupled = {recorded.sent.model for recorded in runs.recorded if recorded.decoupled}
    text = runs.source[0] if runs.source else ""
    by_hand = replace(unchanged(runs), template=template(together, text, decoupled))
    if runs.source is None:
        return by_hand
    by_hand, (text, place) = replace(by_hand, reason=""), runs.source
    try:
        from .program_change import AWAITED, NotSimpleError, Place, changed_program  # LibCST is an extra
    except ImportError:
        return replace(by_hand, reason=_NO_LIBCST)
    try:
        runs.allow(10 + 2 * _PLACES)
        original = runs.replay(turn=max)

        def tried(places: Collection[Place]) -> tuple[str, set[tuple[int, int]]]:
            return _tried(runs, original, blocked, changed_program(text, places)[0])

        # AWAITED first: it changes the least, and every other change includes its gain.
        known, useful, why = _pairs(original), dict[Place, set[tuple[int, int]]](), _NO_PLACE
        for change in (AWAITED, *changed_program(text, ())[1][:_PLACES]):
            problem, pairs = tried({change})
            if not problem and pairs - known:
                useful[change] = pairs
                known = pairs if change == AWAITED else known
            elif problem and why == _NO_PLACE:
                why = problem
        if len(useful) > 1:
            problem, pairs = tried(useful)
            useful = {min(useful): useful[min(useful)]} if problem else dict.fromkeys(useful, pairs)
    except NotSimpleError as error:
        return replace(by_hand, reason=str(error))
    except ExhaustedError:
        return replace(by_hand, reason="trying the changes took too long")
    if not useful:
        return replace(by_hand, reason=why)
    source, _ = changed_program(text, useful)
    [*_, pairs] = useful.values()
    before = [{a for a in range(b) if (a, b) not in pairs} for b in range(len(overlap.calls))]
    gain = overlap.written.wall / predicted(overlap.written, overlap.calls, before)[0]
    diff = numbered_change(text, source, place.line)
    return replace(by_hand, source=source, change=diff, template="", predicted=gain)


def unchanged(runs: Runs) -> CodeChange:
    """Return the file of a model without a change; if there is not one file, the reason."""
    if runs.source is None:
        return CodeChange(reason="its source is not in one file")
    place, version = runs.source[1], runs.host.ready(runs.model).version
    label = place.label if place.line > 1 or "/" in place.label else f"{runs.model}/{version}/{place.label}"
    return CodeChange(file=label, folder=runs.repository.model(runs.model).source.removeprefix("cell"))


def _tried(
    runs: Runs, original: ObservedRun, blocked: Sequence[set[int]], source: str
) -> tuple[str, set[tuple[int, int]]]:
    """Run a program with the recorded answers, sent in the order of the calls and in reverse.

    Return why it is no good: its answers differ, or calls are in flight together that are not independent. Return also
    which calls are in flight together. Both runs are repeated with more patience if one may have answered a call before
    it saw another one.
    """
    try:
        observed = [runs.replay(source=source, turn=turn) for turn in (min, max)]
        if _is_hasty(*observed):
            observed = [runs.replay(source=source, turn=turn, quiet=10 * QUIET) for turn in (min, max)]
    except BLSError as error:
        return f"the changed model cannot be loaded: {first_line(str(error))}", set()
    pairs = set().union(*map(_pairs, observed))
    problem = ""
    if any(Counter(call[:3] for call in run.calls) != Counter(call[:3] for call in original.calls) for run in observed):
        problem = "with its calls gathered, the model sends other requests"
    elif not all(equal(run.responses, original.responses) for run in observed):
        problem = "with its calls gathered, its answer is another one, or depends on their order"
    elif any(earlier in blocked[later] for earlier, later in pairs):
        problem = "gathered, calls would run together that were not shown to be independent"
    return problem, pairs


def _is_hasty(one: ObservedRun, other: ObservedRun) -> bool:
    """Return whether two calls are in flight together in one run only, and are answered in one order in both."""
    ranks = [{number: rank for rank, number in enumerate(run.answered)} for run in (one, other)]
    pairs = [(a, b) for a, b in _pairs(one) ^ _pairs(other) if all(a in rank and b in rank for rank in ranks)]
    return any((ranks[0][a] < ranks[0][b]) == (ranks[1][a] < ranks[1][b]) for a, b in pairs)


def _pairs(run: ObservedRun) -> set[tuple[int, int]]:
    both = [sorted((run.numbers[one], run.numbers[other])) for one, other in run.pairs]
    return {(earlier, later) for earlier, later in both if earlier >= 0}


def template(group: Sequence[SentCall], source: str = "", decoupled: Collection[str] = ()) -> str:
    """Return the form of a change by hand, with the names of the callees and the lines that send to them.

    The answers get a name that `source` does not use: most models collect their own `responses`.
    Calls of `decoupled` models return iterators.
    """
    used = set(re.findall(r"\w+", source))
    names = chain(("responses", "answers"), map("answers_{}".format, count(1)))
    name = next(each for each in names if each not in used)
    sent = []
    for number, model in enumerate(dict.fromkeys(call.model for call in group), 1):
        calls = [call for call in group if call.model == model]
        lines = ", ".join(map(str, sorted({call.line.line for call in calls if call.line is not None})))
        where = f"  # {', '.join(calls_of(calls))}" + (f", sent at line {lines}" if lines else "")
        send = f"async_exec({'decoupled=True' if model in decoupled else ''})"
        many = f"*[request.{send} for request in requests_{number}]"
        sent.append(f"    {many if len(calls) > 1 else f'request_{number}.{send}'},{where}")
    return "\n".join([f"{name} = await asyncio.gather(", *sent, ")"])


def _fresh_difference(runs: Runs, source: str) -> str:
    """Run the changed model, then the original, each with callees that are loaded anew; return how they differ."""
    answers = []
    try:
        for text in (source, ""):
            with runs.variant(text, with_callees=True) as fresh, fresh.serving():
                runs.sequential()
            answers.append(runs.answers)
    except BLSError:  # there may be no memory for another instance of a callee
        return ""
    if equal(*answers):
        return ""
    errors = [first_line(response.error) for kept in answers[0] for response in kept if response.error is not None]
    return (*errors, "the answers differ")[0]


def proven(runs: Runs, overlap: Overlap, repeat: int) -> Overlap:
    """Run the original and the changed model in turns with their real callees, and compare them."""
    code, sessions = overlap.code, dict[bool, list[Session]]({False: [], True: []})
    assert code is not None
    run = runs.gathered if overlap.batch else runs.sequential
    requests = runs.as_batch(overlap.batch or len(runs.inputs))
    if problem := _fresh_difference(runs, code.source):
        proof = f"Not equal: {problem}. Nothing is applied."
        return replace(overlap, code=replace(code, proof=proof), runs=runs.runs)
    with requests, runs.variant() as before, runs.variant(code.source) as after, usual_turns():
        for number in range(repeat + 1):
            answers = {}
            for is_changed in random.sample((False, True), 2):
                with (after if is_changed else before).serving():
                    session = run("calls in flight together" if is_changed else "as it is written")
                answers[is_changed] = runs.answers
                sessions[is_changed] += [session] if number else []  # the first round warms up
            if not equal(answers[False], answers[True]):
                errors = [
                    first_line(response.error)
                    for kept in answers[True]
                    for response in kept
                    if response.error is not None
                ]
                problem = f"Not equal: {(*errors, 'the answers differ')[0]}"
                return replace(overlap, code=replace(code, proof=f"{problem}. Nothing is applied."), runs=runs.runs)
    changed = middle(sessions[True])
    turns = [(a.wall, b.wall) for a, b in zip(sessions[False], sessions[True], strict=True)]
    speedup, doubt = ratio(turns), relative_error(turns) if repeat > 2 else 0.0
    roots = {span.id for span in changed.spans if not span.parent}
    calls = [(span.sent, span.ended) for span in changed.spans if span.parent in roots]
    is_faster, gain = False, code.predicted or overlap.predicted
    measured = f"{times(speedup)} times as fast{give_or_take(doubt)}"
    if len(union(calls)) == len(calls):
        proof = "Not proven: the calls were not in flight together. Nothing is applied."
    elif is_faster := speedup >= max(WORTH, 1 + 2 * doubt):
        proof = f"Proven: equal answers on {repeat + 1} runs, {measured} (predicted {times(gain)})."
    else:
        chance = " (that may be chance; a larger `repeat` settles it)" if speedup >= WORTH else ""
        proof = f"Equal answers on {repeat + 1} runs, but {measured}{chance}. Nothing is applied."
    proof += held_up(changed, round(overlap.written.wall / gain))
    code = replace(code, proof=proof, proven=is_faster)
    return replace(overlap, code=code, speedup=speedup, changed=changed, runs=runs.runs)


def held_up(changed: Session, predicted: int) -> str:
    """Name the models that waited for the GIL, if that is most of what a run took beyond its prediction (ns)."""
    waits = [wait for wait in lock_waits(changed) if wait.queued]
    late, missing = total(union(piece for wait in waits for piece in wait.pieces)), changed.wall - predicted
    if missing < _LATE * predicted or 2 * late < missing:
        return ""
    spans = SpanTree.of(changed).spans
    models = listed([f"`{name}`" for name in dict.fromkeys(spans[wait.span].model for wait in waits)])
    return f" {models} waited {time_of(late)} for the GIL: on a server, each instance has its own process and GIL."
