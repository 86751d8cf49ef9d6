"""`overlap`: which calls of a model could be in flight together, by counterfactual replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

from bls_notebook.engine.errors import BLSError
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import Span
from bls_notebook.profiling.sync_vs_async import Inputs, alone, check_numbers, inputs_of_each
from bls_notebook.records.raw_events import CodeLine
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.repository import ModelRepository, current_repository

from .callees import CalleeStates, callee_states
from .counterfactual import RUNS, SECONDS, ExhaustedError, RecordedCall, Runs, equal
from .evidence import ENOUGH, Evidence, closure, explore, members, stages
from .findings import LITTLE, WORTH, advice, predicted, sentence, together_or_not
from .perturbation import CHANGES, ERROR, name_of
from .proof import code_change, proven
from .records import Dependence, Overlap, SentCall

_FAILURES = 6  # calls whose failure is tried


def overlap(
    model: str,
    inputs: Inputs | Sequence[Inputs],
    n: int = 1,
    *,
    repeat: int | None = None,
    apply: bool = False,
    repo: ModelRepository | None = None,
) -> Overlap:
    """Find which calls of a model's `execute` are independent, and what running them together would bring.

    The model runs with its real callees, and then again with the kept answers, some of them changed: other
    inputs of a later call show a data dependence, a missing call a control dependence. Callees are asked
    again, too, to find those with state. What else the model does, such as writing files, happens in each of
    its runs: at most 50 within 10 s, and some more to try the change.

    Parameters
    ----------
    model : str
        Name of the model whose calls are examined.
    inputs : mapping of str to array, or sequence of these
        As `ModelRepository.infer` takes them; of a sequence, the requests take one after the other.
    n : int
        Number of requests, sent one after the other.
    repeat : int, optional
        How often the changed model is measured with `apply`; 5 by default.
    apply : bool
        Run the changed model with its real callees, too: `code.proof` says whether its answers are equal and
        it is faster. No file is written; the model as it is written serves afterwards.
    repo : ModelRepository, optional
        By default the current one.

    Returns
    -------
    Overlap
        `sentence` says it; `code` is the change, if there is a gain.

    Raises
    ------
    BLSError
        A bad argument, a model that is not loaded, or one that has no `execute` in Python.

    Examples
    --------
    >>> found = bls.overlap("postcode", {"IMAGES": images})
    >>> print(found.sentence)
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
        found = _overlap(runs)
        if apply and found.code is not None and found.code.source:
            found = proven(runs, found, repeat or 5)
    return found


def _overlap(runs: Runs) -> Overlap:
    began = monotonic()
    session = runs.record()
    recorded, calls = runs.recorded, _calls(runs.recorded, session)
    problem, notes = _replayed(runs)
    evidence, states, limit = _evidence(recorded), CalleeStates(), ""
    if not problem and any(evidence.possible):
        try:
            explore(evidence, range(CHANGES), runs.changed)
            notes += _failures(runs, evidence)
        except ExhaustedError:
            limit = f"the limit of {RUNS} runs" if runs.count >= RUNS else f"the limit of {SECONDS:.0f} s"
            limit += " was reached before its answer was changed often enough"
        runs.allow(2, SECONDS)
        runs.changed((1 << len(calls)) - 1, 0)  # so that callees which read the model's files are found, too
        states = callee_states(runs)
        if runs.compared(runs.replay()):
            problem = f"what `{runs.model}` sends depends on its earlier runs (a file, or state elsewhere)"
    dependences = [] if problem else _dependences(recorded, evidence, states, limit)
    direct = [0] * len(calls)
    for each in dependences:
        direct[each.later] |= 1 << each.earlier
    blocked = closure(direct)
    levels = [] if problem else stages(blocked, [each.sent.sender for each in recorded])
    together, already = together_or_not(session, calls, levels)
    wall, ghosts = predicted(session, calls, blocked)
    pairs = [(one, other) for group in together for one in group for other in group if one < other]
    tried = [evidence.tried(*pair) for pair in pairs if evidence.possible[pair[1]] >> pair[0] & 1]
    if states.unasked:
        notes.append(f"no time was left to ask {_listed(sorted(states.unasked))} again, which may have state")
    found = Overlap(
        model=runs.model,
        requests=len(runs.inputs),
        sentence="",
        problem=problem,
        calls=calls,
        dependences=tuple(dependences),
        stages=tuple(map(tuple, levels)),
        together=tuple(together),
        already=tuple(already),
        changes=min(tried, default=0),
        runs=runs.count,
        callee_requests=runs.asked,
        seconds=0.0,
        predicted=max(1.0, session.wall / wall) if together else 1.0,
        written=replace(session, ghosts=ghosts) if together else session,
        varying=tuple(sorted(states.varying)),
        stateful=tuple(sorted(states.stateful)),
        notes=tuple(dict.fromkeys(notes)),
        advice=advice(session, calls, blocked, together) if together else "",
    )
    found = replace(found, sentence=sentence(found))
    longest = max((span.duration for span in session.spans if span.parent), default=0)
    if together and found.predicted >= WORTH and longest >= LITTLE:
        found = replace(found, code=code_change(runs, found, blocked))
    return replace(found, runs=runs.count, seconds=monotonic() - began)


