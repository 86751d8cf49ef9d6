"""Check claims about a recorded session, such as ``overlapped 4`` or ``peak < 2 MB on gpu:0``. Pure."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.checking.records import Findings
from bls_notebook.display import message_document, parts
from bls_notebook.display.document import Block, Document, Fold, Forms, Words
from bls_notebook.lifetimes.records import Lifetimes
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.analysis.verdict import CAUSES
from bls_notebook.profiling.records.comparison import Comparison
from bls_notebook.profiling.records.spans import NOTEBOOK, Span
from bls_notebook.profiling.session import Session
from bls_notebook.records import (
    BLSError,
    MessageRecord,
    Record,
    ResponseRecord,
    count,
    duration,
    first_line,
    quantity,
    size,
    spoken,
)

from . import recorded_calls
from .check_figures import first_problem, largest_pools, problems
from .claim_values import OPERATORS, GivenAnswer, answer_of, growth_words, left_words, lines_that_name, output, value_of
from .recorded_calls import TOO_FEW_OR_MANY, complete_sequences

_OPERATOR = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*")
_PLACES = {
    "N": r"(?P<n>\d{1,9})",
    "COUNTS": r"(?P<counts>\d{1,9}(?: then \d{1,9})*)",
    "MODEL": r"(?P<model>\S+)",
    "CALLER": r"(?P<caller>\S+)",
    "DEVICE": r"(?P<device>cpu|gpu:\d+)",
    "NAME": r"(?P<name>\S+)",
    "DTYPE": r"(?P<dtype>BOOL|U?INT(?:8|16|32|64)|[BF][FP](?:16|32|64)|BYTES)",
    "EXPRESSION": r"(?P<expression>.+?)",
    "CAUSE": rf"(?P<cause>{'|'.join(CAUSES)})",
    "TEXT": r"(?P<text>.+)",
    "VALUE": r"(?P<value>.+)",
    "OP": r"(?P<op>==|!=|<=|>=|<|>)",
    "IS": r"(?P<op>==|!=)",
    "FIRST": r"(?P<moment>first)",
    "NUMBER": r"(?P<number>\d[\w.%]*)",
    "SIZE": r"(?P<size>\d[\d.]* ?[kmgt]?i?b?)",
    "TIME": r"(?P<time>\d[\d.]* ?(?:ns|us|µs|ms|s))",
}
_UNITS = {"n": "", "number": "", "size": "bytes", "time": "ns"}
_Words = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of claim: its syntax, an example, the magic whose record it judges, the assertion for tests, its judge."""

    usage: str
    example: str
    recorded_by: str
    assertion: str
    judge: Callable[[Any, _Words], Judgement]

    def read(self, claim: str) -> dict[str, str] | None:
        """Return the parts of a claim with this syntax by name, or None for another syntax."""
        pattern = re.sub(r" \[(.*?)\]", r"(?: \1)?", self.usage)
        pattern = re.sub("[A-Z]+", lambda word: _PLACES[word[0]], pattern)
        match = re.fullmatch(pattern, claim, re.IGNORECASE)
        return None if match is None else {name: text or "" for name, text in match.groupdict().items()}


def _limit(words: _Words) -> tuple[str, float, str]:
    name = next(name for name in _UNITS if name in words)
    limit = quantity(words[name])
    if limit is None:
        raise BLSError(f"claim: got {words[name]!r}, expected a {name}")
    return words["op"], limit[0], _UNITS[name]


