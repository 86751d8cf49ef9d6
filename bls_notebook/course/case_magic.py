"""``%blscase``: load a pipeline with one fault, name the cause, and check a fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import bls_notebook as bls
from bls_notebook.display import release_inks, warning_folds
from bls_notebook.magics import MagicCall, Notebook, fail_on
from bls_notebook.operations import OperationSpec, UsageProblem, flag, option, whole_number
from bls_notebook.profiling import session_report
from bls_notebook.records import ModelRecord

from .case_display import CaseScore, CaseScores
from .case_entry import CourseCase
from .case_text import case_folders, cause_meanings
from .score_file import Scores, read_scores, save_score


def next_cases(words: Sequence[str], models: Sequence[ModelRecord]) -> list[str]:
    """Return the completions of a case's number."""
    return [str(number) for number in case_folders()]


def next_causes(words: Sequence[str], models: Sequence[ModelRecord]) -> list[str]:
    """Return the completions of a cause."""
    return list(cause_meanings())


def _case(call: MagicCall, case: int = 0, seed: int = 0, score: bool = False, **actions: Any) -> None:
    """Load a case, answer its question, check a fix, or show the score."""
    __tracebackhide__ = True
    notebook = call.notebook
    if case:
        loaded = bls.case(case, seed)
        loaded.load()
        if (last := notebook.state.get("course.case")) is not None:
            release_inks(model.name for model in last.models)
        notebook.state["course.case"] = loaded
        _fold_verdicts(notebook)
        notebook.assign("case", loaded)
    if score:
        numbers = {row.number: row for row in _scores(notebook).values()}
        titles = ((number, bls.case(number).title) for number in case_folders())
        notebook.show(CaseScores(tuple(numbers.get(number, CaseScore(number, title)) for number, title in titles)))
        return
    current: CourseCase | None = notebook.state.get("course.case")
    if current is None:
        raise UsageProblem("there is no case yet: begin with %blscase 1")
    _use(notebook, current, **actions)


def _use(
    notebook: Notebook, case: CourseCase, cause: str = "", code: str = "", pbtxt: str = "", check: bool = False,
    fix: bool = False,
) -> None:  # fmt: skip
    earlier = score = _scores(notebook).get((case.number, case.seed), CaseScore(case.number, case.title, case.seed))
    causes = [each.name for each in case.causes]
    if cause and cause not in causes:
        notebook.say(f"`{cause}` is none of the causes: choose {', '.join(causes)}", "info")
    elif cause:
        judgement = case.answer(cause)
        if not score.named:
            score = replace(score, tries=score.tries + 1, named=bool(judgement))
            notebook.state["course.named in"] = (case.number, case.seed, notebook.cell_number)
        notebook.show(judgement)
    if fix:
        given = notebook.state.get("course.named in") == (case.number, case.seed, notebook.cell_number)
        score = replace(score, shown=score.shown or not score.fixed, given=score.given or given)
        for record in case.fix():
            notebook.show(record)
        for before, after in zip(case.models, case.fixed, strict=True):
            lines = [line for line in after.config.splitlines() if line not in before.config]
            if lines:
                notebook.say(f"config.pbtxt of `{after.name}`: `{' '.join(lines)}`", "info")
    if check:
        checked = case.check()
        score = replace(score, fixed=score.fixed or bool(checked))
        fail_on(notebook, [] if checked else [f"case {case.number}: {checked.hint}"], checked)
        notebook.show(checked)
    if score != earlier:
        save_score(score)
    _scores(notebook)[case.number, case.seed] = score
    opened = code or pbtxt
    if opened:
        model = next((model for model in case.models if model.name == opened), None)
        if model is None:
            names = ", ".join(each.name for each in case.models)
            raise UsageProblem(f"--{'code' if code else 'pbtxt'}: got {opened!r}, expected one of {names}")
        magic, text = ("%%tritonmodel", model.source) if code else ("%%tritonconfig", model.config)
        shell: Any = notebook.shell
        shell.set_next_input(f"{magic} {model.name}\n{text}", replace=False)
    if not (cause or check or fix or opened):
        notebook.show(case)


def _fold_verdicts(notebook: Notebook) -> None:
    """Fold the verdict on the requests of the last case, and their warnings, until its cause is named."""

    def is_open(model: str) -> bool:
        case: CourseCase | None = notebook.state.get("course.case")
        if case is None or case.model != model:
            return False
        score = _scores(notebook).get((case.number, case.seed))
        return score is None or not (score.named or score.shown)

    session_report.verdict_folds[:] = [lambda session: any(is_open(s.model) for s in session.spans if not s.parent)]
    warning_folds[:] = [is_open]


def _scores(notebook: Notebook) -> Scores:
    """Return the progress with each case, of this kernel and of those before."""
    if "course.scores" not in notebook.state:
        notebook.state["course.scores"] = read_scores()
    scores: Scores = notebook.state["course.scores"]
    return scores


CASE = OperationSpec(
    """Load a pipeline that is slow, wrong or leaks for one reason, as the variable `case`, and show its story. Send its
    requests with case.send() under %%blsprofile or %%blsmemory, name the cause with --cause, change the model
    that is guilty, and check the change with --check: the answers must be right, also for requests that the
    story does not show. The score survives the kernel, in Jupyter's data folder. In scripts: case = bls.case(1);
    case.load(); case.answer('queue'); case.check(). More: docs/tutorials/index.md.""",
    options=(
        option("case", "CASE", "from 1 to 10 (default: the last one)", whole_number(0), nargs="?", default=0),
        option("--seed", "N", "a variant: other names and numbers, another guilty model (default: 0)", whole_number(0)),
        option("--cause", "CAUSE", "answer: the cause of the fault"),
        option("--code", "MODEL", "put the model.py of a model into a new cell below"),
        option("--pbtxt", "MODEL", "put the config.pbtxt of a model into a new cell below"),
        flag("--check", "check the models after your change"),
        flag("--fix", "load a fix, and show its changes"),
        flag("--score", "show the points of all cases"),
    ),
    examples="""
    %blscase 1
    %blscase --cause queue
    %blscase --check
    %blscase --score
    """,
    notebook=_case,
)