def _calls(recorded: Sequence[RecordedCall], session: Session) -> tuple[SentCall, ...]:
    """Return the calls with their spans: those of the same number among the calls to a callee."""
    roots = [span.id for span in session.spans if not span.parent]
    spans: dict[tuple[int, str], list[Span]] = {}
    for span in sorted(session.spans, key=lambda span: span.sent):
        if span.parent in roots:
            spans.setdefault((roots.index(span.parent), span.model), []).append(span)
    out = []
    for each in recorded:
        root = each.sent.sender[-1] if each.sent.sender else 0
        request = root if isinstance(root, int) else 0
        same_callee = spans.get((request, each.sent.model), [])
        found = same_callee.pop(0) if same_callee else None
        line = None
        if found is not None and found.line:
            source = session.sources[found.source - 1]
            text = source.text.splitlines()[found.line - 1 : found.line]
            line = CodeLine(source.name, found.line, "", "".join(text).strip())
        out.append(SentCall(each.sent.model, request, found.id if found is not None else 0, line))
    return tuple(out)


def _replayed(runs: Runs) -> tuple[str, list[str]]:
    """Run twice with the kept answers; say why nothing can be known, and what else a reader should know."""
    errors = [r.error for kept in runs.base.responses for r in kept if r.error is not None]
    if errors:
        return f"a request fails: {first_line(errors[0])}", []
    if len(runs.recorded) < 2:
        return "", []
    first, second = runs.replay(), runs.replay()
    if runs.compared(first) or runs.compared(second):
        return f"with the same answers `{runs.model}` sends other calls (chance, time, or state)", []
    if not equal(runs.base.responses, first.responses) or not equal(first.responses, second.responses):
        return "", [f"`{runs.model}` answers differently from run to run with the same answers of its callees"]
    return "", []


def _evidence(recorded: Sequence[RecordedCall]) -> Evidence:
    """Return which calls may depend on which before any change: those sent after an answer came."""
    possible, ordered = [0] * len(recorded), [0] * len(recorded)
    for number, later in enumerate(recorded):
        for place, earlier in enumerate(recorded[:number]):
            if earlier.sent.sender == later.sent.sender and earlier.first < later.came:
                identity = later.call.sequence[0]
                both = (earlier.call.sequence[0], earlier.sent.model) == (identity, later.sent.model)
                (ordered if identity and both else possible)[number] |= 1 << place
    return Evidence(possible, ordered)


def _failures(runs: Runs, evidence: Evidence) -> list[str]:
    """Let calls fail, and failed ones succeed; say what is sent, or not sent, then."""
    notes = []
    for number, each in enumerate(runs.recorded[:_FAILURES]):
        seen = runs.changed(1 << number, ERROR)
        assert seen is not None
        fails = each.responses and each.responses[0].error is None
        result = f"if `{each.sent.model}` {'fails' if fails else 'succeeds'}"
        if fails and seen.missing:
            lost = [runs.recorded[later].sent.model for later in members(seen.missing)]
            notes.append(f"{result}, {_listed(lost)} is not sent")
            seen = seen._replace(missing=0)
        if seen.added:
            notes.append(f"{result}, {_listed(seen.added)} is sent")
        evidence.learn(ERROR, seen, evidence.open())
    return notes


def _listed(models: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in dict.fromkeys(models))


def _dependences(
    recorded: Sequence[RecordedCall], evidence: Evidence, states: CalleeStates, limit: str
) -> list[Dependence]:
    """Return what is known, and what is not known, of pairs of calls."""
    out: list[Dependence] = []
    uncertain = states.varying | states.stateful
    for later, before in enumerate(evidence.ancestors()):
        for earlier in members(evidence.possible[later] | evidence.ordered[later]):
            one, other = recorded[earlier].sent.model, recorded[later].sent.model
            responses = recorded[earlier].responses
            if (earlier, later) in evidence.found:
                kind, change = evidence.found[earlier, later]
                dtypes = [array.dtype for r in responses for array in r.outputs.values()]
                out.append(Dependence(earlier, later, kind, name_of(change, *dtypes[:1])))
            elif evidence.ordered[later] >> earlier & 1:
                out.append(Dependence(earlier, later, "sequence"))
            elif not before >> earlier & 1:
                needed = 1 if any(r.error is not None for r in responses) else ENOUGH
                if {one, other} & states.stateful or (one in uncertain and (one == other or other in uncertain)):
                    out.append(Dependence(earlier, later, "state"))
                elif evidence.tried(earlier, later) < needed:
                    why = limit or "with its changed answers the model did not get that far"
                    out.append(Dependence(earlier, later, "unknown", why))
    return out