def _of_spans(name: str) -> Callable[[Session, _Words], Judgement]:
    def judged(session: Session, words: _Words) -> Judgement:
        model = words.get("model", "")
        spans = [span for span in session.spans if model in ("", span.model)]
        if not spans and name != "requests":
            claim = f"{name} {words['op']} {words.get('n') or words.get('time')}" + (f" of {model}" if model else "")
            return Judgement(claim, False, "no request was recorded", f"Send a request{f' to {model}' * bool(model)}.")
        value = {
            "took": min((span.ended - span.started for span in spans if span.ran), default=0),
            "requests": len(spans),
            "late": len(recorded_calls.late_calls(session, spans)),
            "executions": len({span.batch or -span.id for span in spans if span.ran}),
            "sequences": complete_sequences(spans)[0],
            "cancelled": sum("cancelled" in (span.state, *(mark.kind for mark in span.marks)) for span in spans),
            "abandoned": len(SpanTree.of(session).unawaited().keys() & {span.id for span in spans}),
            "queued": sum(span.queue for span in spans),
            "moved": sum(span.crossings for span in spans),
            "wall": session.wall,
        }[name]
        few, many = TOO_FEW_OR_MANY.get(name, ("", ""))
        hint = many if many and value > int(words["n"]) else few or HOW_TENSORS_MOVE * (name == "moved")
        if name in ("requests", "late"):
            fewer = value > int(words["n"]) or words["op"] == "<"
            hint = f"There should be {'fewer' if fewer else 'more'} requests{f' to {model}' * bool(model)}."
            hint += recorded_calls.sent_in_vain(session, spans) * fewer
        if name == "sequences":
            hint = complete_sequences(spans)[1] or f"Complete sequences should be {words['op']} {words['n']}."
            if value > int(words["n"]):
                hint += " Send START with a sequence's first request only, END with its last."
        if name == "executions" and value > int(words["n"]):
            hint = recorded_calls.why_not_together(session, spans)
        if name in ("wall", "queued") and words["op"] in ("<", "<="):
            hint = recorded_calls.longest_queue(spans)
        if name == "took":
            why = "does not wait or work as long as" if words["op"][0] == ">" else "waits or works for longer than"
            hint = f"The shortest execution took {duration(value / 1e9)}: it {why} expected."
        of = f" of {model}" if model else ""
        return _number(name, value, *_limit(words), of=of, hint=hint)

    return judged


def _of_responses(name: str) -> Callable[[tuple[GivenAnswer, ...], _Words], Judgement]:
    def judged(answers: tuple[GivenAnswer, ...], words: _Words) -> Judgement:
        responses = [answer.record for answer in answers]
        errors = [each.error.message for each in responses if each.error is not None]
        first = (responses[0].seconds or 0.0) * 1e9 if responses else 0.0
        value = {"errors": len(errors), "responses": len(responses), "first": first}[name]
        hint = spoken(errors[0]).partition("\n")[0] if errors and name == "errors" else ""
        return _number(name, value, *_limit(words), hint=hint)

    return judged


_PROFILE, _COMPARISON, _MEMORY, _ANSWERS = "%%blsprofile", "%blsprofile", "%%blsmemory", "%bls"
CHECK = "%tritonrepo check"
_COUNTS = ("requests", "late", "executions", "sequences", "cancelled", "abandoned", "moved")
_JUDGES: Mapping[str, Callable[[Any, _Words], Judgement]] = {
    **{name: _of_spans(name) for name in (*_COUNTS, "queued", "wall", "took")},
    **{name: _of_responses(name) for name in ("errors", "responses", "first")},
    "overlapped": lambda session, words: overlapped(session, int(words["n"]), words["model"], words["caller"]),
    "called": lambda session, words: called(
        session, words["model"], [int(n) for n in re.findall(r"\d+", words["counts"])], words["caller"]
    ),
    "waits": lambda session, words: waits(session, words["op"], int(words["n"]), words["model"], bool(words["moment"])),
    "verdict": lambda comparison, words: _verdict(comparison, words),
    "speedup": lambda comparison, words: _speedup(comparison, words),
    "nothing_left": lambda lifetimes, words: left_nothing(lifetimes, words["device"]),
    "peak": lambda lifetimes, words: peak(lifetimes, *_limit(words)[:2], words["device"]),
    "output": lambda answers, words: _output(answers, words, None),
    "value": lambda variables, words: _value(variables, words),
    "failed": lambda answers, words: _failed(answers, words["text"]),
    "findings": lambda findings, words: _findings(findings, words),
    "shm": lambda findings, words: _shm(findings, words),
    "device": lambda answers, words: where(answers, words["op"], words["device"]),
}
_LINES = Path(__file__).with_name("claims.txt").read_text("utf-8").splitlines()
FORMS = {
    usage.split()[0]: Form(usage, example, magic, assertion, _JUDGES[usage.split()[0]])
    for usage, example, magic, assertion in (line.split("|") for line in _LINES)
}
"""All kinds of claims by their first word. In `usage`, OP is a comparison operator, IS is == or !=."""


