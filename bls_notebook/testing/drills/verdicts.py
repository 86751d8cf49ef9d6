"""Verdicts of a drill: compare the outcome of a request with the outcome without a fault. Pure.

A verdict claims no more than was observed. A response that may be intended, such as one computed from wrong
numbers, is ``silent``; one that cannot be judged is ``unjudged``.
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
from bls_notebook.records import ErrorRecord, FrameRecord, count, first_line
from bls_notebook.repository import Response
from bls_notebook.testing.recording.payload_tape import copied
from bls_notebook.testing.recording.recording_file import digest
from bls_notebook.testing.records import CodePlace

from .faults import CODES, Fault

_WITHOUT_HARM = ("clear", "vague", "fallback", "silent", "unharmed", "unaffected", "unjudged")  # but for a storm
SourceLines = Callable[[FrameRecord], Sequence[str]]  # the lines of a frame's file
_Verdict = tuple[str, str, "CodePlace | None"]
_AT = "\n\nAt:\n"
_ERROR = re.compile(r"(?i)error|exception|fail|unavailable|not available|could ?n[o']t|cannot|unable")
_TEXTS, _TEXT = 16, 2000  # elements of a tensor, and bytes of each, whose text is kept
_FOR_EVER = "(The real server would keep the caller waiting forever"
_STORM = 10  # times the usual number of requests to a callee that fails
LOST_CODE = "; its code is "


@dataclass(frozen=True)
class Healthy:
    """The outcome without a fault.

    ``outputs`` are the names of the callees' outputs. ``varying``: two requests in a row had different responses.
    ``batching``: the first dimension of outputs counts rows. ``asked`` counts the requests that each callee got.
    """

    outcome: Outcome
    model: str = ""
    varying: bool = False
    batching: bool = False
    outputs: frozenset[str] = frozenset()
    asked: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DrillCase:
    """The faults of a case, each with its callee, and ``words`` that occur in the callees' error messages."""

    planted: tuple[tuple[str, Fault], ...]
    words: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(model for model, _ in self.planted)

    @property
    def code(self) -> str:
        """The code of the callee's error; empty if faults of several codes, or without one, were planted."""
        codes = {CODES.get(fault.name, "") for _, fault in self.planted}
        return codes.pop() if len(codes) == 1 else ""

    def has(self, kind: str) -> bool:
        """Return whether one of the faults is of that kind."""
        return any(fault.kind == kind for _, fault in self.planted)

    @property
    def called(self) -> str:
        """The failing callees' names, for a sentence."""
        return " and ".join(f"'{model}'" for model in self.models)


def judge(case: DrillCase, outcome: Outcome, healthy: Healthy, sources: SourceLines) -> _Verdict:
    """Return the verdict on a case, an explanation in one line, and the line of code that failed."""
    if outcome.batch is not None:
        return (*_of_batch(case, outcome.batch), None)
    if not all(outcome.calls.get(model) for model in case.models):
        return "not reached", f"the request no longer reached {case.called}", None
    storm = _storm(outcome, healthy)
    if outcome.state == "stuck":
        why = f"{storm} until the drill's timeout" if storm else f"although every request to {case.called} has ended"
        return "hang", f"no response, {why}", outcome.where
    if outcome.state == "waited":
        why = (
            f"waits until {case.called} responds: the call has no time limit"
            if outcome.limitless
            else f"waited for {case.called} until the drill's timeout"
        )
        return "waits", why, outcome.where
    if outcome.error is not None:
        error = next((e for e in outcome.errors if _FOR_EVER in e.message), outcome.error)
        verdict = _of_error(case, error, sources, healthy)
    else:
        verdict = (*_of_answer(case, outcome, healthy), None)
    if outcome.left and verdict[0] not in ("crash", "rubbish"):
        return "leak", outcome.left[0], verdict[2]
    if storm and verdict[0] in _WITHOUT_HARM:
        return "storms", f"{storm}; then {verdict[1]}", verdict[2]
    return verdict


def _storm(outcome: Outcome, healthy: Healthy) -> str:
    """Describe the requests to the callee that got the most, if they are many more than usual."""
    usual = {model: max(1, healthy.asked.get(model, 1)) for model in outcome.calls}
    model = max(usual, key=lambda name: outcome.calls[name] / usual[name], default="")
    if not model or outcome.calls[model] < _STORM * usual[model]:
        return ""
    return f"'{model}' gets {outcome.calls[model]:,} requests instead of {usual[model]:,}"


