"""Check claims about a recorded session, such as ``overlapped 4`` or ``peak < 2 MB on gpu:0``. Pure."""

from __future__ import annotations

import difflib
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bls_notebook.display.document import Document
from bls_notebook.display.records.messages import message_document
from bls_notebook.lifetimes.records import Life, Lifetimes
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.records.comparison import CAUSES, Comparison
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import Span
from bls_notebook.records.base import Record
from bls_notebook.records.errors import BLSError
from bls_notebook.records.intervals import Interval, levels
from bls_notebook.records.repository import MessageRecord, ResponseRecord
from bls_notebook.records.units import count, duration, quantity, size

_OPERATOR = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*")
_PLACES = {
    "N": r"(?P<n>\d{1,9})",
    "MODEL": r"(?P<model>\S+)",
    "DEVICE": r"(?P<device>cpu|gpu:\d+)",
    "NAME": r"(?P<name>\S+)",
    "CAUSE": rf"(?P<cause>{'|'.join(CAUSES)})",
    "VALUE": r"(?P<value>.+)",
    "OP": r"(?P<op>==|!=|<=|>=|<|>)",
    "IS": r"(?P<op>==|!=)",
    "NUMBER": r"(?P<number>\d[\w.%]*)",
    "SIZE": r"(?P<size>\d[\d.]* ?[kmgt]?i?b?)",
    "TIME": r"(?P<time>\d[\d.]* ?(?:ns|us|µs|ms|s))",
}
_UNITS = {"n": "", "number": "", "size": "bytes", "time": "ns"}
_Words = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of claim: its syntax, an example, the magic whose record it judges, and its judge."""

    usage: str
    example: str
    recorded_by: str
    judge: Callable[[Any, _Words], Judgement]

    def read(self, claim: str) -> dict[str, str] | None:
        """Return the parts of a claim with this syntax by name, or None for another syntax."""
        pattern = re.sub(r" \[(.*?)\]", r"(?: \1)?", self.usage)
        pattern = re.sub("[A-Z]+", lambda word: _PLACES[word[0]], pattern)
        match = re.fullmatch(pattern, claim, re.IGNORECASE)
        return None if match is None else {name: text or "" for name, text in match.groupdict().items()}


def _limit(words: _Words) -> tuple[str, float, str]:
    """Return the operator, the limit and its unit."""
    name = next(name for name in _UNITS if name in words)
    limit = quantity(words[name])
    if limit is None:
        raise BLSError(f"claim: got {words[name]!r}, expected a {name}")
    return words["op"], limit[0], _UNITS[name]


def _of_spans(name: str) -> Callable[[Session, _Words], Judgement]:
    def judged(session: Session, words: _Words) -> Judgement:
        model = words.get("model", "")
        spans = [span for span in session.spans if model in ("", span.model)]
        value = {
            "requests": len(spans),
            "queued": sum(span.queue for span in spans),
            "moved": sum(span.crossings for span in spans),
            "wall": session.wall,
        }[name]
        hint = HOW_TENSORS_MOVE if name == "moved" else ""
        of = f" of {model}" if model else ""
        return number(name, value, *_limit(words), of=of, hint=hint)

    return judged


def _of_responses(name: str) -> Callable[[tuple[ResponseRecord, ...], _Words], Judgement]:
    def judged(responses: tuple[ResponseRecord, ...], words: _Words) -> Judgement:
        errors = [each.error.message for each in responses if each.error is not None]
        first = (responses[0].seconds or 0.0) * 1e9 if responses else 0.0
        value = {"errors": len(errors), "responses": len(responses), "first": first}[name]
        hint = errors[0].partition("\n")[0] if errors and name == "errors" else ""
        return number(name, value, *_limit(words), hint=hint)

    return judged


def _peak(lifetimes: Lifetimes, words: _Words) -> Judgement:
    compare, limit, _ = _limit(words)
    return peak(lifetimes, compare, limit, words["device"])


_PROFILE, _COMPARISON, _MEMORY, _ANSWERS = "%%blsprofile", "%blsprofile", "%%blsmemory", "%bls"
FORMS = {
    form.usage.partition(" ")[0]: form
    for form in (
        Form(
            "overlapped N [of MODEL]", "overlapped 4", _PROFILE,
            lambda session, words: overlapped(session, int(words["n"]), words["model"]),
        ),
        Form(
            "called MODEL [N]", "called resize 4", _PROFILE,
            lambda session, words: called(session, words["model"], int(words["n"] or 0)),
        ),
        Form("requests OP N [of MODEL]", "requests == 4 of resize", _PROFILE, _of_spans("requests")),
        Form("queued OP TIME [of MODEL]", "queued < 5 ms", _PROFILE, _of_spans("queued")),
        Form("moved OP N [of MODEL]", "moved == 0", _PROFILE, _of_spans("moved")),
        Form("wall OP TIME", "wall < 100 ms", _PROFILE, _of_spans("wall")),
        Form(
            "verdict IS CAUSE", "verdict == helped", _COMPARISON,
            lambda comparison, words: verdict(comparison, words["op"], words["cause"]),
        ),
        Form("speedup OP NUMBER", "speedup > 2", _COMPARISON,
            lambda comparison, words: number(
                "speedup", comparison.speedup, *_limit(words), hint=comparison.verdict.advice
            ),
        ),
        Form(
            "nothing_left [on DEVICE]", "nothing_left", _MEMORY,
            lambda lifetimes, words: left_nothing(lifetimes, words["device"]),
        ),
        Form("peak OP SIZE [on DEVICE]", "peak < 2 MB on gpu:0", _MEMORY, _peak),
        Form(
            "output NAME IS VALUE", "output DIGIT == 3", _ANSWERS,
            lambda answers, words: output(answers, words["name"], words["op"], words["value"]),
        ),
        Form(
            "device IS DEVICE", "device == gpu:0", _ANSWERS,
            lambda answers, words: where(answers, words["op"], words["device"]),
        ),
        Form("errors OP N", "errors == 0", _ANSWERS, _of_responses("errors")),
        Form("responses OP N", "responses == 5", _ANSWERS, _of_responses("responses")),
        Form("first OP TIME", "first < 50 ms", _ANSWERS, _of_responses("first")),
    )
}  # fmt: skip
"""All kinds of claims by their first word. In `usage`, OP is a comparison operator, IS is == or !=."""


def judge(recorded: Any, claim: str) -> Judgement:
    """Judge whether a claim about a record is true.

    Parameters
    ----------
    recorded : Profile, Session, Comparison, Lifetimes, Response or sequence of Response
        The record, or a mapping of magics to their last records, from which the claim's kind selects one.
    claim : str
        Such as ``overlapped 4``, ``called resize 4``, ``nothing_left``, ``peak < 2 MB on gpu:0``,
        ``verdict == helped``, ``speedup > 2``, ``output DIGIT == 3``; ``%blscheck?`` lists them all.

    Returns
    -------
    Judgement
        True if the claim holds. It reports the observation, and has a hint if the claim does not hold.

    Raises
    ------
    BLSError
        The claim has no known syntax, or needs another kind of record.

    Examples
    --------
    >>> with bls.profile() as profile:
    ...     answer = repo.infer("page", {"IMAGES": images})
    >>> assert bls.judge(profile, "overlapped 4 of scanner")
    """
    form, read = _read(claim)
    records = recorded if isinstance(recorded, Mapping) else records_of(recorded)
    if form.recorded_by not in records:
        got = "nothing yet" if isinstance(recorded, Mapping) else type(recorded).__name__
        raise BLSError(f"claim {claim!r}: got {got}, expected a record of {form.recorded_by}: run a cell with it first")
    return form.judge(records[form.recorded_by], read)


def recorded_by(claim: str) -> str:
    """Return the magic whose records a claim judges; raises a BLSError for unknown syntax."""
    return _read(claim)[0].recorded_by


def _read(claim: str) -> tuple[Form, _Words]:
    words = " ".join(_OPERATOR.sub(r" \1 ", claim).split())
    form = FORMS.get(words.partition(" ")[0])
    if form is None:
        raise BLSError(f"claim: got {claim!r}, {_known(words.partition(' ')[0])}")
    read = form.read(words)
    if read is None:
        raise BLSError(f"claim: got {claim!r}, expected {_spelled(form.usage)}, such as: {form.example}")
    return form, read


def records_of(recorded: Any) -> dict[str, Any]:
    """Return the records that claims can judge, by the magic that makes such records."""
    record = getattr(recorded, "record", recorded)
    if isinstance(record, Comparison):
        return {_COMPARISON: record, _PROFILE: record.gathered}
    if isinstance(record, Session):
        return {_PROFILE: record}
    if isinstance(record, Lifetimes):
        return {_MEMORY: record}
    answers = getattr(recorded, "records", [record] if isinstance(record, ResponseRecord) else recorded)
    if isinstance(answers, (list, tuple)):
        responses = [getattr(answer, "record", answer) for answer in answers]
        if responses and all(isinstance(response, ResponseRecord) for response in responses):
            return {_ANSWERS: tuple(responses)}
    return {}


def _spelled(usage: str) -> str:
    return usage.replace("IS", "==")


def _known(word: str) -> str:
    close = difflib.get_close_matches(word, FORMS, 1)
    if close:
        return f"did you mean {_spelled(FORMS[close[0]].usage)}?"
    return f"expected one of {', '.join(FORMS)}"


OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne,
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip

HOW_TENSORS_MOVE = (
    'An input is moved to the CPU unless the model sets FORCE_CPU_ONLY_INPUT_TENSORS to "no"; an output stays '
    "on the device on which its model made it, or is moved to --device (preferred_memory)."
)


@dataclass(frozen=True, slots=True, repr=False)
class Judgement(Record):
    """A ``claim``, whether it ``holds``, the observation (``seen``), and a ``hint`` if it does not hold.

    A judgement is true if its claim holds, so that ``assert`` accepts it and shows the observation on failure.
    """

    claim: str
    holds: bool
    seen: str
    hint: str = ""

    def __post_init__(self) -> None:
        if self.holds:
            object.__setattr__(self, "hint", "")

    def __bool__(self) -> bool:
        return self.holds

    def __repr__(self) -> str:
        return f"<{self.claim}: {'yes' if self.holds else 'no'}, {self.seen}>"


def overlapped(session: Session, least: int, model: str = "") -> Judgement:
    """Judge whether at least `least` requests, to one model or to any, were at work at the same moment.

    A request in a queue is not at work. Nor is a caller that waits for its callees, unless `model` is the caller.
    """
    spans = [span for span in session.spans if model in ("", span.model)]
    most = _most(_at_work(span) for span in spans)
    if not model:
        # The larger of two counts: requests of one model, or of all models without callers that wait.
        tree = SpanTree(session)
        own = [
            interval
            for execution, members in tree.members.items()
            for interval in tree.self_time(execution) * len(members)
        ]
        names = {span.model for span in spans}
        most = max([_most(own), *(_most(_at_work(s) for s in spans if s.model == name) for name in names)])
    of = f" of {model}" if model else ""
    seen = f"{'at most ' * (most < least)}{count(most, 'request')}{of} at work at the same time"
    seen = seen if most else f"no request{of} was at work"
    return Judgement(f"overlapped {least}{of}", most >= least, seen, _why_apart(spans, least, of))


def _at_work(span: Span) -> Interval:
    """Return the interval in which the model worked on a request: until the last response of a stream."""
    if not span.ran:
        return (0, 0)
    return (span.started, span.ended if span.kind == "stream" else span.inferred)


def _most(intervals: Iterable[Interval]) -> int:
    return max((level for _, level in levels(intervals)), default=0)


def _why_apart(spans: Sequence[Span], least: int, of: str) -> str:
    if len(spans) < least:
        return f"There were {count(len(spans), 'request')}{of} in all: send {least}."
    if _most((span.sent, span.ended) for span in spans) < least:
        return (
            "Each request was sent after an earlier response: send all with async_exec, and await them together "
            "with asyncio.gather."
        )
    return (
        "They were sent together but waited in a queue: a higher instance_group.count lets them run side by side. "
        "An async execute of a model that is not decoupled takes one request at a time."
    )


def called(session: Session, model: str, times: int = 0) -> Judgement:
    """Judge whether a model received requests: exactly `times`, or any number for 0."""
    requests = sum(span.model == model for span in session.spans)
    others = Counter(span.model for span in session.spans if span.model != model)
    listed = ", ".join(f"{name} {number:,}" for name, number in others.most_common(4))
    seen = f"{count(requests, 'request')} to {model}" + (f"; others: {listed}" if listed else "")
    hint = f"Send {'more' if requests < times else 'fewer'} requests to {model}." if times else ""
    hint = hint or f"No request to {model} was recorded."
    claim = f"called {model}" + (f" {times}" if times else "")
    return Judgement(claim, requests == times if times else requests > 0, seen, hint)


def left_nothing(lifetimes: Lifetimes, device: str = "") -> Judgement:
    """Judge whether all memory that requests allocated is free, on one device or on all."""
    lives = [life for life in lifetimes.left_behind() if device in ("", life.device)]
    on = f" on {device}" if device else ""
    if not lives:
        return Judgement(f"nothing_left{on}", True, f"nothing left behind{on}")
    holders = [holder for life in lives for holder in life.holders]
    names = list(dict.fromkeys(holder.name.partition("[")[0] or holder.kind for holder in holders))
    by = f", held by {' and '.join(names[:3])}" if names else ""
    places = " and ".join(dict.fromkeys(life.device for life in lives))
    held = f"{size(sum(life.bytes for life in lives))} on {places} in {count(len(lives), 'block')}{by}"
    remedy = next((holder.remedy for holder in holders if holder.remedy), "")
    hint = "A reference to a tensor, to its response or to a view keeps all of the tensor's memory."
    return Judgement(f"nothing_left{on}", False, held, hint + (f" To free it: {remedy}" if remedy else ""))


def peak(lifetimes: Lifetimes, compare: str, limit: float, device: str = "") -> Judgement:
    """Judge the peak memory of a device, by default of the device with the highest peak."""
    names = [record.name for record in lifetimes.devices if device in ("", record.name)]
    tops = [(lifetimes.peak(name), name) for name in names]
    top, name = max(tops, key=lambda pair: pair[0].bytes, default=(lifetimes.peak(device), device))
    seen = f"a peak of {size(top.bytes)}" + (f" on {name}" if name else "")
    claim = f"peak {compare} {size(int(limit))}" + (f" on {device}" if device else "")
    largest = ", ".join(_largest(top.lives))
    hint = f"Alive at that moment: {largest}." if largest else ""
    return Judgement(claim, OPERATORS[compare](top.bytes, limit), seen, hint)


def _largest(lives: Sequence[Life]) -> list[str]:
    sums: Counter[str] = Counter()
    for life in lives:
        sums[f"{life.maker.model or 'notebook'}/{life.tensor or life.kind}"] += life.bytes
    return [f"{name} {size(total)}" for name, total in sums.most_common(3)]


def verdict(comparison: Comparison, compare: str, cause: str) -> Judgement:
    """Judge the cause in a comparison's verdict: a key of `CAUSES`."""
    given = comparison.verdict
    holds = (given.cause == cause) == (compare == "==")
    return Judgement(f"verdict {compare} {cause}", holds, f"{given.cause}: {given.sentence}", given.advice)


