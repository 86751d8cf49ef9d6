"""`overlap`: find independent calls by counterfactual replay, predict the gain, and propose a changed program."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic

from bls_notebook.engine import BLSError
from bls_notebook.extending import operation
from bls_notebook.profiling.code_lines import CodeLine
from bls_notebook.profiling.intervals import union
from bls_notebook.profiling.records.spans import Span
from bls_notebook.profiling.records.verdicts import calls_of, listed, time_of, times
from bls_notebook.profiling.session import Session
from bls_notebook.profiling.sync_vs_async import Inputs, alone, check_numbers, inputs_of_each
from bls_notebook.records import first_line
from bls_notebook.repository import ModelRepository, current_repository

from .batches import with_batch
from .counterfactual import RUNS, ExhaustedError, Runs, callee_states
from .evidence import OPTIONS, SEQUENCE, TIMEOUT, DependenceEvidence, Evidence, closure, explore
from .named_values import NamedValue
from .perturbation import CHANGES, KeptAnswer, equal, name_of
from .proof import code_change, proven
from .records import Dependence, Overlap, SentCall
from .schedule import WORTH, flights, lacking, longest, predicted, stages

_STREAM = (
    "the first response of `{}` then comes after all gathered calls: to stream, send all calls by async_exec, and "
    "await them one by one"
)
_CHANCE = "chance, time, or state; fix its seed or clock"
# Chance may give two equal runs before a third that differs.
_STATE = "its earlier runs (a file, or state elsewhere), or on chance; give each run the same state, or fix its seed"
_STOPS = "changed answers stop the model or change how often it calls; drop its check to settle it"
_EMPTY = "it has no values that could be changed; an input for which it has some settles it"
_AS_PREDICTED = 0.9  # of the predicted speedup: a change that gains less has a note
_PROMPT_RUNS = 3  # on a busy machine, even an answer that is given at once can come after a short time limit
_STATES = {  # why the order of two calls may matter, by the kind of a callee
    "state": "the answers of {} depend on earlier requests (state); its code settles what they have in common",
    "unasked": "no time was left to ask {} again, which may keep state; a smaller request settles it",
    "chance": "{} answered equal requests differently, by chance or because of state; stubs settle it",
}


@operation
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

    The model runs with its real callees, and then again with the recorded answers, some of them changed: other
    inputs of a later call show a data dependence, a missing call a control dependence. Callees are asked again,
    too, and their code is read, to find those with state. Numbers change up to 1,000-fold, and beyond those in the
    model's code, up to 10,000,000. Each run repeats the model's side effects, such as writing files. There are at most
    100 runs within 10 s, and up to 20 more to try the change; a run that takes longer is cancelled.

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
        faster. No file is written, and the loaded model keeps serving.
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
    with alone("overlap"), runs.host.uncounted():
        result = _overlap(runs)
        if apply and result.code is not None and result.code.source:
            result = proven(runs, result, repeat or 5)
    return result


def _overlap(runs: Runs) -> Overlap:
    began, session = monotonic(), runs.record()
    calls, evidence, notes = _calls(runs, session), _evidence(runs), list[str]()
    problem, limit, states = _checked(runs, notes), "", dict[str, str]()
    if not problem:
        with suppress(ExhaustedError):
            _find_reactions(runs, evidence)
    if not problem and any(evidence.possible):
        try:
            with suppress(ExhaustedError):  # so that callees which read files of the model answer differently, too
                runs.changed(set().union(*evidence.possible), 0)
            states = callee_states(runs)
            problem = _replayed(runs, notes, _STATE)
            if not problem:
                explore(evidence, range(len(CHANGES) + len(runs.named)), runs.changed)
                problem = _replayed(runs, notes, _CHANCE) if evidence.found else ""
        except ExhaustedError:
            limit = f"the limit of {RUNS} runs" if runs.runs >= RUNS else f"the limit of {runs.seconds:.0f} s"
            limit += " was reached before its answer was changed often enough; a request with fewer calls settles it"
    dependences = () if problem else tuple(_dependences(runs, calls, evidence, states, limit))
    blocked = closure([(d.earlier, d.later) for d in dependences], len(calls))
    levels = () if problem else stages(blocked, [call.sent.sender for call in runs.recorded])
    pairs = {stage: [(a, b) for b in stage for a in evidence.possible[b] & {*stage}] for stage in levels}
    together = tuple(stage for stage in levels if pairs[stage] and len(union(flights(session, calls, stage))) > 1)
    tried = [len(evidence.tried[pair]) for stage in together for pair in pairs[stage]]
    wall, ghosts = predicted(session, calls, blocked)
    result = Overlap(
        model=runs.model, requests=len(runs.inputs), outcome="", sentence="", problem=problem, calls=calls,
        dependences=dependences, stages=levels, together=together, changes=min(tried, default=0), runs=0,
        callee_requests=runs.asked, seconds=0.0, predicted=max(1.0, session.wall / wall) if together else 1.0,
        written=replace(session, ghosts=ghosts) if together else session, uncalled=tuple(runs.uncalled()),
    )  # fmt: skip
    outcome, sentence = _verdict(result)
    notes += [words for words in _others(result, states) if words[1:] not in sentence]
    if result.predicted >= WORTH:
        result = replace(result, code=code_change(runs, result, blocked))
        if sum(bool(response.outputs) for kept in runs.responses for response in kept) > len(runs.inputs):
            notes.append(_STREAM.format(runs.model))
    if result.code is not None and 0 < (gain := result.code.predicted) < _AS_PREDICTED * result.predicted:
        notes.append(f"the change has only some of these calls in flight together: predicted {times(gain)}×")
    notes = [f"{_capital(words)}." for words in dict.fromkeys(notes)]
    result = with_batch(runs, replace(result, outcome=outcome, sentence=sentence, notes=tuple(notes)))
    return replace(result, runs=runs.runs, callee_requests=runs.asked, seconds=monotonic() - began)


def _calls(runs: Runs, session: Session) -> tuple[SentCall, ...]:
    """Match each recorded call with its span: the n-th call to a callee has its n-th span."""
    roots = [span.id for span in session.spans if not span.parent]
    spans: defaultdict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in sorted(session.spans, key=lambda span: -span.sent):
        if span.parent in roots:
            spans[roots.index(span.parent), span.model].append(span)
    out = []
    for sent in (call.sent for call in runs.recorded):
        request = max(0, sent.request)
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
        limit = f"the limit of {runs.seconds:.0f} s"
        return f"running `{runs.model}` again takes longer than {limit}; give a smaller request"


def _replayed(runs: Runs, notes: list[str], cause: str) -> str:
    replay = runs.marked()
    if not equal(runs.responses, replay.responses):
        notes.append(f"`{runs.model}` answers differently from run to run with the same answers of its callees")
    seen = runs.compared(replay)
    return f"with the same answers, what `{runs.model}` sends depends on {cause}" if seen.changed or seen.added else ""


def _evidence(runs: Runs) -> Evidence:
    """Return the possible dependences before any change: on each answer that came before the call was sent."""
    evidence = Evidence([set() for _ in runs.recorded])
    for number, later in enumerate(runs.recorded):
        sequence = later.call.sequence[0], later.sent.model
        for place, earlier in enumerate(runs.recorded[:number]):
            if earlier.sent.sender == later.sent.sender and earlier.first < later.came:
                evidence.possible[number].add(place)
                if sequence[0] and sequence == (earlier.call.sequence[0], earlier.sent.model):
                    evidence.found[place, number] = DependenceEvidence(SEQUENCE)
    return evidence


def _find_reactions(runs: Runs, evidence: Evidence) -> None:
    """Find calls that are sent only because an earlier one has not been answered in time."""
    pairs = [
        (place, number)
        for number, later in enumerate(runs.recorded)
        for place, earlier in enumerate(runs.recorded[:number])
        if earlier.sent.sender == later.sent.sender and later.came < earlier.first
    ]
    for _ in range(_PROMPT_RUNS if pairs else 0):
        seen = runs.compared(runs.replay(prompt={place for place, _ in pairs}))
        for place, number in pairs:
            if number in seen.changed:
                evidence.possible[number].add(place)
                evidence.found[place, number] = DependenceEvidence(TIMEOUT, seen.changed[number])


def _dependences(
    runs: Runs, calls: Sequence[SentCall], evidence: Evidence, states: Mapping[str, str], limit: str
) -> Iterator[Dependence]:
    """Return the dependences between calls; a pair without one was tried often enough and showed none."""
    lines = [runs.number_of(call.line) for call in calls]
    explained = {(lines[a], lines[b]) for a, b in evidence.found}
    for b, before in enumerate(evidence.ancestors()):
        for a in sorted(evidence.possible[b]):
            earlier, later, responses = calls[a], calls[b], runs.recorded[a].responses
            if (a, b) in evidence.found:
                yield _seen(a, b, (earlier, later), evidence.found[a, b], responses, runs.named)
            elif a not in before:
                models = dict.fromkeys([earlier.model, later.model])
                doubts = {kind: _listed(m for m in models if states.get(m) == kind) for kind in _STATES}
                if doubts["chance"] != _listed(models):  # chance that only one of them depends on allows any order
                    doubts["chance"] = ""
                why = [text.format(doubts[kind]) for kind, text in _STATES.items() if doubts[kind]]
                why += filter(None, [runs.kept_between(earlier.model, later.model)])
                has_values = any(r.error is not None or any(a.size for a in r.outputs.values()) for r in responses)
                stops = _STOPS if has_values else _EMPTY
                needed = 1 if any(response.error is not None for response in responses) else evidence.needed(a, b)
                if doubts["state"] and len(models) == 1:
                    words = f"the answers of {later} depend on its earlier requests (state), so their order matters"
                    yield Dependence(a, b, "dependent", words)
                elif not why and len(evidence.tried[a, b]) >= needed:
                    places = lines[a], lines[b]
                    doubt = runs.unreached(*places)
                    first, second = ({c.request for c, n in zip(calls, lines, strict=True) if n == at} for at in places)
                    if not doubt and first - second and runs.may_control(*places):
                        doubt = f"after it, another request sent no call in line {lines[b]}"
                    if not doubt and places not in explained and runs.uses(*places):
                        doubt = f"by the code, line {lines[b]} may depend on it, but no change altered its request"
                    if doubt:
                        words = f"whether {later} needs the answer of {earlier} is unknown: {doubt}"
                        yield Dependence(a, b, "unknown", words)
                elif why or len(evidence.tried[a, b]) < needed:
                    words = f"whether {later} needs the answer of {earlier} is unknown: {(*why, limit or stops)[0]}"
                    yield Dependence(a, b, "unknown", words)


def _seen(
    a: int,
    b: int,
    calls: tuple[SentCall, SentCall],
    evidence: DependenceEvidence,
    answer: KeptAnswer,
    named_values: Sequence[NamedValue],
) -> Dependence:
    """Return a dependence that a run showed, or that a sequence implies."""
    (earlier, later), (change, inputs, together) = calls, evidence
    if change == SEQUENCE:
        order = f"{later} belongs to the same sequence as {earlier}, and requests of one sequence keep their order"
        return Dependence(a, b, "dependent", order)
    if change == TIMEOUT:
        if inputs:
            return Dependence(a, b, "dependent", f"{later} depends on whether {earlier} is answered in time", inputs)
        reaction = f"{later} is sent only if {earlier} is not answered in time: answered at once, it was not sent"
        return Dependence(a, b, "control", reaction)
    several = f", {together} answers together" if together > 1 else ""
    how = f"with that changed ({name_of(change, answer, named_values)}{several})"
    if not inputs:
        control = f"whether {later} is sent depends on the answer of {earlier}: {how}, it was not sent"
        return Dependence(a, b, "control", control)
    names = " and ".join(name if name == OPTIONS else f"input `{name}`" for name in inputs)
    needs = "may need" if together > 1 else "needs"
    return Dependence(
        a, b, "dependent", f"{later} {needs} the answer of {earlier}: {how}, {names} changed, too", inputs
    )


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _listed(models: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in dict.fromkeys(models))


def named(calls: Sequence[SentCall], group: Iterable[int]) -> str:
    """Name calls: ```a` and 3 calls of `b```."""
    return listed(calls_of([calls[n] for n in group]))


def _lines(calls: Sequence[SentCall], group: Iterable[int]) -> str:
    lines = sorted({line.line for n in group if (line := calls[n].line) is not None})
    return f" (line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))})" if lines else ""


def _statement(dependences: Sequence[Dependence]) -> str:
    """Explain the first of several dependences, and count the others."""
    return dependences[0].reason + (f" (and {len(dependences) - 1} more such pairs)" if len(dependences) > 1 else "")


def _verdict(result: Overlap) -> tuple[str, str]:
    """Return the outcome, and the sentence that states it."""
    model, calls = f"`{result.model}`", result.calls
    if result.problem:
        return "unknown", f"Unknown: {result.problem}."
    if max(Counter(call.request for call in calls).values(), default=0) < 2:
        return "independent", f"{model} sends {'one call' if calls else 'no calls'}: there is nothing to run together."
    if result.together:
        group = longest(result)
        apart = len(union(flights(result.written, calls, group))) == len(group)
        how = "one after the other" if apart else "not all at once"
        wall, speedup = result.written.wall, times(result.predicted)
        gain = f"predicted {time_of(wall / result.predicted)} instead of {time_of(wall)} for the run ({speedup}×)"
        gain = gain if speedup != "1.0" else "no gain is predicted"
        few = "".join(f"; {n} calls queue for fewer instances of `{model}`" for model, n in lacking(result).items())
        others = " and with the independent calls of other stages" if len(result.together) > 1 else ""
        changes = f"{result.changes} changes" if result.changes != 1 else "one change"
        return "independent", (
            f"{model} sends {named(calls, group)}{_lines(calls, group)} {how}. No dependence between them was seen "
            f"in {changes} of each answer: together{others}, {gain}{few}."
        )
    if result.already:
        already = " and ".join(named(calls, group) + " together" for group in result.already[:3])
        return "independent", f"{model} already runs {already}; no other call was shown to be able to start earlier."
    for outcome in "unknown", "dependent", "control":
        if dependences := [dependence for dependence in result.dependences if dependence.outcome == outcome]:
            beginning = "" if outcome == "unknown" else f"No call of {model} could start earlier: "
            return outcome, _capital(f"{beginning}{_statement(dependences)}.")
    return "independent", f"No dependence between the calls of {model} was seen; they have different senders."


def _others(result: Overlap, states: Mapping[str, str]) -> Iterator[str]:
    """Describe callees with state or chance, and pairs of calls whose dependence no run showed."""
    if result.uncalled:
        be, them = ("is", "it") if len(result.uncalled) == 1 else ("are", "them")
        yield f"{_listed(result.uncalled)} {be} named in the code, but this request did not call {them}"
    for kind, words in _STATES.items():
        if models := _listed(sorted(model for model in states if states[model] == kind)):
            yield words.format(models)
    for outcome in "dependent", "unknown":
        if dependences := [d for d in result.dependences if d.outcome == outcome and not d.inputs]:
            yield _statement(dependences)