def _of_batch(case: DrillCase, batch: BatchOutcome) -> tuple[str, str]:
    if not batch.formed:
        return "unjudged", "the requests did not form a batch"
    if batch.mixed is not None:
        receiver, other = batch.mixed
        return "mixes", f"request {receiver} of the batch gets the response to request {other}"
    allowed = int(case.has("batch"))
    if batch.failed > allowed:
        why = f"{case.called} failed for one" if allowed else f"only the timing of {case.called} changed"
        return "spreads", f"{batch.failed} of {batch.sent} requests fail, although {why}"
    if not allowed:
        return "unharmed", f"each of {batch.sent} requests of a batch gets its own response"
    return ("unharmed" if batch.failed else "fallback"), f"{batch.failed} of {batch.sent} requests fails"


def _of_error(case: DrillCase, error: ErrorRecord, sources: SourceLines, healthy: Healthy) -> _Verdict:
    frame = next((frame for frame in reversed(error.frames) if frame.model), None)
    place = None if frame is None else place_of(frame)
    message = error.message.partition(_AT)[0]
    text = first_line(message.rpartition("message: ")[2] or message)
    if _FOR_EVER in message:
        return "hang", f"on the real server, the caller would never get a response: {text}", place
    if _is_unintended(error, sources):
        if error.unchecked and case.has("error"):
            return "crash", f"hides the error of {case.called}: {text}", place
        if case.has("error") and not _passed_on(case, message):
            return "crash", f"does not notice that {case.called} failed: {text}", place
        return "stumbles", f"raises an unintended exception: {text}", place
    if _passed_on(case, message) or any(_names(message, output) for output in healthy.outputs):
        lost = "" if case.code in ("", error.code) else f"{LOST_CODE}{error.code} instead of {case.code}"
        return "clear", f"an error that points to {case.called}{lost}", place
    return "vague", f"an error that does not point to {case.called}: {text}", place


def _passed_on(case: DrillCase, message: str) -> bool:
    return any(words in message for words in case.words) or any(_names(message, m) for m in case.models)


def _names(message: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) is not None


def _is_unintended(error: ErrorRecord, sources: SourceLines) -> bool:
    """Return whether no `raise` or `assert` of a model raised the error, but an operation or a call."""
    if not error.kind:
        return False  # an error that the model returned, or a refused request
    if error.kind == "ReturnError":
        return True
    frame = next((frame for frame in reversed(error.frames) if frame.model), None)
    if frame is None:
        return bool(error.frames)
    if error.stage:
        return False
    if error.frames[-1] is not frame:  # a library raised it
        return True
    return not raises_at(sources(frame), frame, error.kind)


def raises_at(lines: Sequence[str], frame: FrameRecord, kind: str) -> bool:
    """Return whether the statement at a frame's line raises an exception of this kind on purpose.

    ``raise RuntimeError(error.text)`` may fail in its argument; then the exception is not the one that it names.
    """
    try:
        tree: ast.AST = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError):
        return False
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    around = [node for node in statements if node.lineno <= frame.line <= (node.end_lineno or node.lineno)]
    # The innermost statement; of several on one line, the one that begins last.
    statement = min(around, key=lambda n: ((n.end_lineno or n.lineno) - n.lineno, -n.col_offset), default=None)
    if isinstance(statement, ast.Assert):
        return kind == "AssertionError"
    if not isinstance(statement, ast.Raise):
        return False
    called = statement.exc.func if isinstance(statement.exc, ast.Call) else None
    named = ast.unparse(called).rpartition(".")[2] if called is not None else kind
    return named == kind or not hasattr(builtins, kind)


