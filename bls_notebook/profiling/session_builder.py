"""Build a session from the log of a profile: spans in order, the code around them, and times of remote servers.

The text of each file that sent or served requests is collected once; the package's own files are left out. A
remote server reports sums over all requests, so only the mean time of a request is known. A query for them
waits at most `SECONDS`; a server that does not answer, or whose connection is lost, is left out.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import CodeType
from typing import Any

import bls_notebook
from bls_notebook.backends import RemoteConnection
from bls_notebook.engine import LoadedModel, in_memory, label_of, start_in_thread
from bls_notebook.profiling import request_log
from bls_notebook.profiling.request_log import Log, entries
from bls_notebook.records import RecordedInstance, StatisticsRecord, TensorSeen, Times, duration, statistics_record

from .code_lines import function_of
from .records.spans import CodeStack, LineSamples, StackLine
from .session import Mark, ModelSeen, NamedMark, Session, Source, Span
from .stack_sampler import StackSampler

_LONGEST = 1 << 18  # characters of a file that is kept
_PACKAGE = str(Path(bls_notebook.__file__).resolve().parent)
_NO_LINE = StackLine(0, 0)
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


class SessionSources:
    """The sources of one session, numbered from 1 in the order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._stacks: dict[tuple[tuple[int, int], ...], int] = {}  # by ids of code, which the log keeps alive
        self._numbered: dict[CodeStack, int] = {}
        self.stacks: list[CodeStack] = []
        self.texts: list[Source] = []

    def innermost(self, stack: int) -> StackLine:
        """Return the last line of the stack with this number."""
        return self.stacks[stack - 1].lines[-1] if stack else _NO_LINE

    def number(self, code: CodeType, model: str = "", version: int = 0) -> int:
        """Return the number of the source file of some code; 0 if its text is not available.

        `model` is the model that owns the code, if it is known at the first use of the file.
        """
        file = code.co_filename
        if file not in self._numbers:
            text = "" if file.startswith(_PACKAGE) else "".join(linecache.getlines(file))
            self._numbers[file] = 0
            if text and len(text) <= _LONGEST:
                name = "model.py" if model and label_of(file) != file else _cell(file) or Path(file).name
                self.texts.append(Source(name, text, model, version))
                self._numbers[file] = len(self.texts)
        return self._numbers[file]

    def stack(self, places: Sequence[tuple[CodeType, int]], model: str, version: int) -> int:
        """Return the number of the stack of some instructions, outermost first; 0 if no text is available."""
        key = tuple((id(code), at) for code, at in places)
        if key not in self._stacks:
            found: list[StackLine] = []
            for code, at in places:
                line = self._line(code, at, model, version)
                if line is not None and found and code.co_name in _COMPREHENSIONS:  # has its own frame before 3.12
                    line = replace(line, function=found[-1].function)
                if line is not None and line not in found[-1:]:
                    found.append(line)
            lines = tuple(found)
            stack = CodeStack(lines)
            if lines and stack not in self._numbered:
                self.stacks.append(stack)
                self._numbered[stack] = len(self.stacks)
            self._stacks[key] = self._numbered.get(stack, 0)
        return self._stacks[key]

    def _line(self, code: CodeType, at: int, model: str, version: int) -> StackLine | None:
        source = self.number(code, model, version)
        line = next((n for begin, end, n in code.co_lines() if begin <= at < end and n), 0) if source else 0
        return StackLine(source, line, function_of(code)) if line else None