def judge(recorded: Any, claim: str, variables: Mapping[str, Any] | None = None) -> Judgement:
    """Judge whether a claim about a record is true.

    Parameters
    ----------
    recorded : Profile, Session, Comparison, Lifetimes, Response or sequence of Response
        The record, or a mapping of magics to their last records, from which the claim's kind selects one.
    claim : str
        Such as ``overlapped 4``, ``called resize 4``, ``nothing_left``, ``peak < 2 MB on gpu:0``,
        ``verdict == helped``, ``speedup > 2``, ``output DIGIT == 3``; ``%blscheck?`` lists them all.
    variables : mapping, optional
        Values of the names in expressions: ``output DIGITS == truth[:4]``.

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
    if not form.recorded_by:
        return _value(variables, read)
    if form.recorded_by not in records:
        got = "nothing yet" if isinstance(recorded, Mapping) else type(recorded).__name__
        raise BLSError(f"claim {claim!r}: got {got}, expected a record of {form.recorded_by}: run a cell with it first")
    record = records[form.recorded_by]
    if form.recorded_by != _ANSWERS or "value" not in read:
        return form.judge(record, read)
    return _placed(_output(record, read, variables), record, read["name"], records.get(_PROFILE))


def form_of(claim: str) -> Form:
    """Return the form of a claim; raises a BLSError for unknown syntax."""
    return _read(claim)[0]


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
    if isinstance(record, Findings):
        return {CHECK: record}
    answers = getattr(recorded, "records", [record] if isinstance(record, ResponseRecord) else recorded)
    if isinstance(answers, (list, tuple)):
        responses = [getattr(answer, "record", answer) for answer in answers]
        if responses and all(isinstance(response, ResponseRecord) for response in responses):
            return {_ANSWERS: tuple(map(answer_of, recorded if isinstance(recorded, (list, tuple)) else [recorded]))}
    return {}


def _spelled(usage: str) -> str:
    return usage.replace("IS", "==")


def _known(word: str) -> str:
    close = difflib.get_close_matches(word, FORMS, 1, 0.75)
    if close:
        return f"did you mean {_spelled(FORMS[close[0]].usage)}, such as: {FORMS[close[0]].example}?"
    examples = "; ".join(FORMS[name].example for name in FORMS)
    return f"but no claim begins with {word!r}; expected one of {', '.join(FORMS)}. Examples: {examples}"


_KEEPS_DEVICE = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }'
HOW_TENSORS_MOVE = (
    'An input is moved to the CPU unless the model sets FORCE_CPU_ONLY_INPUT_TENSORS to "no"; an output stays '
    "on the device on which its model made it, or is moved to --device (preferred_memory)."
)


@dataclass(frozen=True, slots=True, repr=False)
class Judgement(Record):
    """A ``claim``, whether it ``holds``, the observation (``seen``), and a ``hint`` if it does not hold.

    The hint names the mistake; ``steps`` lead to its repair: pairs of a label (where, what to do, code) and a text.
    A judgement is true if its claim holds, so that ``assert`` accepts it and shows the observation on failure.
    """

    claim: str
    holds: bool
    seen: str
    hint: str = ""
    steps: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.holds:
            object.__setattr__(self, "hint", "")
        steps = () if self.holds else tuple((label, text) for label, text in self.steps if text)
        object.__setattr__(self, "steps", steps)

    def __bool__(self) -> bool:
        return self.holds

    def __repr__(self) -> str:
        return f"<{self.claim}: {'yes' if self.holds else 'no'}, {self.seen}>"


def overlapped(session: Session, least: int, model: str = "", caller: str = "") -> Judgement:
    """Judge whether at least `least` requests, to one model or to any, were at work at the same moment.

    A request that waits for an instance is not at work. Nor is a caller that waits for its callees, unless `model`
    is the caller.
    """
    callers = _callers(session)
    spans = [span for span in session.spans if model in ("", span.model) and caller in ("", callers[span.id])]
    at_work = recorded_calls.at_work_intervals(session)
    most = recorded_calls.most_at_once(at_work[span.id] for span in spans)
    if not model:
        # The larger of two counts: requests of one model, or of all models without callers that wait.
        tree = SpanTree(session)
        members = tree.members.items()
        own = [interval for execution, spans in members for interval in tree.self_time(execution) * len(spans)]
        names = {span.model for span in spans}
        by_model = ([at_work[span.id] for span in spans if span.model == name] for name in names)
        most = max(map(recorded_calls.most_at_once, [own, *by_model]))
    of = f" of {model}" if model else ""
    seen = f"{'at most ' if most < least else ''}{count(most, 'request')}{of} at work at the same time"
    seen = seen if most else f"no request{of} was at work"
    by = f" by {caller}" if caller else ""
    others = _others(session, model, caller)
    waiting = set() if model else {span.parent for span in spans}  # callers, whose callees are at work for them
    hint, steps = _why_apart(session, [span for span in spans if span.id not in waiting], least, of, others)
    return Judgement(f"overlapped {least}{of}{by}", most >= least, seen, hint, steps)


def _callers(session: Session) -> dict[int, str]:
    names = {span.id: span.model for span in session.spans}
    return {span.id: names.get(span.parent, NOTEBOOK) for span in session.spans}


def _others(session: Session, model: str, caller: str) -> str:
    """Return who sent the requests that `caller` did not send; empty if nobody or no caller is expected."""
    callers = _callers(session)
    others = {callers[span.id] for span in session.spans if span.model == model} - {caller}
    if not caller or not others:
        return ""
    names = " and ".join(f"the {name}" if name == NOTEBOOK else name for name in sorted(others))
    return f"{names.capitalize() if NOTEBOOK in names else names} sent the requests to {model}, expected {caller}."


_Steps = tuple[tuple[str, str], ...]
_GATHER = "responses = await asyncio.gather(*[request.async_exec() for request in requests])"


def _why_apart(session: Session, spans: Sequence[Span], least: int, of: str, others: str) -> tuple[str, _Steps]:
    where = recorded_calls.line_of(session, spans[0]) if spans else ""
    if len(spans) < least:
        verb = "was" if len(spans) == 1 else "were"
        return f"There {verb} {count(len(spans), 'request')}{of} in all: send {least}. {others}", (("where", where),)
    in_flight = recorded_calls.most_at_once((span.sent, span.ended) for span in spans)
    senders = [span for span in session.spans if span.id in {span.parent for span in spans}]
    busy = recorded_calls.most_at_once((span.started, span.inferred) for span in senders)
    sent_at_once = recorded_calls.most_at_once((span.sent, span.ended) for span in senders)
    decoupled = {seen.name: seen.is_async for seen in session.models if seen.decoupled}
    if in_flight < least <= sent_at_once and busy < least and senders[0].model not in decoupled:
        why = f"{senders[0].model} executed {count(busy, 'request')} at a time; the others waited in its queue."
        what = (
            "A higher instance_group.count, a decoupled model with an async execute, or dynamic_batching with "
            "asyncio.gather over all requests of an execute."
        )
        return why, (("where", where), ("what to do", what))
    if sent_at_once < least <= len(senders) and in_flight < least:
        why = f"At most {count(sent_at_once, 'request')} to {senders[0].model} at a time: send {least} at once."
        return why, (("where", recorded_calls.line_of(session, senders[0])),)
    if in_flight < least:
        sent = "Each request was sent after an earlier response: "
        if in_flight > 1:
            why = f"At most {in_flight} requests were in flight: some were sent after an earlier response. "
        elif spans[0].kind == "sync":
            why = f"{sent}`exec` blocks until its response arrives. "
        else:
            why = f"{sent}each `await` waits for its response before the next request is sent. "
        what = "Send all with async_exec, and await them together with asyncio.gather, in an async execute."
        return why, (("where", where), ("what to do", what), ("code", _GATHER))
    if any(len(seen.instances) >= least for seen in session.models if seen.name == spans[0].model):
        return "They were sent together, but some were done before others began.", (("where", where),)
    if decoupled.get(spans[0].model):
        why = f"They were sent together, but the coroutine of {spans[0].model} blocks its event loop: it computes, "
        what = "Await instead (asyncio.sleep, an async client), or hand the work to asyncio.to_thread."
        return f"{why}or waits without `await`.", (
            ("where", where),
            ("what to do", what),
            ("code", "await asyncio.sleep(seconds)"),
        )
    is_async = any(seen.is_async for seen in session.models if seen.name == spans[0].model)
    return (
        "They were sent together but waited in a queue."
        + (" An async execute of a model that is not decoupled takes one request at a time." if is_async else ""),
        (
            ("what to do", f"A higher instance_group.count of {spans[0].model} lets them run side by side."),
            ("code", f"instance_group [{{ count: {least} }}]"),
        ),
    )


def waits(session: Session, compare: str, most: int, model: str = "", until_first: bool = False) -> Judgement:
    """Judge how many calls a request waited for one after the other; with `until_first`, before its first response.

    Several requests, to `model` or from the notebook, are judged by the longest chain.
    """
    chain = recorded_calls.longest_chain(session, model, until_first)
    of = (f" of {model}" if model else "") + (" until first" if until_first else "")
    each = ", then ".join(span.model for span in chain[:6]) + (", …" if len(chain) > 6 else "")
    seen = f"{count(len(chain), 'wait')}" + (f": {each}" if chain else "")
    lines = dict.fromkeys(filter(None, (recorded_calls.line_of(session, span) for span in chain)))
    steps = (("where", "\n".join(lines)), ("code", "" if until_first else _GATHER))
    hint = recorded_calls.why_waits(chain, most, until_first) if len(chain) > most else ""
    return Judgement(f"waits {compare} {most}{of}", bool(OPERATORS[compare](len(chain), most)), seen, hint, steps)


def called(session: Session, model: str, times: Sequence[int] = (), caller: str = "") -> Judgement:
    """Judge whether a model received requests, from any caller or one.

    `times` is empty for any number, has the exact number, or the number for each request of the notebook in turn.
    """
    callers, roots = _callers(session), _roots(session)
    spans = [span for span in session.spans if span.model == model and caller in ("", callers[span.id])]
    others = Counter(span.model for span in session.spans if span.model != model)
    listed = ", ".join(f"{name} {number:,}" for name, number in others.most_common(4))
    counted = Counter(roots[span.id] for span in spans)
    each = [counted[root] for root in dict.fromkeys(roots.values())] if len(times) > 1 else [len(spans)]
    sent = " then ".join(map(str, each)) + " requests" if len(times) > 1 else count(len(spans), "request")
    seen = f"{sent} to {model}" + (f"; others: {listed}" if listed else "")
    holds = each == list(times) if times else bool(spans)
    hint = _others(session, model, caller) if sum(each) < sum(times or [1]) else ""
    hint = "" if holds else hint or _why_called(model, each, list(times))
    words = " then ".join(map(str, times))
    claim = f"called {model}" + (f" {words}" if words else "") + (f" by {caller}" if caller else "")
    steps = (
        ("where", recorded_calls.line_of(session, spans[0]) if spans else ""),
        ("code", f'if condition:\n    response = self.ask("{model}", ...)' if 0 in times and any(times) else ""),
    )
    return Judgement(claim, holds, seen, hint, steps)


def _roots(session: Session) -> dict[int, int]:
    """Return for each span the request of the notebook to which it belongs, in the order of sending."""
    roots: dict[int, int] = {}
    for span in session.spans:
        roots[span.id] = roots.get(span.parent, span.id)
    return roots


def _why_called(model: str, got: list[int], wanted: list[int]) -> str:
    if not any(got):
        return f"No request to {model} was recorded."
    if len(wanted) < 2:
        return f"Send {'more' if got < wanted else 'fewer'} requests to {model}." if wanted else ""
    if len(got) != len(wanted):
        return f"The cell sent {count(len(got), 'request')} with callees, expected {len(wanted)}."
    if [not n for n in got] == [bool(n) for n in wanted]:
        return f"The condition is the wrong way round: {model} is called exactly when it should not be."
    if all(got) and not all(wanted):
        return f"Every request calls {model}: call it only if the condition holds."
    number = next(i for i, pair in enumerate(zip(got, wanted, strict=True), 1) if pair[0] != pair[1])
    return f"Request {number} calls {model} {count(got[number - 1], 'time')}, expected {wanted[number - 1]}."


def left_nothing(lifetimes: Lifetimes, device: str = "") -> Judgement:
    """Judge whether all memory that requests allocated is free, on one device or on all, tensors or not."""
    lives = [life for life in lifetimes.left_behind() if device in ("", life.device)]
    on = f" on {device}" if device else ""
    kept = lifetimes.kept if device in ("", "cpu") else ()
    seen, hint = left_words(lives) if lives else growth_words(kept)
    return Judgement(f"nothing_left{on}", not hint, seen or f"nothing left behind{on}", hint)


def peak(lifetimes: Lifetimes, compare: str, limit: float, device: str = "") -> Judgement:
    """Judge the peak memory of a device, by default of the device with the highest peak."""
    names = [record.name for record in lifetimes.devices if device in ("", record.name)]
    tops = [(lifetimes.peak(name), name) for name in names]
    top, name = max(tops, key=lambda pair: pair[0].bytes, default=(lifetimes.peak(device), device))
    seen = f"a peak of {size(top.bytes)}" + (f" on {name}" if name else "")
    claim = f"peak {compare} {size(int(limit))}" + (f" on {device}" if device else "")
    sums: Counter[str] = Counter()
    for life in top.lives:
        sums[f"{life.maker.model or 'notebook'}/{life.tensor or life.kind}"] += life.bytes
    largest = ", ".join(f"{name} {size(total)}" for name, total in sums.most_common(3))
    hint = f"Alive at that moment: {largest}." if largest else ""
    return Judgement(claim, OPERATORS[compare](top.bytes, limit), seen, hint)


def _verdict(comparison: Comparison, words: _Words) -> Judgement:
    """Judge the cause in a comparison's verdict: a key of `CAUSES`."""
    given, compare, cause = comparison.verdict, words["op"], words["cause"]
    holds = (given.cause == cause) == (compare == "==")
    seen, steps = f"{given.cause}: {given.sentence}", (("what to do", given.advice),)
    return Judgement(f"verdict {compare} {cause}", holds, seen, given.sentence, steps)