def _of_answer(case: DrillCase, outcome: Outcome, healthy: Healthy) -> tuple[str, str]:
    before, now = healthy.outcome.answers, outcome.answers
    if before and not now:
        return "rubbish", "neither a response nor an error"
    wrong = next(filter(None, (_wrong(*pair, healthy) for pair in zip(before, now, strict=False))), "")
    if wrong:
        return "rubbish", f"no error, but {wrong}"
    if told := next(filter(None, (_told(case, *pair) for pair in zip(before, now, strict=False))), None):
        return told
    if healthy.varying:
        return "unjudged", "no error; the responses differ from request to request without a fault too"
    same = [a.tensors for a in before] == [a.tensors for a in now]
    if outcome.other_requests:
        return "rubbish", f"tries again, but sends {case.called} another request than the one that failed"
    if same and outcome.earlier:
        return "silent", f"no error, although {case.called} failed; other inputs get the same response, too"
    if case.has("once") and same:
        return "unharmed", f"the same response, although {case.called} failed once"
    if case.has("cancel"):
        return "unobserved", "nobody sees the response; the next requests are answered as before"
    if outcome.others and not same and not case.has("timing"):
        return "fallback", f"a response with the help of {', '.join(map(repr, outcome.others))}"
    if case.has("timing"):
        if same:
            return "unharmed", "the same response as without the fault"
        return "rubbish", f"another response, although only the timing of {case.called} changed"
    if same:
        does = " and ".join(f"'{model}' {fault.says}" for model, fault in case.planted)
        return "unaffected", f"the same response, although {does}"
    if case.has("error") or case.has("once") or case.has("stall"):
        pairs = list(zip(before, now, strict=False))
        blank = next(filter(None, (_blank(*pair, outcome.constant is None) for pair in pairs)), "")
        if not any(_reports(*pair) for pair in pairs):
            if outcome.partial:
                blank = "the response is made of what it sent before that"
            elif len(now) < len(before):
                blank = f"{count(len(now), 'response')} instead of {len(before)}"
            elif outcome.earlier:
                blank = "the response is that to an earlier request"
            elif outcome.constant:
                names = {n for was, is_now in pairs for n, t in is_now.tensors.items() if was.tensors.get(n) != t}
                part = "the response" if names.issuperset(*(a.tensors for a in now)) else ", ".join(sorted(names))
                blank = blank or f"{part} is the same for other inputs: a constant"
        if blank:
            how = "did not respond" if case.has("stall") else "failed"
            return "silent", f"no error, although {case.called} {how}; {blank}"
        return "fallback", f"a response without {case.called}"
    return "silent", "no error, but another response than without the fault"


def _blank(before: DrillResponse, now: DrillResponse, may_be_constant: bool) -> str:
    """Describe an output that became empty, zero or, if that may be a constant, uniform.

    Empty if another output may report the failure.
    """
    if _reports(before, now):
        return ""
    for name, is_now in now.tensors.items():
        was = before.tensors.get(name)
        if was is None or was.digest == is_now.digest:
            continue
        if is_now.blank:
            content = "no text" if is_now.datatype == "BYTES" else "only zeros"
            return f"{name} has {content if is_now.elements else 'no values'}"
        if is_now.uniform and may_be_constant and is_now.elements > 1:
            return f"{name} has the same value everywhere"
    return ""


def _told(case: DrillCase, before: DrillResponse, now: DrillResponse) -> tuple[str, str] | None:
    """Return the verdict on a response whose text reports an error; None if none does."""
    for name, is_now in now.tensors.items():
        was = before.tensors[name].text if name in before.tensors else ""
        new = is_now.text if is_now.text != was else ""
        if _passed_on(case, new) and not _passed_on(case, was):
            return "clear", f"the text of {name} reports the error of {case.called}"
        if _ERROR.search(new) and not _ERROR.search(was):
            return "fallback", f"the text of {name} reports an error"
    return None


def _reports(before: DrillResponse, now: DrillResponse) -> bool:
    """Return whether a changed output is a flag or a message that probably reports the failure."""
    changed = [
        (before.tensors[name], is_now)
        for name, is_now in now.tensors.items()
        if name in before.tensors and before.tensors[name].digest != is_now.digest
    ]
    return any(was.blank or is_now.datatype == "BOOL" for was, is_now in changed)


