"""Verdicts of a drill: compare the outcome of a request with the one when nothing is wrong. Pure.

A verdict claims no more than was seen. An answer that could be intended, such as one computed from wrong
numbers, is reported as what it is (``silent``); one that cannot be judged is ``unjudged``.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from bls_notebook.pb_utils import Tensor
from bls_notebook.records.errors import ErrorRecord, FrameRecord
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.requests.response import Response
from bls_notebook.testing.recording.payload_tape import copied
from bls_notebook.testing.recording.recording_file import digest
from bls_notebook.testing.records import CodePlace

from .faults import Fault

Sources = Callable[[FrameRecord], Sequence[str]]  # the lines of a frame's file
_Verdict = tuple[str, str, "CodePlace | None"]
_AT = "\n\nAt:\n"
_FOR_EVER = "(The real server would keep the caller waiting forever"


@dataclass(frozen=True)
class Healthy:
    """The outcome when nothing is wrong.

    ``outputs`` are the names of the callees' outputs; ``varying`` says that two requests in a row had different
    answers; ``batching`` that the first dimension of outputs counts rows.
    """

    outcome: Outcome
    model: str = ""
    varying: bool = False
    batching: bool = False
    outputs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Case:
    """The faults of a case, each with the model that has it, and the ``words`` of the errors that they give."""

    planted: tuple[tuple[str, Fault], ...]
    words: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """The models that fail."""
        return tuple(model for model, _ in self.planted)

    def has(self, kind: str) -> bool:
        """Whether one of the faults is of that kind."""
        return any(fault.kind == kind for _, fault in self.planted)

    @property
    def called(self) -> str:
        """The names of the models in a sentence."""
        return " and ".join(f"'{model}'" for model in self.models)


def judge(case: Case, outcome: Outcome, healthy: Healthy, sources: Sources) -> _Verdict:
    """Return the verdict on a case, why in a line, and the line of code where it went wrong."""
    if not all(outcome.calls.get(model) for model in case.models):
        return "not reached", f"the request reached {case.called} no more", None
    if outcome.state == "stuck":
        return "hang", f"no answer, though nothing that {case.called} got is open any more", outcome.where
    if outcome.state == "waited":
        why = (
            f"waits as long as {case.called} does: the call has no time limit"
            if outcome.limitless
            else f"waited for {case.called} until the drill's timeout was over"
        )
        return "waits", why, outcome.where
    if outcome.error is not None:
        lost = next((e for e in outcome.errors if _FOR_EVER in e.message), outcome.error)
        verdict = _of_error(case, lost, sources, healthy)
    else:
        verdict = (*_of_answer(case, outcome, healthy), None)
    if outcome.left and verdict[0] not in ("crash", "rubbish"):
        return "leak", outcome.left[0], verdict[2]
    return verdict


def _of_error(case: Case, error: ErrorRecord, sources: Sources, healthy: Healthy) -> _Verdict:
    place = _place(error)
    message = error.message.partition(_AT)[0]
    told = first_line(message.rpartition("message: ")[2] or message)
    if _FOR_EVER in message:
        return "hang", f"on the real server its requester would wait for ever: {told}", place
    if _by_accident(error, sources):
        if error.unchecked and case.has("error"):
            return "crash", f"the error of {case.called} is lost: {told}", place
        if case.has("error") and not _passed_on(case, message):
            return "crash", f"does not see that {case.called} failed: {told}", place
        return "stumbles", f"fails by accident: {told}", place
    if _passed_on(case, message) or any(_names(message, output) for output in healthy.outputs):
        return "clear", f"an error that tells of {case.called}", place
    return "vague", f"an error that does not tell of {case.called}: {told}", place


def _passed_on(case: Case, message: str) -> bool:
    return any(words in message for words in case.words) or any(_names(message, m) for m in case.models)


def _names(message: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) is not None


def _place(error: ErrorRecord) -> CodePlace | None:
    frame = next((each for each in reversed(error.frames) if each.model), None)
    return None if frame is None else place_of(frame)


def _by_accident(error: ErrorRecord, sources: Sources) -> bool:
    """Whether no line of a model raised it: it came out of what the line called, or did."""
    if not error.kind:
        return False  # returned, or refused before it ran
    if error.kind == "ReturnError":
        return True
    frame = next((each for each in reversed(error.frames) if each.model), None)
    if frame is None:
        return bool(error.frames)
    if error.stage:
        return False
    if error.frames[-1] is not frame:  # a library did, that the model has called
        return True
    return not raises_at(sources(frame), frame, error.kind)


def raises_at(lines: Sequence[str], frame: FrameRecord, kind: str) -> bool:
    """Whether the statement of a line raises an exception of that kind on purpose.

    ``raise RuntimeError(error.text)`` may fail by itself: then it raises another one than it names.
    """
    try:
        tree: ast.AST = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError):
        return False
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    around = [node for node in statements if node.lineno <= frame.line <= (node.end_lineno or node.lineno)]
    # The innermost; of those on one line, the one that begins last.
    statement = min(around, key=lambda n: ((n.end_lineno or n.lineno) - n.lineno, -n.col_offset), default=None)
    if isinstance(statement, ast.Assert):
        return kind == "AssertionError"
    if not isinstance(statement, ast.Raise):
        return False
    called = statement.exc.func if isinstance(statement.exc, ast.Call) else None
    named = ast.unparse(called).rpartition(".")[2] if called is not None else kind
    return named == kind or not hasattr(builtins, kind)


def _of_answer(case: Case, outcome: Outcome, healthy: Healthy) -> tuple[str, str]:
    before, now = healthy.outcome.answers, outcome.answers
    if before and not now:
        return "rubbish", "neither an answer nor an error"
    wrong = next(filter(None, (_wrong(*pair, healthy) for pair in zip(before, now, strict=False))), "")
    if wrong:
        return "rubbish", f"an answer without an error, and {wrong}"
    if healthy.varying:
        return "unjudged", "answers without an error; its answers differ from request to request anyway"
    same = [a.tensors for a in before] == [a.tensors for a in now]
    if outcome.others and not same and not case.has("timing"):
        return "fallback", f"an answer by the help of {', '.join(map(repr, outcome.others))}"
    if case.has("timing"):
        if same:
            return "unharmed", "the same answer as ever"
        return "rubbish", f"another answer, though only the time at which {case.called} answers is another"
    if same:
        does = " and ".join(f"'{model}' {fault.says}" for model, fault in case.planted)
        return "unaffected", f"the same answer as ever, though {does}"
    if case.has("error"):
        blank = next(filter(None, (_blank(*pair) for pair in zip(before, now, strict=False))), "")
        if blank:
            return "silent", f"an answer without an error, though {case.called} failed; {blank}"
        return "fallback", f"an answer without {case.called}"
    return "silent", "an answer without an error, another than when all is well"


def _blank(before: DrillResponse, now: DrillResponse) -> str:
    """Which output has nothing in it any more, where no other output may say why."""
    found = ""
    for name, is_now in now.tensors.items():
        was = before.tensors.get(name)
        if was is None or was.digest == is_now.digest:
            continue
        if was.blank or is_now.datatype == "BOOL":
            return ""  # a flag, or a text of its own, which is there for that
        if is_now.blank and not found:
            nothing = "no text" if is_now.datatype == "BYTES" else "zeros alone"
            found = f"{name} has {nothing if is_now.elements else 'no values'}"
    return found


def _wrong(before: DrillResponse, now: DrillResponse, healthy: Healthy) -> str:
    """What shows that an answer is no good, whatever its values mean."""
    lost = [name for name in before.tensors if name not in now.tensors]
    if lost:
        return f"without its output {lost[0]}"
    for name, is_now in now.tensors.items():
        was = before.tensors.get(name)
        if was is None:
            continue
        if is_now.datatype != was.datatype:
            return f"{name} is {is_now.datatype} instead of {was.datatype}"
        if is_now.strange and not was.strange:
            return f"{name} has NaN or infinity in {is_now.strange:,} of its places"
        if len(is_now.shape) != len(was.shape):
            return f"{name} has the shape {list(is_now.shape)} instead of {list(was.shape)}"
        if healthy.batching and is_now.shape and is_now.shape[0] != was.shape[0]:
            return f"{name} has {is_now.shape[0]} rows for {was.shape[0]}"
    own = f"model '{healthy.model}', output "
    new = [each for each in now.warnings if each.startswith(own) and each not in before.warnings]
    return first_line(new[0]) if new else ""


@dataclass(frozen=True)
class TensorFacts:
    """An output. Equal values have equal ``digest``; ``strange`` is the number of NaN and infinite elements.

    ``blank`` says that there is nothing but zeros or empty texts.
    """

    datatype: str
    shape: tuple[int, ...]
    digest: str
    strange: int = 0
    blank: bool = False

    @property
    def elements(self) -> int:
        """How many values it has."""
        return prod(self.shape)


@dataclass(frozen=True)
class DrillResponse:
    """One response."""

    tensors: Mapping[str, TensorFacts] = field(default_factory=dict)
    error: ErrorRecord | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What one request came to.

    ``state`` is answered; waited, where it was answered once what it waited for had been let go; or stuck,
    where it was not answered then either. ``where`` is the line of the model that it waited on. ``calls``
    counts the requests that each model got that misbehaves; ``others`` are models that got more requests than
    when all is well. ``left`` says what was left behind, a line each.
    """

    answers: tuple[DrillResponse, ...] = ()
    state: str = "answered"
    where: CodePlace | None = None
    limitless: bool = False  # it waits without a time limit, for certain
    calls: Mapping[str, int] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def errors(self) -> list[ErrorRecord]:
        """What errors it was told, in order."""
        return [answer.error for answer in self.answers if answer.error is not None]

    @property
    def error(self) -> ErrorRecord | None:
        """The first error that it was told."""
        return next(iter(self.errors), None)


def facts_of(response: Response) -> DrillResponse:
    """Return a response as facts."""
    record = response.record
    tensors = {t.name(): facts_of_tensor(t) for t in response.output_tensors()}
    return DrillResponse(tensors, record.error, record.warnings)


def facts_of_tensor(tensor: Tensor) -> TensorFacts:
    """Return a tensor as facts."""
    array = copied(tensor._array, tensor._datatype)
    strange = int(array.size - np.isfinite(array).sum()) if array.dtype.kind == "f" else 0
    shape = tuple(map(int, array.shape))
    return TensorFacts(tensor._datatype, shape, digest(array, tensor._datatype).hex(), strange, not array.any())


def place_of(frame: FrameRecord) -> CodePlace:
    """Return a frame as a place."""
    code = next((text.strip() for number, text in frame.source if number == frame.line), "")
    file = frame.file.replace("\\", "/")
    inside = file.rpartition(f"/{frame.model}/")  # in the model's folder, wherever that is
    return CodePlace(frame.model, f"{frame.model}/{inside[2]}" if inside[1] else file, frame.line, code)
