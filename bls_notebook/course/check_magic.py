"""``%blscheck`` judges claims about the last recording; ``%%blscheck`` runs a cell and judges claims about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import bls_notebook as bls
from bls_notebook.magics import MagicCall, Notebook, cell_body, display_of, evaluate, fail_on, reported, responses_in
from bls_notebook.operations import OperationSpec, UsageProblem, identifier, option
from bls_notebook.profiling.analysis.verdict import CAUSES
from bls_notebook.profiling.records.spans import Span
from bls_notebook.records import ModelRecord, count, first_line
from bls_notebook.testing.claim_checks import CHECK, FORMS, Judgement, form_of, records_of
from bls_notebook.testing.claim_values import GivenAnswer, answer_of

from .exercise_look import look_at_exercise


def next_words(words: Sequence[str], models: Sequence[ModelRecord]) -> list[str]:
    """Return the completions of a claim's next word; none where a number is expected."""
    last = max((at for at, word in enumerate(words) if word == "and"), default=-1)
    claim = list(words[last + 1 :])
    if not claim:
        return list(FORMS)
    if claim[0] not in FORMS:
        return []
    usage = [part.strip("[]") for part in FORMS[claim[0]].usage.split()]
    if "DTYPE" in usage and len(claim) > 2 and not claim[2].isalnum():
        usage.remove("DTYPE")
    with_unit = next((at for at, part in enumerate(usage) if part in ("SIZE", "TIME")), len(usage))
    if len(claim) > with_unit + 1 and not claim[with_unit + 1][0].isupper() and claim[with_unit].isdecimal():
        del claim[with_unit + 1]  # "5 ms" is one part
    if len(claim) >= len(usage):
        return ["and"]
    expected = usage[len(claim)]
    ready = [model for model in models if model.state == "READY"]
    candidates = {
        "MODEL": [model.name for model in ready],
        "CALLER": [model.name for model in ready],
        "DTYPE": ["==", *dict.fromkeys(spec.datatype for model in ready for spec in model.outputs)],
        "NAME": [spec.name for model in ready for spec in model.outputs],
        "DEVICE": [device.name for device in bls.list_devices()],
        "CAUSE": list(CAUSES),
        "FIRST": ["first"],
        "OP": ["==", "!=", "<", "<=", ">", ">="],
        "IS": ["==", "!="],
    }
    if expected in ("of", "on", "by", "until"):
        return [expected, "and"]
    return list(dict.fromkeys(candidates.get(expected, ())))


def _judge_last(call: MagicCall, claim: Sequence[str], of: str = "", exercise: str = "") -> None:
    """Judge claims and show the observations."""
    recorded: Any = _records(call.notebook, {})
    if of:
        recorded = evaluate(of, call.variables, "%blscheck: --of")
    _judge(call, recorded, _claims(claim), exercise=exercise)


def _judge_cell(call: MagicCall, claim: Sequence[str], exercise: str = "") -> object:
    """Run a cell and judge claims about it."""
    __tracebackhide__ = True
    notebook, cell, claims = call.notebook, call.cell, _claims(claim)
    with reported(notebook):
        magics = {form_of(claim).recorded_by for claim in claims}
    body = cell_body(notebook, "%%blscheck", cell)
    name = f"In [{notebook.cell_number}]"
    before = dict(notebook.recorded)
    recorders: list[Any] = [bls.profile(name=name)] if "%blsprofile" not in magics else []
    recorders += [bls.track_memory(name=name)] if "%%blsmemory" in magics else []
    answers: list[GivenAnswer] = []
    with ExitStack() as recordings:
        with reported(notebook):
            for recorder in recorders:
                recordings.enter_context(recorder)
        recordings.enter_context(_heard(notebook, answers))
        try:
            value = body()
        except Exception as error:
            if display_of(error) is None:
                _show_first_error(notebook, answers)
            raise
    for recorder in recorders:
        notebook.remember(recorder)
    if value is not None and (not answers or CHECK in magics):
        notebook.remember(value)
    if not answers:  # responses of `repo.infer`
        values = value if isinstance(value, (list, tuple)) else [value]
        answers += [answer_of(response) for response in values if isinstance(response, bls.Response)]
    records = _records(notebook, before)
    if answers or "%bls" in magics:
        records.setdefault("%bls", ())
        records["%bls"] = tuple(answers) or records["%bls"]
    mistakes = [] if any(claim.startswith(("errors", "failed")) for claim in claims) else _mistakes(records)
    if mistakes:
        _show_first_error(notebook, answers)
    _judge(call, records, claims, mistakes, exercise)
    return None if cell.rstrip().endswith(";") else value