def number(
    name: str, value: float, compare: str, limit: float, unit: str = "", of: str = "", hint: str = ""
) -> Judgement:
    """Judge one figure against a limit; times are in ns."""

    def spelled(value: float) -> str:
        if unit == "ns":
            return duration(value / 1e9)
        return size(int(value)) if unit == "bytes" else f"{value:,.3g}" if value % 1 else f"{value:,.0f}"

    claim = f"{name} {compare} {spelled(limit)}{of}"
    return Judgement(claim, OPERATORS[compare](value, limit), f"{name}{of}: {spelled(value)}", hint)


def where(responses: Sequence[ResponseRecord], compare: str, device: str) -> Judgement:
    """Judge the device of all output tensors."""
    tensors = [tensor for response in responses for tensor in response.tensors]
    matches = [tensor.device.partition(" ")[0] == device for tensor in tensors]
    holds = bool(matches) and (all(matches) if compare == "==" else not any(matches))
    seen = ", ".join(f"{tensor.name} on {tensor.device}" for tensor in tensors[:4]) or "no output tensors"
    return Judgement(f"device {compare} {device}", holds, seen, HOW_TENSORS_MOVE)


def output(responses: Sequence[ResponseRecord], name: str, compare: str, value: str) -> Judgement:
    """Judge an output by its preview: the first elements, as displays show them."""
    previews = [tensor.preview for response in responses for tensor in response.tensors if tensor.name == name]
    holds = bool(previews) and all((_bare(preview) == _bare(value)) == (compare == "==") for preview in previews)
    errors = [response.error.message for response in responses if response.error is not None]
    outputs = ", ".join(dict.fromkeys(tensor.name for response in responses for tensor in response.tensors))
    shown = ", ".join(previews[:4]) or (f"an error, {errors[0].splitlines()[0]}" if errors else "no such output")
    hint = "" if previews or errors or not outputs else f"The outputs are {outputs}."
    return Judgement(f"output {name} {compare} {value}", holds, f"{name}: {shown}", hint)


def _bare(preview: str) -> str:
    return "".join(preview.split()).strip("[]")


def judgement_document(judgement: Judgement) -> Document:
    """Show whether a claim holds and the observation; the hint has its own line."""
    kind = "done" if judgement.holds else "error"
    return message_document(MessageRecord(f"{judgement.claim}: {judgement.seen}", kind, judgement.hint))
