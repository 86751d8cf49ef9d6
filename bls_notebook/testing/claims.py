"""Claims about what was recorded, as a person types them: ``overlapped 4``, ``peak < 2 MB on gpu:0``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bls_notebook.lifetimes.records import Lifetimes
from bls_notebook.profiling.records.comparison import CAUSES, Comparison
from bls_notebook.profiling.records.session import Session
from bls_notebook.records.errors import BLSError
from bls_notebook.records.quantities import quantity
from bls_notebook.records.repository import ResponseRecord

from . import judging
from .judging import Judgement

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
    """A kind of claim: how it is written, the magic whose record it is about, and its judge."""

    usage: str
    example: str
    recorded_by: str
    judge: Callable[[Any, _Words], Judgement]

    def read(self, claim: str) -> dict[str, str] | None:
        """Return the parts of a claim that is written so, or None."""
        pattern = re.sub(r" \[(.*?)\]", r"(?: \1)?", self.usage)
        pattern = re.sub("[A-Z]+", lambda word: _PLACES[word[0]], pattern)
        found = re.fullmatch(pattern, claim, re.IGNORECASE)
        return None if found is None else {name: text or "" for name, text in found.groupdict().items()}


def _limit(words: _Words) -> tuple[str, float, str]:
    """The operator, the number behind it, and its unit."""
    name = next(name for name in _UNITS if name in words)
    found = quantity(words[name])
    if found is None:
        raise BLSError(f"claim: got {words[name]!r}, expected a {name}")
    return words["op"], found[0], _UNITS[name]


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
        hint = judging.HOW_TENSORS_MOVE if name == "moved" else ""
        of = f" of {model}" if model else ""
        return judging.number(name, value, *_limit(words), of=of, hint=hint)

    return judged


def _of_responses(name: str) -> Callable[[tuple[ResponseRecord, ...], _Words], Judgement]:
    def judged(responses: tuple[ResponseRecord, ...], words: _Words) -> Judgement:
        errors = [each.error.message for each in responses if each.error is not None]
        first = (responses[0].seconds or 0.0) * 1e9 if responses else 0.0
        value = {"errors": len(errors), "responses": len(responses), "first": first}[name]
        hint = errors[0].partition("\n")[0] if errors and name == "errors" else ""
        return judging.number(name, value, *_limit(words), hint=hint)

    return judged


def _speedup(comparison: Comparison, words: _Words) -> Judgement:
    return judging.number("speedup", comparison.speedup, *_limit(words), hint=comparison.verdict.advice)


def _peak(lifetimes: Lifetimes, words: _Words) -> Judgement:
    compare, limit, _ = _limit(words)
    return judging.peak(lifetimes, compare, limit, words["device"])


_PROFILE, _COMPARISON, _MEMORY, _ANSWERS = "%%blsprofile", "%blsprofile", "%%blsmemory", "%bls"
FORMS = {
    form.usage.partition(" ")[0]: form
    for form in (
        Form(
            "overlapped N [of MODEL]", "overlapped 4", _PROFILE,
            lambda session, words: judging.overlapped(session, int(words["n"]), words["model"]),
        ),
        Form(
            "called MODEL [N]", "called resize 4", _PROFILE,
            lambda session, words: judging.called(session, words["model"], int(words["n"] or 0)),
        ),
        Form("requests OP N [of MODEL]", "requests == 4 of resize", _PROFILE, _of_spans("requests")),
        Form("queued OP TIME [of MODEL]", "queued < 5 ms", _PROFILE, _of_spans("queued")),
        Form("moved OP N [of MODEL]", "moved == 0", _PROFILE, _of_spans("moved")),
        Form("wall OP TIME", "wall < 100 ms", _PROFILE, _of_spans("wall")),
        Form(
            "verdict IS CAUSE", "verdict == helped", _COMPARISON,
            lambda comparison, words: judging.verdict(comparison, words["op"], words["cause"]),
        ),
        Form("speedup OP NUMBER", "speedup > 2", _COMPARISON, _speedup),
        Form(
            "nothing_left [on DEVICE]", "nothing_left", _MEMORY,
            lambda lifetimes, words: judging.left_nothing(lifetimes, words["device"]),
        ),
        Form("peak OP SIZE [on DEVICE]", "peak < 2 MB on gpu:0", _MEMORY, _peak),
        Form(
            "output NAME IS VALUE", "output DIGIT == 3", _ANSWERS,
            lambda answers, words: judging.output(answers, words["name"], words["op"], words["value"]),
        ),
        Form(
            "device IS DEVICE", "device == gpu:0", _ANSWERS,
            lambda answers, words: judging.where(answers, words["op"], words["device"]),
        ),
        Form("errors OP N", "errors == 0", _ANSWERS, _of_responses("errors")),
        Form("responses OP N", "responses == 5", _ANSWERS, _of_responses("responses")),
        Form("first OP TIME", "first < 50 ms", _ANSWERS, _of_responses("first")),
    )
}  # fmt: skip
"""The claims that there are, by their first word. In their usage OP is a comparison, IS is == or !=."""


def judge(recorded: Any, claim: str) -> Judgement:
    """Judge whether what was recorded bears out a claim.

    Parameters
    ----------
    recorded : Profile, Session, Comparison, Lifetimes, Response or sequence of Response
        Or a mapping of magics to their last records, of which the one that the claim is about is taken.
    claim : str
        Such as ``overlapped 4``, ``called resize 4``, ``nothing_left``, ``peak < 2 MB on gpu:0``,
        ``verdict == helped``, ``speedup > 2``, ``output DIGIT == 3``; ``%blscheck?`` lists them all.

    Returns
    -------
    Judgement
        True where it holds; it says what was seen, and has a hint where it does not.

    Raises
    ------
    BLSError
        The claim cannot be understood, or is about something else than what was recorded.

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
        raise BLSError(
            f"claim {claim!r}: got {got}, expected what {form.recorded_by} records: run a cell with it first"
        )
    return form.judge(records[form.recorded_by], read)


def recorded_by(claim: str) -> str:
    """Return the magic whose records a claim is about; raises as `judge` does."""
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
    """Return what can be judged of something recorded, by the magic that records it."""
    record = getattr(recorded, "record", recorded)
    if isinstance(record, Comparison):
        return {_COMPARISON: record, _PROFILE: record.gathered}
    if isinstance(record, Session):
        return {_PROFILE: record}
    if isinstance(record, Lifetimes):
        return {_MEMORY: record}
    answers = getattr(recorded, "records", [record] if isinstance(record, ResponseRecord) else recorded)
    if isinstance(answers, (list, tuple)):
        each = [getattr(answer, "record", answer) for answer in answers]
        if each and all(isinstance(answer, ResponseRecord) for answer in each):
            return {_ANSWERS: tuple(each)}
    return {}


def _spelled(usage: str) -> str:
    return usage.replace("IS", "==")


def _known(word: str) -> str:
    close = difflib.get_close_matches(word, FORMS, 1)
    if close:
        return f"did you mean {_spelled(FORMS[close[0]].usage)}?"
    return f"expected one of {', '.join(FORMS)}"
