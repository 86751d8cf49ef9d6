"""Propose the changed program, try it with the recorded answers, prove it with the real callees."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from keyword import iskeyword
from pathlib import Path
from typing import Any, NamedTuple

from bls_notebook.engine.errors import BLSError
from bls_notebook.profiling.analysis.measured_ratio import ratio, relative_error
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.verdicts import give_or_take, times
from bls_notebook.profiling.sync_vs_async import middle
from bls_notebook.records.intervals import union
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.source.definition_changes import numbered_change
from bls_notebook.repository.substitution.variant import with_instances

from .counterfactual import SECONDS, ExhaustedError, ObservedRun, Runs, equal
from .records import CodeChange, Overlap, SentCall
from .schedule import WORTH, lacking

_PLACES = 8  # of a program that are tried
_NO_LIBCST = "writing it needs LibCST, which is not installed: pip install 'bls_notebook[overlap]'"


def code_change(runs: Runs, overlap: Overlap, blocked: Sequence[set[int]]) -> CodeChange:
    """Return the change that has independent calls in flight together, tried with the kept answers.

    `blocked` lists the direct and indirect predecessors of each call.
    """
    model = runs.host.ready(runs.model)
    home: Any = next((i.modules for i in (*model.instances, *model.passive) if i.modules is not None), None)
    file = model.spec.config.default_model_filename or "model.py"
    written = None if home is None else home.written(str(Path(model.directory, file)))
    by_hand = CodeChange(template=template([overlap.calls[n] for n in max(overlap.together, key=len)]))
    if written is None:
        return replace(by_hand, reason=f"its source is not in a {file}")
    text, place = written
    label = place.label if place.line > 1 else f"{model.name}/{model.version}/{file}"
    by_hand = replace(by_hand, file=label, folder=runs.repository.record(runs.model).source.removeprefix("cell"))
    try:
        from .program_change import NotSimpleError, changed_program  # LibCST is an extra
    except ImportError:
        return replace(by_hand, reason=_NO_LIBCST)
    try:
        trial = _Trial(runs, blocked)
        places = changed_program(text, ())[1][:_PLACES]
        useful = {each for each in places if trial.gains(changed_program(text, {each})[0])}
        if len(useful) > 1 and not trial.gains(changed_program(text, useful)[0]):
            useful = {min(useful)}
    except NotSimpleError as error:
        line = f"line {error.line + place.line - 1}: " if error.line else ""
        return replace(by_hand, reason=f"{line}{error}")
    except ExhaustedError:
        return replace(by_hand, reason="trying the changes took too long")
    if not useful:
        other = "its calls are not in consecutive statements, a loop or a comprehension"
        return replace(by_hand, reason=trial.problem or other)
    source, _ = changed_program(text, useful)
    return replace(by_hand, source=source, change=numbered_change("", text, source, place.line), template="")


class _Trial:
    """Runs programs with the recorded answers, sent in the order of the calls and in reverse."""

    problem = ""  # of the last program that was not good

    def __init__(self, runs: Runs, blocked: Sequence[set[int]]) -> None:
        runs.allow(4 + 2 * _PLACES, SECONDS)
        self._runs, self._blocked = runs, blocked
        self._written = runs.replay(turn=max)

    def gains(self, source: str) -> bool:
        """Whether a program gives equal answers and has more calls in flight together, all of them independent."""
        try:
            observed = [self._runs.replay(source=source, turn=turn) for turn in (min, max)]
        except BLSError as error:
            self.problem = f"the changed model cannot be loaded: {first_line(str(error))}"
            return False
        written, pairs = self._written, set().union(*map(_pairs, observed))
        if any(Counter(c[:3] for c in run.calls) != Counter(c[:3] for c in written.calls) for run in observed):
            self.problem = "with its calls gathered, the model sends other requests"
        elif not all(equal(run.responses, written.responses) for run in observed):
            self.problem = "with its calls gathered, its answer is another one, or depends on their order"
        elif any(earlier in self._blocked[later] for earlier, later in pairs):
            self.problem = "gathered, calls would run together that were not shown to be independent"
        else:
            return bool(pairs - _pairs(written))
        return False


def _pairs(run: ObservedRun) -> set[tuple[int, int]]:
    both = [sorted((run.numbers[one], run.numbers[other])) for one, other in run.pairs]
    return {(earlier, later) for earlier, later in both if earlier >= 0}


def template(group: Sequence[SentCall]) -> str:
    """Return the form of a change by hand, with the names of the callees and the lines that send to them."""
    targets, sent = dict[str, str](), list[str]()
    for model in dict.fromkeys(call.model for call in group):
        calls = [call for call in group if call.model == model]
        name = "".join(char if char.isalnum() else "_" for char in model)
        name = name if name.isidentifier() and not iskeyword(name) else f"_{name}"
        name = next(n for n in (name, *(f"{name}_{i}" for i in range(2, 99999))) if n not in targets)
        numbers = sorted({call.line.line for call in calls if call.line is not None})
        where = f"  # sent at line {', '.join(map(str, numbers))}" if numbers else ""
        many = f"*[request.async_exec() for request in {name}_requests]"
        several = many if len(calls) == len(group) else f"asyncio.gather({many})"
        targets[name] = f"{name}_response" + "s" * (len(calls) > 1)
        sent.append(f"    {several if len(calls) > 1 else f'{name}_request.async_exec()'},{where}")
    return "\n".join([f"{', '.join(targets.values())} = await asyncio.gather(", *sent, ")"])


class _Measured(NamedTuple):
    """The result of the changed program: a problem, or its median session and speedup."""

    problem: str
    changed: Session | None = None
    speedup: float = 0.0
    words: str = ""
    is_faster: bool = False


def proven(runs: Runs, overlap: Overlap, repeat: int) -> Overlap:
    """Run the original and the changed model in turns with their real callees, and compare them.

    If the changed program is no faster and its callees lack instances, the runs are repeated with more of them.
    """
    code, advice = overlap.code, overlap.advice
    assert code is not None
    now = _measured(runs, code.source, repeat)
    proof = f"Proven: equal answers on {repeat + 1} runs, {now.words} (predicted {times(overlap.predicted)})."
    if now.problem:
        proof = f"{now.problem}. Nothing is applied."
    elif not now.is_faster:
        doubt = "that may be chance; a larger `repeat` settles it, and" if now.speedup >= WORTH else ""
        proof = " ".join(f"Equal answers on {repeat + 1} runs, but {now.words}: {doubt} nothing is applied.".split())
        if instances := lacking(overlap.written, overlap.calls, overlap.together):
            counts = " and ".join(f"`instance_group.count` {n} for `{name}`" for name, n in instances.items())
            advice = f"Tried with {counts}: {_with_instances(runs, code.source, repeat, instances)}."
    code = replace(code, proof=proof, proven=now.is_faster)
    return replace(overlap, code=code, speedup=now.speedup, changed=now.changed, advice=advice, runs=runs.count)


def _with_instances(runs: Runs, source: str, repeat: int, instances: Mapping[str, int]) -> str:
    """Return the result with more instances, or why they could not be tried."""
    try:
        with ExitStack() as stack:
            for model, number in instances.items():
                stack.enter_context(with_instances(runs.repository, [model], number))
            more = _measured(runs, source, repeat)
    except BLSError as error:
        return first_line(str(error))
    return more.problem or f"equal answers, {more.words}"


def _measured(runs: Runs, source: str, repeat: int) -> _Measured:
    sessions: dict[bool, list[Session]] = {False: [], True: []}
    with runs.variant() as before, runs.variant(source) as after:
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
                return _Measured("Not equal: " + (first_line(error) if error else "the answers differ"))
    changed = middle(sessions[True])
    roots = {span.id for span in changed.spans if not span.parent}
    calls = [(span.sent, span.ended) for span in changed.spans if span.parent in roots]
    if len(union(calls)) == len(calls):
        return _Measured("Not proven: the calls were not in flight together")
    turns = [(a.wall, b.wall) for a, b in zip(sessions[False], sessions[True], strict=True)]
    speedup, doubt = ratio(turns), relative_error(turns) if repeat > 2 else 0.0
    words = f"{times(speedup)} times as fast{give_or_take(doubt)}"
    return _Measured("", changed, speedup, words, speedup >= max(WORTH, 1 + 2 * doubt))
