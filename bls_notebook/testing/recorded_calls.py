"""Requests of a session, recorded with copies of their inputs: senders, waits for callees and each other, sequences."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from bls_notebook.pb_utils import TRITONSERVER_REQUEST_FLAG_SEQUENCE_END as END
from bls_notebook.pb_utils import TRITONSERVER_REQUEST_FLAG_SEQUENCE_START as START
from bls_notebook.pb_utils import Tensor
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.intervals import Interval, levels
from bls_notebook.profiling.profiler import Profile
from bls_notebook.profiling.records.spans import Span
from bls_notebook.profiling.session import Session
from bls_notebook.records import count, duration
from bls_notebook.repository import Call, StubCall

from .recording.payload_tape import Tape
from .recording.recorder import Store
from .records import RequestKept

TOO_FEW_OR_MANY = {
    "cancelled": (
        "No request was cancelled. A client cancels its request, and `stream.cancel()` one whose model still sends "
        "responses. `task.cancel()` and `asyncio.wait_for` end only the wait, as on a server.",
        "Cancel only the requests whose answers are not needed.",
    ),
    "abandoned": (
        "Every response was awaited: answer as soon as one response suffices, and leave the other calls alone.",
        "The await of a call was cancelled (`asyncio.wait_for`, `task.cancel()`), or its caller was answered before. "
        "The callee ran to its end all the same, as on a server: let it stop by itself (`timeout=` of the request, "
        "`stream.cancel()`).",
    ),
}


def chain_of(session: Session, span: Span, until_first: bool = False) -> list[Span]:
    """Return the calls that a request waited for in turn, the first call first.

    It is found backwards: the call answered last, then the call answered last before that one was sent, and so on. A
    call that the request cancelled or no longer awaits ends then.
    `until_first`: instead all calls that were answered before the request's first response.
    """
    tree = SpanTree.of(session)
    calls = sorted(tree.children.get(tree.execution(span.id), ()), key=_waited_until)
    if until_first:
        first = next((mark.ns for mark in span.marks if mark.kind == "response"), span.ended)
        return [call for call in calls if _waited_until(call) <= first]
    chain: list[Span] = []
    now = span.ended
    for call in reversed(calls):
        if _waited_until(call) <= now:
            chain.insert(0, call)
            now = call.sent
    return chain


def _waited_until(call: Span) -> int:
    return min([call.ended, *(mark.ns for mark in call.marks if mark.kind in ("cancelled", "abandoned"))])


def longest_chain(session: Session, model: str = "", until_first: bool = False) -> list[Span]:
    """Return the longest chain of a request to `model`, by default of any request of the notebook."""
    spans = [span for span in session.spans if (span.model == model if model else not span.parent)]
    return max((chain_of(session, span, until_first) for span in spans), key=len, default=[])


def why_waits(chain: Sequence[Span], most: int, until_first: bool) -> str:
    """Return a hint for a chain of more than `most` calls."""
    if until_first:
        return (
            f"The first response came after {len(chain)} calls in turn: send each response as soon as it is known, "
            "before the next call."
        )
    how = "Each `await` waits for its response before the next call is sent"
    if chain[-1].kind == "sync":
        how = "`exec` blocks until its response arrives, so the next call is sent after it"
    not_needed = "1 of these waits is" if len(chain) - most == 1 else f"{len(chain) - most} of these waits are"
    return f"{how}. {not_needed} not needed: send calls that need no response of each other together."


def why_not_together(session: Session, spans: Sequence[Span]) -> str:
    """Return a hint for requests that did not share executions."""
    ran = sorted((span for span in spans if span.ran), key=lambda span: span.queued)
    if not any(later.queued < earlier.started for earlier, later in pairwise(ran)):
        return (
            "They were sent one after the other, and only requests that wait at the same time run together: send them "
            "at once (`async_exec` and `asyncio.gather`), or as rows of one request."
        )
    models = {f"`{span.model}`" for span in ran}
    reasons = [line for line in session.unbatched if line.partition(":")[0] in models]
    if reasons:
        return reasons[0]
    largest = max(Counter(span.batch or -span.id for span in ran).values())
    limit = next((seen.max_batch_size for seen in session.models if seen.name == ran[0].model), -1)
    if largest == max(limit, 1):
        return f"`max_batch_size` of {ran[0].model} is {limit}, so {count(largest, 'row')} at most can run together."
    return (
        "Only requests of equal shapes that wait at the same time run together, and a batch with as many rows as "
        "`max_batch_size` or a `preferred_batch_size` waits for no more."
    )


def line_of(session: Session, span: Span) -> str:
    """Return the line of code that sent a request; empty if it is unknown."""
    if not 0 < span.source <= len(session.sources):
        return ""
    source = session.sources[span.source - 1]
    return f"{source.model or source.name}, line {span.line}: `{code_of(session, span)}`"


def code_of(session: Session, span: Span) -> str:
    """Return the code of the line that sent a request."""
    lines = session.sources[span.source - 1].text.splitlines()
    return lines[span.line - 1].strip() if 0 < span.line <= len(lines) else ""


def late_calls(session: Session, spans: Sequence[Span]) -> list[Span]:
    """Return the requests that a model sent although its own request had been cancelled."""
    left = {span.id: mark.ns for span in session.spans for mark in span.marks if mark.kind == "cancelled"}
    return [span for span in spans if span.parent in left and span.sent > left[span.parent]]


def sent_in_vain(session: Session, spans: Sequence[Span]) -> str:
    """Report the requests that a model sent although its own request had been cancelled."""
    late = late_calls(session, spans)
    if not late:
        return ""
    caller = next(span.model for span in session.spans if span.id == late[0].parent)
    return (
        f" {caller} sent {count(len(late), 'request')} after its client had left: ask `request.is_cancelled()` "
        "before each request."
    )


def at_work_intervals(session: Session) -> dict[int, Interval]:
    """Return the interval in which the model worked on each request, by its id: until the last response of a stream.

    A request whose instance was free is at work from its queueing, so that threads that the operating system starts
    late on a busy machine change no verdict. A coroutine of a decoupled model is at work once it has started.
    """
    taken: dict[tuple[str, int], list[Interval]] = {}
    for model in session.models:
        ran = [s for s in session.spans if (s.model, s.version) == (model.name, model.version) and s.ran]
        busy = pairwise([*levels((s.started, max(s.started, s.released)) for s in ran), (session.wall, 0)])
        if model.instances and not (model.decoupled and model.is_async):  # whose event loop may be blocked
            all_busy = [(start, end) for (start, level), (end, _) in busy if level >= len(model.instances)]
            taken[model.name, model.version] = all_busy
    free: dict[tuple[str, int, str], int] = {}  # since when each instance is free
    intervals = {}
    for span in sorted(session.spans, key=lambda span: span.started):
        start = span.started
        key = (span.model, span.version)
        if not span.batch and key in taken:
            before = bisect_left(taken[key], (start, 0)) - 1
            all_taken = taken[key][before][1] if before >= 0 else 0
            start = min(start, max(span.queued, all_taken, free.get((*key, span.instance), 0)))
        free[(*key, span.instance)] = max(span.inferred, span.released)
        intervals[span.id] = (start, span.ended if span.kind == "stream" else span.inferred) if span.ran else (0, 0)
    return intervals


def most_at_once(intervals: Iterable[Interval]) -> int:
    """Return the largest number of intervals that have a moment in common."""
    return max((level for _, level in levels(intervals)), default=0)


def longest_queue(spans: Sequence[Span]) -> str:
    """Return a hint that names the model in front of which requests waited longest; empty if none waited."""
    waits: Counter[str] = Counter()
    for span in spans:
        waits[span.model] += span.queue
    ((model, longest),) = waits.most_common(1)
    if not longest:
        return ""
    number = sum(span.model == model and span.queue > 0 for span in spans)
    waited = f"{count(number, 'request')} waited {duration(longest / 1e9)} in all"
    return f"The longest queue is in front of {model}: {waited}."


def complete_sequences(spans: Sequence[Span]) -> tuple[int, str]:
    """Return the number of sequences with one START and an END, and a hint about the others; empty if there are none.

    Refused requests count: their sender has to change too.
    """
    running: dict[tuple[str, int | str], Span] = {}
    restarted = set()
    complete, hints = 0, []
    for span in sorted(spans, key=lambda span: span.sent):
        key = (span.model, span.correlation_id)
        if not span.correlation_id:
            hints.append("A request had no correlation ID, so it belongs to no sequence: pass `correlation_id=`.")
        elif span.flags & START and key in running:
            hints.append(_restarted(running[key], span))
            restarted.add(key)
        elif span.flags & START:
            running[key] = span
        elif key not in running:
            hints.append(f"The first request of sequence {span.correlation_id} had no START flag.")
        if span.flags & END and running.pop(key, None) is not None:
            complete += key not in restarted
            restarted.discard(key)
    if running and not hints:
        hints.append(
            f"{count(len(running), 'sequence').capitalize()} had no END: each keeps its slot, and the model its state, "
            "until the sequence has been idle for too long."
        )
    return complete, next(iter(hints), "")


def _restarted(earlier: Span, later: Span) -> str:
    """Return the hint for a START in a running sequence."""
    name = f"sequence {later.correlation_id}"
    if earlier.parent != later.parent:
        return f"Several callers use {name} at the same time: give each sequence a unique correlation ID."
    return f"A START in the running {name} began it again: send START with its first request only."


MOST_BYTES = 256 << 20  # of copied inputs


class RecordedCalls(Profile):
    """A profile of a test's requests, with copies of at most `MOST_BYTES` of their inputs."""

    def __init__(self) -> None:
        self._inputs = _InputTape(True, MOST_BYTES)
        super().__init__(name="test", tape=self._inputs)

    @property
    def calls(self) -> Iterator[StubCall]:
        """The requests that models executed, in the order of their execution."""
        store = Store()
        requests = {request.id: request for request in self._requests(store)}
        spans = {span.id: span for span in self.record.spans}
        batches = Counter(span.batch for span in spans.values() if span.batch)
        for span in sorted(spans.values(), key=lambda span: span.started):
            request = requests.get(span.id)
            if request is None or not span.ran:
                continue
            kept = [tensor for tensor in request.inputs if tensor.values]
            inputs = {t.name: Tensor._of(t.name, store.arrays[t.values], t.datatype) for t in kept}
            yield StubCall.of(Call(
                (), span.model, span.version, inputs, request.outputs, json.loads(request.parameters),
                (request.correlation_id, request.flags), tuple(_callers(span, spans))[::-1], request.request_id,
                request.timeout, span.instance, batches.get(span.batch, 1),
            ))  # fmt: skip

    @property
    def left_out(self) -> int:
        """Number of requests with inputs that did not fit."""
        return sum(any(tensor.cut for tensor in request.inputs) for request in self._requests(Store()))

    def _requests(self, store: Store) -> Iterator[RequestKept]:
        return self._inputs.requests(self._base, self._start, store.kept)


class _InputTape(Tape):
    def answered(self, *response: Any) -> None:
        """Keep no outputs."""


def _callers(span: Span, spans: dict[int, Span]) -> Iterator[str]:
    while span.parent in spans:
        span = spans[span.parent]
        yield span.model