def _wrong(before: DrillResponse, now: DrillResponse, healthy: Healthy) -> str:
    """Describe why a response is wrong whatever its values mean; empty if nothing shows that."""
    lost = [name for name in before.tensors if name not in now.tensors]
    if lost:
        return f"output {lost[0]} is missing"
    for name, is_now in now.tensors.items():
        was = before.tensors.get(name)
        if was is None:
            continue
        if is_now.datatype != was.datatype:
            return f"{name} is {is_now.datatype} instead of {was.datatype}"
        if is_now.strange and not was.strange:
            return f"{name} has {is_now.strange:,} elements that are NaN or infinite"
        if len(is_now.shape) != len(was.shape):
            return f"{name} has the shape {list(is_now.shape)} instead of {list(was.shape)}"
        if healthy.batching and is_now.shape and is_now.shape[0] != was.shape[0]:
            return f"{name} has {is_now.shape[0]} rows instead of {was.shape[0]}"
    own = f"model '{healthy.model}', output "
    new = [warning for warning in now.warnings if warning.startswith(own) and warning not in before.warnings]
    return first_line(new[0]) if new else ""


@dataclass(frozen=True)
class TensorFacts:
    """An output. Equal values have equal ``digest``; ``strange`` is the number of NaN and infinite elements.

    ``blank``: all elements are zero or empty texts; ``uniform``: all are equal. ``text`` begins a BYTES tensor.
    """

    datatype: str
    shape: tuple[int, ...]
    digest: str
    strange: int = 0
    blank: bool = False
    uniform: bool = False
    text: str = ""

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class DrillResponse:
    """One response."""

    tensors: Mapping[str, TensorFacts] = field(default_factory=dict)
    error: ErrorRecord | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class BatchOutcome:
    """Requests sent at once: how many were sent and failed, and whether they formed a batch.

    ``mixed`` are the numbers of a request and of the one whose response it got; None if each got its own.
    """

    sent: int
    failed: int
    formed: bool
    mixed: tuple[int, int] | None = None


@dataclass(frozen=True)
class Outcome:
    """Outcome of one request.

    ``state`` is answered; waited, if the response came only after the stalled callee was released; or stuck, if it
    did not come then either. ``where`` is the line at which the model waited. ``calls`` counts the requests that
    each failing callee got; ``others`` are models that got more requests than without the fault. ``left`` has a
    line for each kind of leftover.
    """

    answers: tuple[DrillResponse, ...] = ()
    state: str = "answered"
    where: CodePlace | None = None
    limitless: bool = False  # the model certainly waits without a time limit
    calls: Mapping[str, int] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    seconds: float = 0.0
    constant: bool | None = None  # whether the response was the same for other inputs; None if unknown
    other_requests: int = 0  # after an error, requests that the model does not send without a fault
    earlier: bool = False  # the response is that to an earlier request with other inputs, or other inputs get it, too
    partial: bool = False  # another response than if the callee had failed before its first response
    batch: BatchOutcome | None = None

    @property
    def errors(self) -> list[ErrorRecord]:
        return [answer.error for answer in self.answers if answer.error is not None]

    @property
    def error(self) -> ErrorRecord | None:
        """The first error, or None."""
        return next(iter(self.errors), None)


def facts_of(response: Response) -> DrillResponse:
    record = response.record
    tensors = {t.name(): facts_of_tensor(t) for t in response.output_tensors()}
    return DrillResponse(tensors, record.error, record.warnings)


def facts_of_tensor(tensor: Tensor) -> TensorFacts:
    array = copied(tensor._array, tensor._datatype)
    strange = int(array.size - np.isfinite(array).sum()) if array.dtype.kind == "f" else 0
    shape = tuple(map(int, array.shape))
    flat = array.ravel()
    uniform = bool(flat.size == 0 or (flat == flat[0]).all())
    content = digest(array, tensor._datatype).hex()
    text = ""
    if tensor._datatype == "BYTES":
        items = [item[:_TEXT] for item in flat[:_TEXTS].tolist()]
        text = "\n".join(item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in items)
    return TensorFacts(tensor._datatype, shape, content, strange, not array.any(), uniform, text)


def place_of(frame: FrameRecord) -> CodePlace:
    code = next((text.strip() for number, text in frame.source if number == frame.line), "")
    file = frame.file.replace("\\", "/")
    inside = file.rpartition(f"/{frame.model}/")  # the path below the model's folder
    return CodePlace(frame.model, f"{frame.model}/{inside[2]}" if inside[1] else file, frame.line, code)
