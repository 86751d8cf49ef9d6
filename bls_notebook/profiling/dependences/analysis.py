"""`overlap`: find independent calls by counterfactual replay, predict the gain, and propose a changed program."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic

from bls_notebook.engine.errors import BLSError
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import Span
from bls_notebook.profiling.records.verdicts import calls_of, time_of, times
from bls_notebook.profiling.sync_vs_async import Inputs, alone, check_numbers, inputs_of_each
from bls_notebook.records.intervals import total, union
from bls_notebook.records.memory_blocks import CodeLine
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.repository import ModelRepository, current_repository

from .counterfactual import RUNS, SECONDS, CalleeStates, ExhaustedError, Runs, callee_states, equal
from .evidence import ENOUGH, OPTIONS, Evidence, RunDifference, closure, explore, try_change
from .perturbation import CHANGES, ERROR, name_of
from .proof import code_change, proven
from .records import Dependence, Overlap, SentCall
from .schedule import WORTH, flights, lacking, predicted, stages

_FAILURES = 6  # calls whose failure is tried
_CHANCE = "chance, time, or state; fix its seed or clock"
_STOPS = "changed answers stop the model or change how often it calls; drop its check to settle it"
_STATE = "its earlier runs (a file, or state elsewhere); give each run the same state"
_STATEMENTS = {  # why a call follows another one, by the kind of a dependence
    "data": "{later} {needs} the answer of {earlier}: with that changed ({reason}), {inputs} changed, too",
    "control": "whether {later} is sent depends on the answer of {earlier}: "
    "with that changed ({reason}), it was not sent",
    "sequence": "{later} belongs to the same sequence as {earlier}, and requests of one sequence keep their order",
    "state": "the answers of {later} depend on its earlier requests (state), so the order of its calls matters",
    "unknown": "whether {later} needs the answer of {earlier} is unknown: {reason}",
}


def overlap(
    model: str,
    inputs: Inputs | Sequence[Inputs],
    n: int = 1,
    *,
    repeat: int | None = None,
    apply: bool = False,
    repo: ModelRepository | None = None,
) -> Overlap:
    """Find which calls of a model's `execute` are independent, and predict the gain of running them together.

    The model runs with its real callees, and then again with the recorded answers, some of them changed: other inputs
    of a later call show a data dependence, a missing call a control dependence. Callees are asked again, too, to find
    those with state. Each run repeats the model's side effects, such as writing files. There are at most 50 runs
    within 10 s, and up to 20 more to try the change; a run that takes longer is cancelled.

    Parameters
    ----------
    model : str
        Name of the model whose calls are examined.
    inputs : mapping of str to array, or sequence of these
        As `ModelRepository.infer` takes them; the requests take them in turn.
    n : int
        Number of requests, sent one after the other.
    repeat : int, optional
        Number of measurements of the changed model with `apply`; 5 by default.
    apply : bool
        Also run the changed model with its real callees: `code.proof` states whether its answers are equal and it is
        faster; `advice` states the gain of more instances if its callees lack them. No file is written, and the
        loaded model keeps serving.
    repo : ModelRepository, optional
        By default the current one.

    Returns
    -------
    Overlap
        `outcome` and `sentence` state the result; `code` is the change, if it gains time.

    Raises
    ------
    BLSError
        A bad argument, a model that is not loaded, or one without an `execute` in Python.

    Examples
    --------
    >>> result = bls.overlap("postcode", {"IMAGES": images})
    >>> print(result.sentence)
    """
    check_numbers("overlap", n, repeat)
    repository = current_repository() if repo is None else repo
    config = repository.config(model)
    if config.platform == "ensemble" or config.HasField("ensemble_scheduling"):
        raise BLSError(
            f"overlap: model {model!r} is an ensemble, which sends each step once its inputs are there; "
            "expected a model with an execute"
        )
    runs = Runs(repository, model, inputs_of_each(inputs, n, "overlap"))
    with alone("overlap"):
        result = _overlap(runs)
        if apply and result.code is not None and result.code.source:
            result = proven(runs, result, repeat or 5)
    return result


def _overlap(runs: Runs) -> Overlap:
    began, session = monotonic(), runs.record()
    calls, evidence, notes = _calls(runs, session), _evidence(runs), list[str]()
    problem, limit, states = _checked(runs, notes), "", CalleeStates(set(), set(), set())
    if not problem and any(evidence.possible):
        with suppress(ExhaustedError):  # so that callees which read files of the model answer differently, too
            runs.changed(set().union(*evidence.possible), 0)
        left = runs.seconds_left()
        states = callee_states(runs)
        runs.allow(RUNS - runs.count, left)
        try:
            problem = _replayed(runs, notes, _STATE)
            if not problem:
                explore(evidence, range(CHANGES), runs.changed)
                _try_failures(runs, calls, evidence, notes)
                problem = _replayed(runs, notes, _CHANCE) if evidence.found else ""
        except ExhaustedError:
            limit = f"the limit of {RUNS} runs" if runs.count >= RUNS else f"the limit of {SECONDS:.0f} s"
            limit += " was reached before its answer was changed often enough; a request with fewer calls settles it"
    dependences = [] if problem else list(_dependences(runs, evidence, states, limit))
    blocked = closure({d.earlier for d in dependences if d.later == call} for call in range(len(calls)))
    levels = [] if problem else stages(blocked, [call.sent.sender for call in runs.recorded])
    several = [stage for stage in levels if len(stage) > 1]
    together = tuple(
        stage
        for stage in several
        if any(evidence.possible[call] & {*stage} for call in stage) and len(union(flights(session, calls, stage))) > 1
    )
    wall, ghosts = predicted(session, calls, blocked)
    pairs = [(a, b) for stage in together or several for b in stage for a in evidence.possible[b] & {*stage}]
    result = Overlap(
        model=runs.model, requests=len(runs.inputs), outcome="", sentence="", problem=problem, calls=calls,
        dependences=tuple(dependences), stages=tuple(levels), together=together,
        already=tuple(stage for stage in several if stage not in together),
        changes=min((len(evidence.tried[pair]) for pair in pairs), default=0),
        runs=runs.count, callee_requests=runs.asked, seconds=0.0,
        predicted=max(1.0, session.wall / wall) if together else 1.0,
        written=replace(session, ghosts=ghosts) if together else session,
    )  # fmt: skip
    outcome, sentence = _verdict(result)
    notes += [_capital(words) + "." for words in _others(result, states) if words[1:] not in sentence]
    result = replace(result, outcome=outcome, sentence=sentence, notes=tuple(dict.fromkeys(notes)))
    instances = lacking(session, calls, together)
    possible = session.wall / predicted(session, calls, blocked, instances)[0]
    if instances and possible > result.predicted * WORTH:
        lack = " and ".join(f"{n} instances of `{model}`" for model, n in instances.items())
        advice = f"Together, these calls would need {lack} to run at once; `apply` tries that."
        result = replace(result, advice=advice)
    if together and possible >= WORTH:
        result = replace(result, code=code_change(runs, result, blocked))
    return replace(result, runs=runs.count, seconds=monotonic() - began)


def _calls(runs: Runs, session: Session) -> tuple[SentCall, ...]:
    """Match each recorded call with its span: the n-th call to a callee has its n-th span."""
    roots = [span.id for span in session.spans if not span.parent]
    spans: defaultdict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in sorted(session.spans, key=lambda span: -span.sent):
        if span.parent in roots:
            spans[roots.index(span.parent), span.model].append(span)
    out = []
    for sent in (call.sent for call in runs.recorded):
        root = sent.sender[-1] if sent.sender else 0
        request = root if isinstance(root, int) else 0
        own, line = spans[request, sent.model].pop() if spans[request, sent.model] else None, None
        if own is not None and own.line:
            source = session.sources[own.source - 1]
            text = source.text.splitlines()[own.line - 1 : own.line]
            line = CodeLine(source.name, own.line, "", "".join(text).strip())
        out.append(SentCall(sent.model, request, own.id if own is not None else 0, line))
    return tuple(out)


def _checked(runs: Runs, notes: list[str]) -> str:
    """Run again with the recorded answers; return why the analysis is impossible, or an empty string."""
    if errors := [r.error for kept in runs.responses for r in kept if r.error is not None]:
        return f"a request fails: {first_line(errors[0])}; give inputs that it answers"
    try:
        return _replayed(runs, notes, _CHANCE) if len(runs.recorded) > 1 else ""
    except ExhaustedError:
        return f"running `{runs.model}` again takes longer than the limit of {SECONDS:.0f} s; give a smaller request"


def _replayed(runs: Runs, notes: list[str], cause: str) -> str:
    replay = runs.replay()
    if not equal(runs.responses, replay.responses):
        notes.append(f"`{runs.model}` answers differently from run to run with the same answers of its callees")
    return f"with the same answers, what `{runs.model}` sends depends on {cause}" if runs.compared(replay) else ""


def _evidence(runs: Runs) -> Evidence:
    """Return the possible dependences before any change: on each answer that came before the call was sent."""
    evidence = Evidence([set() for _ in runs.recorded], [set() for _ in runs.recorded])
    for number, later in enumerate(runs.recorded):
        sequence = later.call.sequence[0], later.sent.model
        for place, earlier in enumerate(runs.recorded[:number]):
            if earlier.sent.sender == later.sent.sender and earlier.first < later.came:
                in_order = sequence[0] and sequence == (earlier.call.sequence[0], earlier.sent.model)
                (evidence.ordered if in_order else evidence.possible)[number].add(place)
    return evidence


def _try_failures(runs: Runs, calls: Sequence[SentCall], evidence: Evidence, notes: list[str]) -> None:
    """Make the first call of each line fail, and failed calls succeed; note the calls that disappear or appear."""

    def run(group: set[int], change: int) -> RunDifference | None:
        difference = runs.changed(group, change)
        assert difference is not None
        result = f"if `{calls[number].model}` {'succeeds' if number in failed else 'fails'}"
        if difference.missing and number not in failed:
            notes.append(f"{result}, {_listed(calls[n].model for n in sorted(difference.missing))} is not sent")
            difference = difference._replace(missing=set())
        if difference.added:
            notes.append(f"{result}, {_listed(difference.added)} is sent")
        return difference

    failed = {n for n, call in enumerate(runs.recorded) if any(r.error is not None for r in call.responses)}
    first = {n if n in failed else (call.model, call.line): n for n, call in reversed([*enumerate(calls)])}
    for number in sorted(first.values())[:_FAILURES]:
        try_change(evidence, ERROR, {number}, run)


def _dependences(runs: Runs, evidence: Evidence, states: CalleeStates, limit: str) -> Iterator[Dependence]:
    """Return the dependences between calls; a pair without one was tried often enough and showed none."""
    for later, before in enumerate(evidence.ancestors()):
        for earlier in sorted(evidence.possible[later] | evidence.ordered[later]):
            responses = runs.recorded[earlier].responses
            if (earlier, later) in evidence.found:
                change, inputs, together = evidence.found[earlier, later]
                dtypes = [array.dtype for r in responses for array in r.outputs.values()]
                reason = name_of(change, *dtypes[:1]) + f", {together} answers together" * (together > 1)
                yield Dependence(earlier, later, "data" if inputs else "control", reason, inputs)
            elif earlier in evidence.ordered[later]:
                yield Dependence(earlier, later, "sequence")
            elif earlier not in before:
                models = {runs.recorded[earlier].sent.model, runs.recorded[later].sent.model}
                needed, why = 1 if any(r.error is not None for r in responses) else ENOUGH, ""
                if len(models) == 1 and models <= states.stateful:
                    yield Dependence(earlier, later, "state", f"{_listed(models)} keeps state")
                elif keeping := _listed(models & states.stateful):
                    why = f"{keeping} keeps state that both may use; its code settles it"
                elif unasked := _listed(models & states.unasked):
                    why = f"no time was left to ask {unasked} again, which may keep state; a smaller request settles it"
                elif models <= states.varying:
                    why = f"{_listed(models)} answered equal requests differently; stubs settle it"
                elif len(evidence.tried[earlier, later]) < needed:
                    why = limit or _STOPS
                if why:
                    yield Dependence(earlier, later, "unknown", why)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _listed(models: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in dict.fromkeys(models))


def named(calls: Sequence[SentCall], group: Iterable[int]) -> str:
    """Name calls: ```a` and 3 calls of `b```."""
    words = calls_of([calls[n] for n in group])
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _lines(calls: Sequence[SentCall], group: Iterable[int]) -> str:
    lines = sorted({line.line for n in group if (line := calls[n].line) is not None})
    return f" (line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))})" if lines else ""


def _statement(result: Overlap, dependences: Sequence[Dependence]) -> str:
    """Explain the first of several dependences, and count the others."""
    first = dependences[0]
    statement = _STATEMENTS[first.kind].format(
        earlier=result.calls[first.earlier], later=result.calls[first.later], reason=first.reason,
        needs="may need" if "together" in first.reason else "needs",
        inputs=" and ".join(name if name == OPTIONS else f"input `{name}`" for name in first.inputs),
    )  # fmt: skip
    return statement + f" (and {len(dependences) - 1} more such pairs)" * (len(dependences) > 1)


def _verdict(result: Overlap) -> tuple[str, str]:
    """Return the outcome, and the sentence that states it."""
    model, calls = f"`{result.model}`", result.calls
    if result.problem:
        return "unknown", f"Unknown: {result.problem}."
    if max(Counter(call.request for call in calls).values(), default=0) < 2:
        return "independent", f"{model} sends one call, or none: there is nothing that could run beside it."
    if result.together:
        spans = {group: flights(result.written, calls, group) for group in result.together}
        group = max(spans, key=lambda group: total(union(spans[group])))
        apart = "one after the other" if len(union(spans[group])) == len(group) else "not all at once"
        wall, speedup = result.written.wall, times(result.predicted)
        gain = f"predicted {time_of(wall / result.predicted)} instead of {time_of(wall)} for the run ({speedup}×)"
        changes = f"{result.changes} changes" if result.changes != 1 else "one change"
        return "independent", (
            f"{model} sends {named(calls, group)}{_lines(calls, group)} {apart}. No dependence between them was seen "
            f"in {changes} of each answer: together, {gain if speedup != '1.0' else 'no gain is predicted'}."
        )
    if result.already:
        already = " and ".join(named(calls, group) + " together" for group in result.already[:3])
        return "independent", f"{model} already runs {already}; no other call was shown to be able to start earlier."
    for outcome in "unknown", "dependent", "control":
        if dependences := [dependence for dependence in result.dependences if dependence.outcome == outcome]:
            beginning = "" if outcome == "unknown" else f"No call of {model} could start earlier: "
            return outcome, _capital(f"{beginning}{_statement(result, dependences)}.")
    return "independent", f"No dependence between the calls of {model} was seen; they have different senders."


def _others(result: Overlap, states: CalleeStates) -> Iterator[str]:
    """Describe the pairs of calls that the sentence leaves out, except for data and control dependences."""
    if states.varying:
        yield (
            f"{_listed(sorted(states.varying))} answered equal requests differently (by chance, or because of state): "
            "whether the order of these calls matters is unknown, and equal answers cannot be proven"
        )
    if states.stateful:
        yield f"the answers of {_listed(sorted(states.stateful))} depend on earlier requests (state)"
    for kind in "sequence", "state", "unknown":
        if dependences := [dependence for dependence in result.dependences if dependence.kind == kind]:
            yield _statement(result, dependences)