@contextmanager
def _heard(notebook: Notebook, answers: list[GivenAnswer]) -> Iterator[None]:
    """Add the answers to each %bls with copies of their values."""

    def hear(result: Any) -> None:
        answers.extend(map(answer_of, responses_in(result)))

    notebook.on_answer.append(hear)
    try:
        yield
    finally:
        notebook.on_answer.remove(hear)


def _show_first_error(notebook: Notebook, answers: list[GivenAnswer]) -> None:
    """Show the error of the first failed response, with its remedy. Other requests show theirs when they fail."""
    error = next((answer.record.error for answer in answers if answer.record.error is not None), None)
    if error is not None:
        notebook.show(error)


def _mistakes(records: dict[str, Any]) -> list[Judgement]:
    """Return judgements on failed requests and wrong outputs, which no claim allows."""
    answers = [answer.record for answer in records.get("%bls", ())]
    session = records.get("%%blsprofile")
    spans = [] if session is None else [s for s in session.spans if not s.parent and not _is_given_up(s)]
    failed = max(sum(a.error is not None for a in answers), sum(span.state == "error" for span in spans))
    judged = []
    if failed:
        errors = [span.error for span in spans if span.state == "error"]
        errors += [answer.error.message for answer in answers if answer.error is not None]
        why = next(iter(errors), "").rpartition("message: ")[2]
        hint = f"Repair the error first: {first_line(why, 200)}".rstrip(": ")
        judged.append(Judgement("errors == 0", False, f"{count(failed, 'request')} failed", hint))
    wrong = [w for a in answers for w in a.warnings if re.match(r"model '[^']*', output ", w)]
    judged += [Judgement("outputs as configured", False, warning) for warning in dict.fromkeys(wrong)]
    return judged


def _is_given_up(span: Span) -> bool:
    """Return whether a request's client had left before the model answered with an error.

    A request that the model did not answer has an error of the engine, which names no exception.
    """
    return any(mark.kind == "cancelled" for mark in span.marks) and not re.search(r"message: (?!\w+: )", span.error)


def _without_errors(answers: Sequence[GivenAnswer]) -> tuple[GivenAnswer, ...]:
    """Return the answers that the other claims beside `failed` are about; all if every request failed."""
    return tuple(answer for answer in answers if answer.record.error is None) or tuple(answers)


def _records(notebook: Notebook, before: Mapping[type, Any]) -> dict[str, Any]:
    """Return the records that claims can judge, by magic: the last new one of each."""
    records: dict[str, Any] = {}
    for kind, record in notebook.recorded.items():
        if before.get(kind) is not record:
            records.update(records_of(record))
    return records


def _claims(words: Sequence[str]) -> list[str]:
    claims = [claim.strip() for claim in re.split(r"(?:^|\s)and(?:\s|$)", " ".join(words))]
    if not all(claims):
        raise UsageProblem("missing: a claim, such as overlapped 4")
    return claims