def _speedup(comparison: Comparison, words: _Words) -> Judgement:
    judgement = _number("speedup", comparison.speedup, *_limit(words), hint=comparison.verdict.sentence)
    return replace(judgement, steps=(("what to do", comparison.verdict.advice),))


def _shm(findings: Findings, words: _Words) -> Judgement:
    """Judge the shared memory on a server; if sizes are unknown, no upper limit is certain."""
    judgement = _number("shm", findings.shm_bytes, *_limit(words), hint=largest_pools(findings))
    if all(need.known for need in findings.memory):
        return judgement
    holds = judgement.holds and words["op"] in (">", ">=")
    return replace(judgement, holds=holds, seen=f"{judgement.seen} or more", hint=largest_pools(findings))


def _number(name: str, value: float, compare: str, limit: float, unit: str, of: str = "", hint: str = "") -> Judgement:
    """Judge one figure against a limit; times are in ns."""

    def spelled(value: float) -> str:
        if unit == "ns":
            return duration(value / 1e9)
        return size(int(value)) if unit == "bytes" else f"{value:,.3g}" if value % 1 else f"{value:,.0f}"

    claim = f"{name} {compare} {spelled(limit)}{of}"
    return Judgement(claim, OPERATORS[compare](value, limit), f"{name}{of}: {spelled(value)}", hint)