def _cell(file: str) -> str:
    """Return the name of a notebook cell (``In [3]``) for its file name."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    cells = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return f"In [{cells[file]}]" if file in cells else ""


_NOWHERE = RecordedInstance(ModelSeen(""), "", "cpu", None)
_NOT_PLACED = request_log.Placed(0, _NOWHERE, 0, 1, 0)
_NOT_RUN = request_log.Ran(0, 0, 0)
_UNKNOWN_SITE = request_log.SentFrom(0, (), ())
_UNANSWERED = request_log.Ended(0, 0, "ok", "", 0, 0)


@dataclass(slots=True)
class _Logged:
    """The log entries of one request; an entry is empty if its event has not happened."""

    begun: request_log.Begun
    seen: ModelSeen
    kind: str
    placed: request_log.Placed = _NOT_PLACED
    ran: request_log.Ran = _NOT_RUN
    ended: request_log.Ended = _UNANSWERED
    held_until: int = 0
    crossings: int = 0
    cached: bool = False
    timer: Any = None  # of the GPU
    site: request_log.SentFrom = _UNKNOWN_SITE


def session_of(
    log: Log,
    start: int,
    end: int,
    limit: int,
    began: str = "",
    name: str = "",
    dropped: int = 0,
    sender: int = 0,
    sampler: StackSampler | None = None,
) -> Session:
    """Return the session of the events logged between two readings of the clock.

    Entries of a request may be in any order; events after `end` are ignored. The first `limit` spans are kept,
    and as many marks; `dropped` is the number of requests that did not fit into the log. With a `sender` (the
    number of an execution), only its requests and those they caused are kept; 0 keeps all.
    """
    end = max(start, end)
    logged = _logged(log)
    if sender:
        senders = {sender}  # and all that it caused: a sender has a lower number than its requests
        for number in sorted(logged):
            senders |= {number} if logged[number].begun.parent in senders else set()
        logged = {number: one for number, one in logged.items() if number in senders}
    numbers = [n for n, one in logged.items() if start <= one.begun.sent <= end]
    numbers.sort(key=lambda n: (logged[n].begun.sent, n))
    dropped += max(0, len(numbers) - limit)
    kept = dict.fromkeys(numbers[:limit])
    marks = _marks(log, kept, start, end, limit)
    batches: dict[int, int] = {}
    sources, begins, stacks = _sources(log, logged, kept)
    shapes: dict[Any, tuple[TensorSeen, ...]] = {}
    spans = []
    for number in kept:
        one = logged[number]
        batch = batches.setdefault(one.placed.batch, len(batches) + 1) if one.placed.batch else 0
        parent = one.begun.parent - log.base if one.begun.parent in kept else 0
        key = id(one.seen), one.site.inputs
        inputs = shapes[key] if key in shapes else shapes.setdefault(key, _inputs(one.seen, one.site.inputs))
        sent_by = stacks.get(number, 0)
        place = sources.innermost(sent_by)
        mine = marks.get(number, ())
        spans.append(_span(number - log.base, one, parent, batch, start, end, mine, place, sent_by, inputs))
    models: dict[ModelSeen, None] = dict.fromkeys(logged[n].seen for n in kept if logged[n].seen.version)
    named = [
        NamedMark(when - start, name, number - log.base if number in kept else 0)
        for number, when, name in entries(request_log.Named, log.named)
        if start <= when <= end and (not sender or number in logged)
    ]
    named.sort(key=attrgetter("ns"))
    samples = () if sampler is None else _samples(sampler, sources, logged, kept, log.base)
    full = 0 if sampler is None else sampler.full
    texts = tuple(replace(source, execute=begins.get(n, 0)) for n, source in enumerate(sources.texts, 1))
    return Session(
        tuple(spans),
        tuple(models),
        end - start,
        began,
        name,
        dropped,
        marks=tuple(named[:limit]),
        sources=texts,
        notes=(f"lines were sampled for the first {duration((full - start) / 1e9)} only",) if full else (),
        stacks=tuple(sources.stacks),
        samples=samples,
    )


def _logged(log: Log) -> dict[int, _Logged]:
    out = {begun.number: _Logged(begun, begun.model, begun.kind) for begun in entries(request_log.Begun, log.begun)}

    def known(kind: Any, values: list[Any]) -> Iterator[tuple[_Logged, Any]]:
        return ((out[entry.number], entry) for entry in entries(kind, values) if entry.number in out)

    for one, placed in known(request_log.Placed, log.placed):
        if not one.placed.started:  # an iterative sequence is placed several times: the first one counts
            one.seen, one.placed = placed.place.model, placed
    for one, ran in known(request_log.Ran, log.ran):
        one.ran = ran
    for one, ended in known(request_log.Ended, log.ended):
        one.ended = ended
    for one, held in known(request_log.HeldBack, log.held):
        one.held_until = held.until
    for one, crossed in known(request_log.Crossed, log.crossed):
        one.crossings += crossed.tensors
    for one, site in known(request_log.SentFrom, log.sites or []):
        one.site = site
    for one, timed in known(request_log.Timed, log.timed):
        one.timer = timed.timer
    for number in log.cached[:]:
        if number in out:
            out[number].cached = True
    for one in out.values():
        if one.kind == "sync" and one.begun.parent in out and out[one.begun.parent].seen.scheduler == "ensemble":
            one.kind = "ensemble"
    return out


def _inputs(seen: ModelSeen, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> tuple[TensorSeen, ...]:
    dtypes = {tensor.name: tensor.dtype for tensor in seen.inputs}
    return tuple(TensorSeen(name, dtypes.get(name, ""), tuple(map(int, shape))) for name, shape in shapes)


def _samples(
    sampler: StackSampler, sources: SessionSources, logged: dict[int, _Logged], kept: dict[int, None], base: int
) -> tuple[LineSamples, ...]:
    merged: dict[tuple[int, int, bool], list[int]] = {}
    for (number, places, waits), (count, ns) in list(sampler.sampled.items()):
        if number in kept:
            seen = logged[number].seen
            stack = sources.stack([sampler.places[i] for i in places], seen.name, seen.version)
            sums = merged.setdefault((number - base, stack, waits), [0, 0])
            sums[0] += count
            sums[1] += ns
    return tuple(LineSamples(span, stack, n, ns, waits) for (span, stack, waits), (n, ns) in merged.items())


def _sources(
    log: Log, logged: dict[int, _Logged], kept: dict[int, None]
) -> tuple[SessionSources, dict[int, int], dict[int, int]]:
    """Return the code that served and sent the requests; the line of each source's `execute`; requests' stacks."""
    sources = SessionSources()
    if log.sites is None:
        return sources, {}, {}
    places = dict.fromkeys((logged[number].seen, logged[number].placed.place.execute) for number in kept)
    begins: dict[int, int] = {}  # the first line of `execute`, by the number of the source
    for seen, code in places:
        number = 0 if code is None else sources.number(code, seen.name, seen.version)
        if code is not None and number:
            begins[number] = code.co_firstlineno
    stacks: dict[int, int] = {}
    for number in kept:
        site = logged[number].site.stack
        if site:
            sender = logged.get(logged[number].begun.parent)
            seen = ModelSeen("") if sender is None else sender.seen
            instructions = [(site[i], site[i + 1]) for i in range(len(site) - 2, -1, -2)]
            stacks[number] = sources.stack(instructions, seen.name, seen.version)
    return sources, begins, stacks


def _marks(log: Log, kept: dict[int, None], start: int, end: int, limit: int) -> dict[int, tuple[Mark, ...]]:
    by_span: dict[int, list[Mark]] = {}
    left = limit
    for number, when, kind in entries(request_log.Marked, log.marks):
        if number in kept and start <= when <= end and left:
            by_span.setdefault(number, []).append(Mark(when - start, kind))
            left -= 1
    return {number: tuple(sorted(marks, key=attrgetter("ns"))) for number, marks in by_span.items()}


def _span(
    number: int,
    one: _Logged,
    parent: int,
    batch: int,
    start: int,
    end: int,
    marks: tuple[Mark, ...],
    line: StackLine,
    stack: int,
    inputs: tuple[TensorSeen, ...],
) -> Span:
    request, placed, options = one.begun, one.placed, one.begun.options
    answered = max(one.ended.ended, one.held_until)
    is_open = not answered or answered > end
    last = end if is_open else max(request.sent, answered)
    ran = 0 < placed.started <= last and placed.place is not _NOWHERE
    # An event that has not happened gets the time of the next one, so the times of a span are in order.
    begun = placed.started if ran else last
    now = start
    times = []
    for time in (request.sent, request.queued or begun, begun, one.ran.inferred or last, last):
        now = min(max(now, time), last)
        times.append(now - start)
    sent, queued, started, inferred, ended = times
    place = placed.place if ran else _NOWHERE
    shared = one.seen.decoupled and one.seen.is_async  # its event loop accepts the next request immediately
    released = min(one.ran.released or (placed.started if shared else end), end) - start
    return Span(
        id=number,
        model=one.seen.name,
        version=one.seen.version,
        parent=parent,
        instance=place.name,
        device=place.device,
        kind=one.kind,
        batch=batch if ran else 0,
        sent=sent,
        queued=queued,
        started=started,
        inferred=inferred,
        ended=ended,
        state="open" if is_open else one.ended.state,
        error="" if is_open else one.ended.error,
        request_id=options.request_id,
        correlation_id=options.correlation_id,
        flags=options.flags,
        rows=placed.rows,
        thread=placed.thread,
        bytes_in=request.bytes_in,
        bytes_out=0 if is_open and not marks else one.ended.bytes_out,
        crossings=one.crossings,
        device_ns=-1 if one.timer is None else one.timer.ns(),
        marks=marks,
        released=max(started, released) if ran else 0,
        cached=one.cached,
        responses=sum(m.kind == "response" for m in marks) if is_open else one.ended.responses,
        source=line.source,
        line=line.line,
        stack=stack,
        inputs=inputs,
        cpu=one.ran.cpu - placed.cpu if ran and one.ran.thread == placed.thread and not one.seen.processes else -1,
    )


ModelVersion = tuple[str, int]


def with_server_times(
    session: Session, before: Mapping[ModelVersion, StatisticsRecord], after: Mapping[ModelVersion, StatisticsRecord]
) -> Session:
    """Return the session with the mean time on the server in the spans of remote models.

    ``before`` and ``after`` are the statistics of the servers at the begin and the end of the session, by local
    model name and version; a model that lacks one of them gets a note instead.
    """
    where = {(model.name, model.version): model.remote for model in session.models if model.remote}
    means: dict[ModelVersion, int] = {}
    notes = []
    for model, address in where.items():
        spans = [s for s in session.spans if (s.model, s.version) == model and s.ran and s.state == "ok"]
        if not spans:
            continue
        first, last = before.get(model), after.get(model)
        if first is None or last is None:
            notes.append(f"{model[0]}: the time on {address} is unknown: the server gave no statistics")
            continue
        answered = _less(last.success, first.success)
        if answered.count > 0 and answered.ns >= 0:
            means[model] = round(answered.ns / answered.count)
            notes.append(_note(model[0], address, spans, answered, first, last))
    timed = list(session.spans)
    for i, span in enumerate(timed):
        model = span.model, span.version
        if model in means and span.ran and span.state == "ok":
            mean = min(means[model], max(0, span.inferred - span.started))
            timed[i] = replace(span, device=f"{where[model]} (mean)", device_ns=mean)
    return replace(session, spans=tuple(timed), notes=(*session.notes, *notes))


def _note(
    name: str, address: str, spans: list[Span], answered: Times, before: StatisticsRecord, after: StatisticsRecord
) -> str:
    whole = sum(s.inferred - s.started for s in spans) / len(spans)
    mean = answered.ns / answered.count
    times = {
        word: sum(_less(getattr(after, field), getattr(before, field)).ns for field in fields)
        for word, *fields in (("queue", "queue"), ("compute", "compute_input", "compute_infer", "compute_output"))
    }
    parts = [f"{word} {duration(ns / answered.count / 1e9)}" for word, ns in times.items() if ns > 0]
    inside = f" ({', '.join(parts)})" if parts else ""
    others = answered.count - len(spans)
    of = f"; its means include {others:,} requests of other clients" if others > 0 else ""
    # A server's means include work after the answer, so for quick requests they may exceed the measured time.
    between = duration((whole - mean) / 1e9) if whole > mean else "almost none"
    return (
        f"{name}: a request took {duration(whole / 1e9)}: {duration(min(mean, whole) / 1e9)} of it at "
        f"{address}{inside}, {between} network and protocol (means, by the server's statistics{of})"
    )


def _less(after: Any, before: Any) -> Times:
    return Times(after.count - before.count, after.ns - before.ns)


SECONDS = 1.0


def server_counts() -> dict[tuple[str, int], StatisticsRecord]:
    """Return the statistics of remote models from their servers, by local model name and version."""
    models = [m for m in list(in_memory) if m.seen.remote and not m.closed.is_set() and m.instances]
    by_link: dict[RemoteConnection, list[LoadedModel]] = {}
    for model in models:
        backend: Any = model.instances[0].backend
        if not (backend.link.lost or backend.link.closed):
            by_link.setdefault(backend.link, []).append(model)
    out: dict[tuple[str, int], StatisticsRecord] = {}
    rows: dict[RemoteConnection, list[dict[str, Any]]] = {}
    arrived = {link: threading.Event() for link in by_link}

    def ask(link: RemoteConnection) -> None:
        try:
            rows[link] = link.all_statistics(SECONDS)
        finally:
            arrived[link].set()

    for link in by_link:
        start_in_thread(partial(ask, link))
    for link, served in by_link.items():
        arrived[link].wait(SECONDS)
        known = {(row["name"], str(row["version"])): row for row in rows.get(link, ())}
        for model in served:
            backend = model.instances[0].backend
            if (row := known.get((backend.name, str(model.version)))) is not None:
                out[model.who] = statistics_record(row)
    return out