def _judge(
    call: MagicCall, recorded: Any, claims: list[str], mistakes: Sequence[Judgement] = (), exercise: str = ""
) -> None:
    notebook = call.notebook
    fails = {claim for claim in claims if claim.startswith("failed")}
    answered = {**recorded, "%bls": _without_errors(recorded["%bls"])} if fails and "%bls" in recorded else recorded
    with reported(notebook):
        judged = [bls.judge(recorded if claim in fails else answered, claim, call.variables) for claim in claims]
    every = [*mistakes, *judged]
    if exercise and not mistakes and all(each for each in judged if each.claim.startswith("output")):
        name, _, model = exercise.partition(":")
        with reported(notebook):
            again = look_at_exercise(name, model, is_failed=not all(judged))
        every += [] if again is None else [again]
    for judgement in every:
        fail_on(notebook, [] if judgement else [repr(judgement)], judgement)
        notebook.show(judgement)
    if len(every) > 1:
        done = sum(map(bool, every))
        notebook.say(f"{done} of {len(every)} done", "done" if done == len(every) else "info")


_CLAIMS = """About requests: overlapped N [of MODEL] [by CALLER], called MODEL [N] [by CALLER] (or called MODEL 0 then
    1: for each request of the cell in turn), waits [of MODEL] [until first] (calls that a request waits for one after
    the other), requests, late (sent after the client had left), executions (a batch is one), sequences (with START and
    END), queued, took (the shortest execution), moved (tensors between devices), wall. About memory: nothing_left [on
    DEVICE], peak. About responses, by %bls: output NAME [DTYPE] == VALUE, where VALUE is an expression, or VALUE then
    VALUE for the responses in turn; device, errors, responses, first (time of the first response), failed [saying TEXT]
    (some requests fail with this text; other claims are about the rest). About exec and async_exec, by %blsprofile:
    verdict == CAUSE, speedup. About the notebook, in %%blscheck: value EXPRESSION == VALUE. By %tritonrepo check at the
    end of the cell: findings, shm. Join several claims with `and`."""
_EXERCISE = option(
    "--exercise", "NAME[:MODEL]", "also compare with the reference of an exercise: other requests, failing callees"
)
_CLAIM = option("claim", "CLAIM", "a claim, such as: overlapped 4 of scanner", nargs="*", default=())

CHECK_LAST = OperationSpec(
    f"""Judge a claim about the last recording, report the observation, and give a hint if the claim is false. It
    checks an exercise by the behavior of its model, not by its code. {_CLAIMS} Recordings come from %%blsprofile,
    %%blsmemory, %blsprofile and %bls. In scripts: assert bls.judge(profile, 'overlapped 4'). Guide:
    docs/guides/testing.md.""",
    options=(
        _CLAIM,
        option("--of", "NAME", "a variable with the recording (default: the last one)", identifier),
        _EXERCISE,
    ),
    examples="""
    %blscheck overlapped 4 of scanner
    %blscheck peak < 2 MB on gpu:0 and nothing_left
    %blscheck speedup > 2
    %blscheck queued < 5 ms of resize --of profile
    """,
    usage="CLAIM [and CLAIM ...] [--of NAME] [--exercise NAME]",
    form="text",
    notebook=_judge_last,
)

CHECK_CELL = OperationSpec(
    f"""Run the cell and judge claims about its requests and its memory, as %blscheck does. A claim that is false has
    hints, folded in steps: where, what to do, code. A failed request and a wrong output are mistakes even if no claim
    is about them; the first error is shown with its remedy. {_CLAIMS} Guide: docs/guides/testing.md.""",
    options=(_CLAIM, _EXERCISE),
    examples="""
    %%blscheck overlapped 4 of scanner by page and output DIGITS == truth[:4]
    %bls page IMAGES=images[:4] -q

    %%blscheck called expert 0 then 1 by reader and output DIGIT INT32 == 0 then 3
    for index in (0, 519):
        %bls reader IMAGE=images[index] -q
    """,
    usage="CLAIM [and CLAIM ...] [--exercise NAME]",
    form="text",
    notebook=_judge_cell,
)