def _findings(findings: Findings, words: _Words) -> Judgement:
    judgement = _number("findings", len(problems(findings)), *_limit(words), hint=first_problem(findings))
    if findings.models:
        return judgement
    return replace(judgement, holds=False, seen="no model was checked", hint="The repository is empty.")


def where(answers: Sequence[GivenAnswer], compare: str, device: str) -> Judgement:
    """Judge the device of all output tensors."""
    tensors = [tensor for answer in answers for tensor in answer.record.tensors]
    matches = [tensor.device.partition(" ")[0] == device for tensor in tensors]
    holds = bool(matches) and (all(matches) if compare == "==" else not any(matches))
    seen = ", ".join(f"{tensor.name} on {tensor.device}" for tensor in tensors[:4]) or "no output tensors"
    return Judgement(f"device {compare} {device}", holds, seen, HOW_TENSORS_MOVE, (("code", _KEEPS_DEVICE),))


def _output(answers: Sequence[GivenAnswer], words: _Words, variables: Mapping[str, Any] | None) -> Judgement:
    name, datatype, compare = words["name"], words["dtype"], words["op"]
    values = [value_of(value, variables) for value in re.split(r"\s+then\s+", words["value"])]
    holds, seen, hint, code = output(answers, name, datatype, compare, values)
    claim = f"output {name}" + (f" {datatype}" if datatype else "") + f" {compare} {words['value']}"
    return Judgement(claim, holds, seen, hint, (("code", code),))


