"""``%blscase``: load a pipeline with one fault, name the cause, and check a fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import bls_notebook as bls
from bls_notebook.display import release_inks
from bls_notebook.magics import Magic, Notebook, Parser, Variables, add_options, fail_on, help_text, reported
from bls_notebook.records import ModelRecord

from .case_display import CaseScore, CaseScores
from .case_entry import CourseCase
from .case_text import case_folders, cause_meanings

PARSER = Parser("%blscase", *help_text(__file__, "%blscase"))
add_options(PARSER, __file__, "%blscase")


def next_cases(words: Sequence[str], models: Sequence[ModelRecord]) -> list[str]:
    """Return the completions of a case's number."""
    return [str(number) for number in case_folders()]


def next_causes(words: Sequence[str], models: Sequence[ModelRecord]) -> list[str]:
    """Return the completions of a cause."""
    return list(cause_meanings())


def bls_case(notebook: Notebook, line: str, cell: str, variables: Variables) -> None:
    """Load a case, answer its question, check a fix, or show the score."""
    __tracebackhide__ = True
    arguments = PARSER.parse_line(line, variables)
    with reported(notebook):
        if arguments.case:
            case = bls.case(arguments.case, arguments.seed)
            case.load()
            if (last := notebook.state.get("course.case")) is not None:
                release_inks(model.name for model in last.models)
            notebook.state["course.case"] = case
            notebook.assign("case", case)
        _use(notebook, arguments)


def _use(notebook: Notebook, arguments: Any) -> None:
    case: CourseCase | None = notebook.state.get("course.case")
    if arguments.score:
        numbers = {row.number: row for row in _scores(notebook).values()}
        titles = ((number, bls.case(number).title) for number in case_folders())
        notebook.show(CaseScores(tuple(numbers.get(number, CaseScore(number, title)) for number, title in titles)))
        return
    if case is None:
        PARSER.error("there is no case yet: begin with %blscase 1")
    score = _scores(notebook).setdefault((case.number, case.seed), CaseScore(case.number, case.title, case.seed))
    causes = [cause.name for cause in case.causes]
    if arguments.cause and arguments.cause not in causes:
        notebook.say(f"`{arguments.cause}` is none of the causes: choose {', '.join(causes)}", "info")
    elif arguments.cause:
        judgement = case.answer(arguments.cause)
        if not score.named:
            score = replace(score, tries=score.tries + 1, named=bool(judgement))
        notebook.show(judgement)
    if arguments.fix:
        score = replace(score, shown=score.shown or not score.fixed)
        for record in case.fix():
            notebook.show(record)
        for before, after in zip(case.models, case.fixed, strict=True):
            lines = [line for line in after.config.splitlines() if line not in before.config]
            if lines:
                notebook.say(f"config.pbtxt of `{after.name}`: `{' '.join(lines)}`", "info")
    if arguments.check:
        check = case.check()
        score = replace(score, fixed=score.fixed or bool(check))
        fail_on(notebook, [] if check else [f"case {case.number}: {check.hint}"], check)
        notebook.show(check)
    _scores(notebook)[case.number, case.seed] = score
    opened = arguments.code or arguments.pbtxt
    if opened:
        model = next((model for model in case.models if model.name == opened), None)
        if model is None:
            names = ", ".join(each.name for each in case.models)
            PARSER.error(f"--{'code' if arguments.code else 'pbtxt'}: got {opened!r}, expected one of {names}")
        magic, text = ("%%tritonmodel", model.source) if arguments.code else ("%%tritonconfig", model.config)
        shell: Any = notebook.shell
        shell.set_next_input(f"{magic} {model.name}\n{text}", replace=False)
    if not (arguments.cause or arguments.check or arguments.fix or opened):
        notebook.show(case)


def _scores(notebook: Notebook) -> dict[tuple[int, int], CaseScore]:
    """Return the progress with each case, by number and seed, in the order in which they began."""
    scores: dict[tuple[int, int], CaseScore] = notebook.state.setdefault("course.scores", {})
    return scores


MAGIC = Magic(PARSER, bls_case)
