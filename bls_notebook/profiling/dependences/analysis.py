"""`overlap`: which calls of a model could be in flight together, what that would bring, and the change to write.

Calls are found dependent by counterfactual replay. The changed program is tried with the kept answers, and with
`apply` proven with the real callees: equal requests and answers, calls that overlap.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from time import monotonic
from typing import Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.profiling.analysis.queue_simulation import capacities, key_of
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import Ghost, Span
from bls_notebook.profiling.records.verdicts import calls_of, give_or_take, time_of, times
from bls_notebook.profiling.sync_vs_async import Inputs, alone, check_numbers, inputs_of_each
from bls_notebook.records.intervals import gaps, total, union
from bls_notebook.records.measurements import ratio, relative_error
from bls_notebook.records.raw_events import CodeLine
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.repository import ModelRepository, current_repository
from bls_notebook.repository.source.definition_changes import numbered_change

from .counterfactual import RUNS, SECONDS, CalleeStates, ExhaustedError, ObservedRun, Runs, callee_states, equal
from .evidence import ENOUGH, Evidence, closure, explore, stages
from .perturbation import CHANGES, ERROR, name_of
from .records import CodeChange, Dependence, Overlap, SentCall

_FAILURES = 6  # calls whose failure is tried
_WORTH = 1.1  # the least speedup that is worth a change
_LITTLE = 200_000  # ns of a call, below which passing it to another thread takes a large part of its time
_EARLIER = 0.01  # of its caller's time, by which a call could begin earlier
_PLACES = 8  # of a program that are tried
_NO_LIBCST = "writing it needs LibCST, which is not installed: pip install 'bls_notebook[overlap]'"


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
    its runs: at most 50 within 10 s, and some more to try the change. A run that takes longer is cancelled.

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
    recorded, calls = runs.recorded, _calls(runs, session)
    evidence, states, limit, notes = _evidence(runs), CalleeStates(set(), set(), set()), "", list[str]()
    try:
        problem = _replayed(runs, notes)
    except ExhaustedError:
        problem = f"running `{runs.model}` again takes longer than the limit of {SECONDS:.0f} s"
    if not problem and any(evidence.possible):
        try:
            explore(evidence, range(CHANGES), runs.changed)
            _try_failures(runs, evidence, notes)
        except ExhaustedError:
            limit = f"the limit of {RUNS} runs" if runs.count >= RUNS else f"the limit of {SECONDS:.0f} s"
            limit += " was reached before its answer was changed often enough"
        runs.allow(2, SECONDS)
        with suppress(ExhaustedError):
            if not runs.cancelled:  # so that callees which read the model's files are found, too
                runs.changed(set(range(len(calls))), 0)
            states = callee_states(runs)
            if runs.compared(runs.replay()):
                problem = f"what `{runs.model}` sends depends on its earlier runs (a file, or state elsewhere)"
    dependences = [] if problem else _dependences(runs, evidence, states, limit)
    direct: list[set[int]] = [set() for _ in calls]
    for each in dependences:
        direct[each.later].add(each.earlier)
    blocked = closure(direct)
    levels = [] if problem else stages(blocked, [each.sent.sender for each in recorded])
    several = [tuple(stage) for stage in levels if len(stage) > 1]
    together = tuple(stage for stage in several if len(union(_flights(session, calls, stage))) != 1)
    wall, ghosts = _predicted(session, calls, blocked)
    pairs = [(one, other) for group in together for one in group for other in group if one < other]
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
        together=together,
        already=tuple(stage for stage in several if stage not in together),
        changes=min((evidence.tried[pair] for pair in pairs if pair[0] in evidence.possible[pair[1]]), default=0),
        runs=runs.count,
        callee_requests=runs.asked,
        seconds=0.0,
        predicted=max(1.0, session.wall / wall) if together else 1.0,
        written=replace(session, ghosts=ghosts) if together else session,
        varying=tuple(sorted(states.varying)),
        stateful=tuple(sorted(states.stateful)),
        notes=tuple(dict.fromkeys(notes)),
        advice=_advice(session, calls, blocked, together) if together else "",
    )
    found = replace(found, sentence=" ".join([_verdict(found), *_doubts(found)]))
    longest = max((span.duration for span in session.spans if span.parent), default=0)
    if together and found.predicted >= _WORTH and longest >= _LITTLE:
        found = replace(found, code=_code_change(runs, found, blocked))
    return replace(found, runs=runs.count, seconds=monotonic() - began)


# -- the evidence -------------------------------------------------------------------------------------


def _calls(runs: Runs, session: Session) -> tuple[SentCall, ...]:
    """Return the calls with their spans: those of the same number among the calls to a callee."""
    roots = [span.id for span in session.spans if not span.parent]
    spans: dict[tuple[int, str], list[Span]] = {}
    for span in sorted(session.spans, key=lambda span: span.sent):
        if span.parent in roots:
            spans.setdefault((roots.index(span.parent), span.model), []).append(span)
    out = []
    for each in runs.recorded:
        root = each.sent.sender[-1] if each.sent.sender else 0
        request = root if isinstance(root, int) else 0
        same_callee = spans.get((request, each.sent.model))
        found = same_callee.pop(0) if same_callee else None
        line = None
        if found is not None and found.line:
            source = session.sources[found.source - 1]
            text = source.text.splitlines()[found.line - 1 : found.line]
            line = CodeLine(source.name, found.line, "", "".join(text).strip())
        out.append(SentCall(each.sent.model, request, found.id if found is not None else 0, line))
    return tuple(out)


def _replayed(runs: Runs, notes: list[str]) -> str:
    """Run twice with the kept answers; return why nothing can be known, empty if something can."""
    errors = [r.error for kept in runs.base.responses for r in kept if r.error is not None]
    if errors:
        return f"a request fails: {first_line(errors[0])}"
    if len(runs.recorded) > 1:
        first, second = runs.replay(), runs.replay()
        if runs.compared(first) or runs.compared(second):
            return f"with the same answers `{runs.model}` sends other calls (chance, time, or state)"
        if not equal(runs.base.responses, first.responses) or not equal(first.responses, second.responses):
            notes.append(f"`{runs.model}` answers differently from run to run with the same answers of its callees")
    return ""


def _evidence(runs: Runs) -> Evidence:
    """Return which calls may depend on which before any change: those sent after an answer came."""
    possible: list[set[int]] = [set() for _ in runs.recorded]
    ordered: list[set[int]] = [set() for _ in runs.recorded]
    for number, later in enumerate(runs.recorded):
        for place, earlier in enumerate(runs.recorded[:number]):
            if earlier.sent.sender == later.sent.sender and earlier.first < later.came:
                identity = later.call.sequence[0]
                both = (earlier.call.sequence[0], earlier.sent.model) == (identity, later.sent.model)
                (ordered if identity and both else possible)[number].add(place)
    return Evidence(possible, ordered)


def _try_failures(runs: Runs, evidence: Evidence, notes: list[str]) -> None:
    """Let calls fail, and failed ones succeed; note what is sent, or not sent, then."""
    for number, each in enumerate(runs.recorded[:_FAILURES]):
        seen = runs.changed({number}, ERROR)
        assert seen is not None
        fails = bool(each.responses) and each.responses[0].error is None
        result = f"if `{each.sent.model}` {'fails' if fails else 'succeeds'}"
        if fails and seen.missing:
            lost = [runs.recorded[later].sent.model for later in sorted(seen.missing)]
            notes.append(f"{result}, {_listed(lost)} is not sent")
            seen = seen._replace(missing=set())
        if seen.added:
            notes.append(f"{result}, {_listed(seen.added)} is sent")
        evidence.learn(ERROR, seen, evidence.open())


def _listed(models: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in dict.fromkeys(models))


def _dependences(runs: Runs, evidence: Evidence, states: CalleeStates, limit: str) -> list[Dependence]:
    """Return what is known, and what is not known, of pairs of calls."""
    out: list[Dependence] = []
    uncertain = states.varying | states.stateful
    for later, before in enumerate(evidence.ancestors()):
        for earlier in sorted(evidence.possible[later] | evidence.ordered[later]):
            one, other = runs.recorded[earlier].sent.model, runs.recorded[later].sent.model
            responses = runs.recorded[earlier].responses
            if (earlier, later) in evidence.found:
                kind, change = evidence.found[earlier, later]
                dtypes = [array.dtype for r in responses for array in r.outputs.values()]
                out.append(Dependence(earlier, later, kind, name_of(change, *dtypes[:1])))
            elif earlier in evidence.ordered[later]:
                out.append(Dependence(earlier, later, "sequence"))
            elif earlier not in before:
                needed = 1 if any(r.error is not None for r in responses) else ENOUGH
                if {one, other} & states.stateful or (one in uncertain and (one == other or other in uncertain)):
                    out.append(Dependence(earlier, later, "state"))
                elif evidence.tried[earlier, later] < needed:
                    why = limit or "with its changed answers the model did not get that far"
                    out.append(Dependence(earlier, later, "unknown", why))
    return out


# -- what it would bring ------------------------------------------------------------------------------


def _flights(session: Session, calls: Sequence[SentCall], group: Iterable[int]) -> list[tuple[int, int]]:
    spans = {span.id: span for span in session.spans}
    return [(span.sent, span.ended) for n in group if (span := spans.get(calls[n].span)) is not None]


def _predicted(
    session: Session, calls: Sequence[SentCall], blocked: Sequence[set[int]], more_instances: bool = False
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
            begin = max([now, *(ends[n] for n in blocked[numbers[child.id]] if n in ends)])
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


def _advice(
    session: Session, calls: Sequence[SentCall], blocked: Sequence[set[int]], together: Sequence[Sequence[int]]
) -> str:
    """Say which callees lack instances for the calls that they would have at once; empty if none does."""
    now, wall = capacities(session), _predicted(session, calls, blocked, more_instances=True)[0]
    if wall * _WORTH > _predicted(session, calls, blocked)[0]:
        return ""
    models = {span.id: key_of(span) for span in session.spans}
    most: Counter[tuple[str, int]] = Counter()
    for group in together:
        most |= Counter(models[calls[n].span] for n in group if calls[n].span in models)
    lacking = [f"`instance_group.count` {n} for `{key[0]}`" for key, n in most.items() if n > now.get(key, 1)]
    return f"With {' and '.join(lacking)}, {times(session.wall / wall)} times as fast is predicted." if lacking else ""


def named(calls: Sequence[SentCall], group: Iterable[int]) -> str:
    """Name calls: ```a` and 3 calls of `b```."""
    words = calls_of([calls[n] for n in group])
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _verdict(overlap: Overlap) -> str:
    """Say which calls could be in flight together."""
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
        little = ", which is about what passing a call to another thread takes" * (at_once < _LITTLE)
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
    """Say what is not known."""
    if overlap.varying:
        yield (
            f"{_listed(overlap.varying)} answered equal requests differently (by chance, or because of state): whether "
            "the order of these calls matters is not known, and equal answers cannot be proven."
        )
    if overlap.stateful:
        yield (
            f"The answers of {_listed(overlap.stateful)} depend on earlier requests (state): the order of its calls "
            "matters."
        )
    if any(each.kind == "sequence" for each in overlap.dependences):
        yield "Requests of one sequence keep their order."
    unknown: dict[str, list[Dependence]] = {}
    for each in overlap.dependences:
        if each.kind == "unknown":
            unknown.setdefault(each.reason, []).append(each)
    for reason, pairs in unknown.items():
        earlier, later = (overlap.calls[n].model for n in (pairs[0].earlier, pairs[0].later))
        more = f" (and of {len(pairs) - 1} more pairs)" * (len(pairs) > 1)
        yield f"Whether `{later}` needs the answer of `{earlier}`{more} is not known: {reason}."


# -- the changed program ------------------------------------------------------------------------------


def _code_change(runs: Runs, overlap: Overlap, blocked: Sequence[set[int]]) -> CodeChange:
    """Return the change that has independent calls in flight together, tried with the kept answers.

    `blocked` has for each call those that it follows, directly or not.
    """
    model = runs.host.ready(runs.model)
    home: Any = next((i.modules for i in (*model.instances, *model.passive) if i.modules is not None), None)
    written = None if home is None else home.written(str(Path(model.directory, "model.py")))
    by_hand = CodeChange(template=_template(overlap))
    if written is None:
        return replace(by_hand, reason="its source is not in a model.py")
    text, place = written
    file = place.label if place.line > 1 else f"{model.name}/{model.version}/model.py"
    folder = runs.repository.record(runs.model).source.removeprefix("cell")
    by_hand = replace(by_hand, file=file, folder=folder)
    try:
        from .program_change import NotSimpleError, changed_program  # LibCST is an extra
    except ImportError:
        return replace(by_hand, reason=_NO_LIBCST)
    try:
        trial = _Trial(runs, blocked)
        places = changed_program(text, ()).places[:_PLACES]
        useful = {each for each in places if trial.gains(changed_program(text, {each}).source)}
        if len(useful) > 1 and not trial.gains(changed_program(text, useful).source):
            useful = {min(useful)}
    except NotSimpleError as error:
        line = f"line {error.line + place.line - 1}: " if error.line else ""
        return replace(by_hand, reason=f"{line}{error}")
    except ExhaustedError:
        return replace(by_hand, reason="trying the changes took too long")
    if not useful:
        other = "its calls are not in consecutive statements, a loop or a comprehension"
        return replace(by_hand, reason=trial.problem or other)
    source = changed_program(text, useful).source
    return CodeChange(file, folder, source, numbered_change("", text, source, place.line))


class _Trial:
    """Runs programs with the kept answers, given in the order of the calls and in the reverse order."""

    def __init__(self, runs: Runs, blocked: Sequence[set[int]]) -> None:
        runs.allow(4 + 2 * _PLACES, SECONDS)
        self.problem = ""  # of the last program that was not good
        self._runs, self._blocked = runs, blocked
        self._written = runs.replay(hold="last")

    def gains(self, source: str) -> bool:
        """Whether a program does the same, with more calls in flight together and only independent ones."""
        pairs: set[tuple[int, int]] = set()
        for hold in ("first", "last"):
            try:
                run = self._runs.replay(source=source, hold=hold)
            except BLSError as error:
                self.problem = f"the changed model cannot be loaded: {first_line(str(error))}"
                return False
            if Counter(sent[:3] for sent in run.calls) != Counter(sent[:3] for sent in self._written.calls):
                self.problem = "with its calls gathered, the model sends other requests"
            elif not equal(run.responses, self._written.responses):
                self.problem = "with its calls gathered, its answer is another one, or depends on their order"
            elif any(earlier in self._blocked[later] for earlier, later in _pairs(run)):
                self.problem = "gathered, calls would run together that were not shown to be independent"
            else:
                pairs |= _pairs(run)
                continue
            return False
        return bool(pairs - _pairs(self._written))


def _pairs(run: ObservedRun) -> set[tuple[int, int]]:
    both = [sorted((run.numbers[one], run.numbers[other])) for one, other in run.pairs]
    return {(earlier, later) for earlier, later in both if earlier >= 0}


def _template(overlap: Overlap) -> str:
    """Return the form of a change by hand, with the names of the callees and the lines that send to them."""
    group = [overlap.calls[n] for n in max(overlap.together, key=len)]
    models = dict.fromkeys(call.model for call in group)
    targets, lines = [], []
    for model in models:
        calls = [call for call in group if call.model == model]
        name = "".join(char if char.isalnum() else "_" for char in model)
        numbers = sorted({call.line.line for call in calls if call.line is not None})
        where = f"  # sent at line {', '.join(map(str, numbers))}" if numbers else ""
        many = f"*[request.async_exec() for request in {name}_requests]"
        several = many if len(models) == 1 else f"asyncio.gather({many})"
        targets.append(f"{name}_response" + "s" * (len(calls) > 1))
        lines.append(f"    {several if len(calls) > 1 else f'{name}_request.async_exec()'},{where}")
    return "\n".join([f"{', '.join(targets)} = await asyncio.gather(", *lines, ")"])


def proven(runs: Runs, overlap: Overlap, repeat: int) -> Overlap:
    """Run the model as it is written and changed, in turns, with its real callees; compare them."""
    code = overlap.code
    assert code is not None
    sessions: dict[bool, list[Session]] = {False: [], True: []}
    problem = ""
    with runs.variant() as before, runs.variant(code.source) as after:
        for number in range(repeat + 1):
            answers = {}
            for is_changed in random.sample((False, True), 2):
                with (after if is_changed else before).serving():
                    name = "calls in flight together" if is_changed else "as it is written"
                    session, answers[is_changed] = runs.profiled(name)
                if number:  # the first round warms up
                    sessions[is_changed].append(session)
            if not equal(answers[False], answers[True]):
                error = next((r.error for kept in answers[True] for r in kept if r.error is not None), None)
                problem = "Not equal: " + (first_line(error) if error else "the answers differ")
                break
    wall = median_low([session.wall for session in sessions[True]] or [0])
    changed = next((session for session in sessions[True] if session.wall == wall), None)
    if not problem and (changed is None or not _calls_overlap(changed)):
        problem = "Not proven: the calls were not in flight together"
    if problem:
        return replace(overlap, code=replace(code, proof=f"{problem}. Nothing is applied."), runs=runs.count)
    turns = [(a.wall, b.wall) for a, b in zip(sessions[False], sessions[True], strict=True)]
    speedup, rounds = ratio(turns), f"equal answers on {repeat + 1} runs"
    fast = f"{times(speedup)} times as fast{give_or_take(relative_error(turns)) if repeat > 2 else ''}"
    said = f"Proven: {rounds}, {fast} (predicted {times(overlap.predicted)})."
    if speedup < _WORTH:
        said = f"E{rounds[1:]}, but {fast}: nothing is applied."
    code = replace(code, proof=said, proven=speedup >= _WORTH)
    return replace(overlap, code=code, speedup=speedup, changed=changed, runs=runs.count)


def _calls_overlap(session: Session) -> bool:
    """Whether a request of a session had two calls in flight at a time."""
    tree = SpanTree(session)
    for root in tree.children.get(0, ()):
        calls = sorted(tree.children.get(root.id, ()), key=lambda span: span.sent)
        if any(later.sent < before.ended for before, later in pairwise(calls)):
            return True
    return False