def _placed(judgement: Judgement, answers: Sequence[GivenAnswer], name: str, session: Session | None) -> Judgement:
    """Return the judgement with the lines of the model that make the output."""
    models = {answer.record.model for answer in answers}
    if not answers and session is not None and session.spans:
        return replace(judgement, hint="No response was seen: send with %bls, or let the cell end with the response.")
    if any(answer.record.error is not None for answer in answers):
        return judgement
    found = [
        f"{source.model}, line {number}: `{line}`"
        for source in (() if session is None else session.sources)
        if source.model in models
        for number, line in lines_that_name(source.text, name)
        if "Tensor(" in line
    ]
    return replace(judgement, steps=(("where", "\n".join(found[-3:])), *judgement.steps))


def _failed(answers: Sequence[GivenAnswer], text: str) -> Judgement:
    """Judge whether a request failed, and whether each error contains the words of its cause."""
    errors = [answer.record.error for answer in answers if answer.record.error is not None]
    hint = ""
    if not errors:
        hint = "Every request was answered, so its sender cannot know that something failed: return the error."
    elif (unnamed := next((error for error in errors if text not in error.message), None)) is not None:
        hint = "The model received an error, and this one hides it. " if unnamed.unchecked else ""
        hint += f"The message does not contain {text!r}, so its reader cannot know the cause."
    elif (mistaken := next((error for error in errors if error.kind == "TypeError"), None)) is not None:
        # The message of a wrong call repeats its arguments, so it may contain the words.
        hint = f"The model failed with a TypeError before it could pass the error on. To fix it: {mistaken.hint}"
    seen = ", ".join(first_line(spoken(error.message), 80) for error in errors[:3])
    steps = (("code", "if response.has_error():\n    return pb_utils.InferenceResponse(error=response.error())"),)
    return Judgement("failed" + (f" saying {text}" if text else ""), not hint, seen or "no request failed", hint, steps)


