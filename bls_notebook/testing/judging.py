"""Whether a record bears out what is claimed of it: what was seen, and a hint where it does not.

Pure functions of what was recorded. `claims` reads the claims that a person types.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bls_notebook.lifetimes.records import Life, Lifetimes
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.records.comparison import Comparison
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import Span
from bls_notebook.records.base import Record
from bls_notebook.records.intervals import Interval, levels
from bls_notebook.records.quantities import count, duration, size
from bls_notebook.records.repository import ResponseRecord

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne,
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip

HOW_TENSORS_MOVE = (
    'An input goes to the CPU, unless the model sets FORCE_CPU_ONLY_INPUT_TENSORS to "no"; an output stays '
    "where its model made it, or goes to --device (preferred_memory)."
)


@dataclass(frozen=True, slots=True, repr=False)
class Judgement(Record):
    """Whether a ``claim`` ``holds``, what was ``seen``, and a ``hint`` where it does not.

    It is true where the claim holds, so that ``assert`` takes it, and shows what was seen where it fails.
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
    """Judge whether so many requests, of one model or of any, were at work at the same moment.

    One that waits in a queue is not at work, and neither is a caller while its calls are under way, unless
    it is its model that was asked about.
    """
    spans = [span for span in session.spans if model in ("", span.model)]
    most = _most(_at_work(span) for span in spans)
    if not model:
        # Of one model, or of several without those that wait for their callees.
        tree = SpanTree(session)
        own = [
            interval
            for execution, members in tree.members.items()
            for interval in tree.self_time(execution) * len(members)
        ]
        each = {span.model for span in spans}
        most = max([_most(own), *(_most(_at_work(s) for s in spans if s.model == name) for name in each)])
    of = f" of {model}" if model else ""
    seen = f"{'at most ' * (most < least)}{count(most, 'request')}{of} at work at the same time"
    seen = seen if most else f"no request{of} was at work"
    return Judgement(f"overlapped {least}{of}", most >= least, seen, _why_apart(spans, least, of))


def _at_work(span: Span) -> Interval:
    """When its model worked for a request; until its last answer only where `execute` does not say it."""
    if not span.ran:
        return (0, 0)
    return (span.started, span.ended if span.kind == "stream" else span.inferred)


def _most(intervals: Iterable[Interval]) -> int:
    return max((level for _, level in levels(intervals)), default=0)


def _why_apart(spans: Sequence[Span], least: int, of: str) -> str:
    if len(spans) < least:
        return f"{count(len(spans), 'request')}{of} in all: send {least}."
    if _most((span.sent, span.ended) for span in spans) < least:
        return (
            "Each was sent after the answer of one before: send them by async_exec, and await "
            "asyncio.gather of them all."
        )
    return (
        "They were under way together and stood in a queue: a higher instance_group.count lets them run "
        "side by side; an async execute of a model that is not decoupled takes one request at a time."
    )


def called(session: Session, model: str, times: int = 0) -> Judgement:
    """Judge whether a model was sent requests: as many as that, or any."""
    found = sum(span.model == model for span in session.spans)
    others = Counter(span.model for span in session.spans if span.model != model)
    told = ", ".join(f"{name} {number:,}" for name, number in others.most_common(4))
    seen = f"{count(found, 'request')} to {model}" + (f"; others: {told}" if told else "")
    hint = f"Send {'more' if found < times else 'fewer'} requests to {model}." if times else ""
    hint = hint or f"Nothing was sent to {model} while this was recorded."
    claim = f"called {model}" + (f" {times}" if times else "")
    return Judgement(claim, found == times if times else found > 0, seen, hint)


def left_nothing(lifetimes: Lifetimes, device: str = "") -> Judgement:
    """Judge whether nothing that requests made is still held, on one device or any."""
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
    hint = "Whoever holds a tensor, a response that has it or a view of it keeps all of its memory."
    return Judgement(f"nothing_left{on}", False, held, hint + (f" To let go: {remedy}" if remedy else ""))


def peak(lifetimes: Lifetimes, compare: str, limit: float, device: str = "") -> Judgement:
    """Judge the most bytes that were alive at once on a device, or on the one that had most."""
    devices = [seen.name for seen in lifetimes.devices if device in ("", seen.name)]
    tops = [(lifetimes.peak(name), name) for name in devices]
    top, name = max(tops, key=lambda each: each[0].bytes, default=(lifetimes.peak(device), device))
    seen = f"a peak of {size(top.bytes)}" + (f" on {name}" if name else "")
    claim = f"peak {compare} {size(int(limit))}" + (f" on {device}" if device else "")
    told = ", ".join(_largest(top.lives))
    hint = f"Alive at that moment: {told}." if told else ""
    return Judgement(claim, OPERATORS[compare](top.bytes, limit), seen, hint)


def _largest(lives: Sequence[Life]) -> list[str]:
    sums: Counter[str] = Counter()
    for life in lives:
        sums[f"{life.maker.model or 'notebook'}/{life.tensor or life.kind}"] += life.bytes
    return [f"{name} {size(total)}" for name, total in sums.most_common(3)]


def verdict(comparison: Comparison, compare: str, cause: str) -> Judgement:
    """Judge the cause that a comparison found: a key of `CAUSES`."""
    found = comparison.verdict
    holds = (found.cause == cause) == (compare == "==")
    return Judgement(f"verdict {compare} {cause}", holds, f"{found.cause}: {found.sentence}", found.advice)


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
    """Judge where the tensors of responses lie."""
    tensors = [tensor for response in responses for tensor in response.tensors]
    there = [tensor.device.partition(" ")[0] == device for tensor in tensors]
    holds = bool(there) and (all(there) if compare == "==" else not any(there))
    seen = ", ".join(f"{tensor.name} on {tensor.device}" for tensor in tensors[:4]) or "no tensors came"
    return Judgement(f"device {compare} {device}", holds, seen, HOW_TENSORS_MOVE)


def output(responses: Sequence[ResponseRecord], name: str, compare: str, value: str) -> Judgement:
    """Judge an output by its first elements, as displays show them."""
    seen = [tensor.preview for response in responses for tensor in response.tensors if tensor.name == name]
    holds = bool(seen) and all((_bare(each) == _bare(value)) == (compare == "==") for each in seen)
    errors = [response.error.message for response in responses if response.error is not None]
    there = ", ".join(dict.fromkeys(tensor.name for response in responses for tensor in response.tensors))
    shown = ", ".join(seen[:4]) or (f"an error, {errors[0].splitlines()[0]}" if errors else "no such output")
    hint = "" if seen or errors or not there else f"The outputs are {there}."
    return Judgement(f"output {name} {compare} {value}", holds, f"{name}: {shown}", hint)


def _bare(preview: str) -> str:
    return "".join(preview.split()).strip("[]")
