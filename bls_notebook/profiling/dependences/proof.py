"""Write the changed program, and prove it by running it: equal requests and answers, calls that overlap."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.verdicts import give_or_take, times
from bls_notebook.records.measurements import ratio, relative_error
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.source.changes import numbered_change

from .counterfactual import SECONDS, ExhaustedError, ObservedRun, Runs, equal
from .findings import WORTH
from .records import CodeChange, Overlap

_PLACES = 8  # of a program that are tried
_NO_LIBCST = "writing it needs LibCST, which is not installed: pip install 'bls_notebook[overlap]'"


def code_change(runs: Runs, overlap: Overlap, blocked: Sequence[int]) -> CodeChange:
    """Return the change that has independent calls in flight together, tried with the kept answers.

    `blocked` has for each call those that it follows, directly or not.
    """
    model = Host(runs.repository).ready(runs.model)
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
    trial = _Trial(runs, blocked)
    try:
        places = changed_program(text, frozenset()).places[:_PLACES]
        useful = frozenset(each for each in places if trial.gains(changed_program(text, {each}).source))
        if len(useful) > 1 and not trial.gains(changed_program(text, useful).source):
            useful = frozenset({min(useful)})
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

    def __init__(self, runs: Runs, blocked: Sequence[int]) -> None:
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
            elif any(self._blocked[later] >> earlier & 1 for earlier, later in _pairs(run)):
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
    if speedup < WORTH:
        said = f"E{rounds[1:]}, but {fast}: nothing is applied."
    code = replace(code, proof=said, proven=speedup >= WORTH)
    return replace(overlap, code=code, speedup=speedup, changed=changed, runs=runs.count)


def _calls_overlap(session: Session) -> bool:
    """Whether a request of a session had two calls in flight at a time."""
    tree = SpanTree(session)
    for root in tree.children.get(0, ()):
        calls = sorted(tree.children.get(root.id, ()), key=lambda span: span.sent)
        if any(later.sent < before.ended for before, later in pairwise(calls)):
            return True
    return False