def _value(variables: Mapping[str, Any] | None, words: _Words) -> Judgement:
    """Judge an expression of the notebook's variables."""
    expression, compare = words["expression"], words["op"]
    claim = f"value {expression} {compare} {words['value']}"
    if variables is None:
        raise BLSError(f"claim {claim!r}: needs the variables of a notebook; in a script: assert {claim[6:]}")
    got, wanted = value_of(expression, variables), value_of(words["value"], variables)
    holds = repr(got) == repr(wanted) or bool(np.array_equal(got, wanted))
    hint = f"{expression} is {first_line(repr(got), 300)}, expected {first_line(repr(wanted), 80)}."
    return Judgement(claim, holds == (compare == "=="), first_line(repr(got), 80), hint)


def judgement_document(judgement: Judgement) -> Document:
    """Show whether a claim holds, the observation and the hint; HTML folds each step to the repair."""
    kind = "done" if judgement.holds else "error"
    top = message_document(MessageRecord(f"{judgement.claim}: {judgement.seen}", kind, judgement.hint))
    steps: list[Block] = []
    for number, (label, text) in enumerate(judgement.steps, 1):
        words = Words(parts.quiet(parts.coded(text)), "message-more", indent="  ")
        in_text = Words(f"{label}: {text}", indent="  ", hang="    ")
        steps.append(Forms([in_text], [Fold(f"Hint {number}: {label}", [words])]))
    return Document([*top.blocks, *steps], styles=top.styles)
