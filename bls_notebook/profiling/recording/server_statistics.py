"""Time that remote servers spent on the requests of a profile, from the servers' own statistics.

A server reports sums over all requests, so only the mean time of a request is known. Guarantees: asking takes
at most `SECONDS`; a server that does not answer is left out, and one that is known to be lost is not asked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bls_notebook.backends.remote import RemoteConnection
from bls_notebook.engine.core.model import LoadedModel, in_memory
from bls_notebook.engine.waiting.threads import start_in_thread
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import Span
from bls_notebook.records.quantities import duration
from bls_notebook.records.statistics import StatisticsRecord, Times, statistics_record

Model = tuple[str, int]


def with_server_times(
    session: Session, before: Mapping[Model, StatisticsRecord], after: Mapping[Model, StatisticsRecord]
) -> Session:
    """Return a session whose spans of remote models say how long their server took, in the mean.

    ``before`` and ``after`` are what servers had counted when the session began and ended, by model and
    version here; models of which one is missing are left as they are.
    """
    where = {(model.name, model.version): model.remote for model in session.models if model.remote}
    means: dict[Model, int] = {}
    notes = []
    for model, address in where.items():
        spans = [s for s in session.spans if (s.model, s.version) == model and s.ran and s.state == "ok"]
        if not spans:
            continue
        one, other = before.get(model), after.get(model)
        if one is None or other is None:
            notes.append(f"{model[0]}: how long {address} took itself is not known: it gave no statistics")
            continue
        answered = _less(other.success, one.success)
        if answered.count > 0 and answered.ns >= 0:
            means[model] = round(answered.ns / answered.count)
            notes.append(_told(model[0], address, spans, answered, one, other))
    told = tuple(_with(span, means, where) for span in session.spans)
    return replace(session, spans=told, notes=(*session.notes, *notes))


def _with(span: Span, means: Mapping[Model, int], where: Mapping[Model, str]) -> Span:
    mean = means.get((span.model, span.version))
    if mean is None or not span.ran or span.state != "ok":
        return span
    there = where[span.model, span.version]
    length = max(0, span.inferred - span.started)
    return replace(span, device=f"{there} (mean)", device_ns=min(mean, length))


def _told(
    name: str, address: str, spans: list[Span], answered: Times, before: StatisticsRecord, after: StatisticsRecord
) -> str:
    whole = sum(s.inferred - s.started for s in spans) / len(spans)
    mean = answered.ns / answered.count
    parts = [
        f"{word} {duration(took.ns / answered.count / 1e9)}"
        for word, took in (("queue", _less(after.queue, before.queue)), ("compute", _sum(after, before)))
        if took.ns > 0
    ]
    inside = f" ({', '.join(parts)})" if parts else ""
    others = answered.count - len(spans)
    of = f"; the server answered {others:,} of others meanwhile, which are in its means" if others > 0 else ""
    # What a server does once it has answered is in its means: of quick requests they may be the longer ones.
    between = duration((whole - mean) / 1e9) if whole > mean else "next to none"
    return (
        f"{name}: a request took {duration(whole / 1e9)}: {duration(min(mean, whole) / 1e9)} of it at "
        f"{address}{inside}, {between} network and protocol (means, by the server's statistics{of})"
    )


def _sum(after: StatisticsRecord, before: StatisticsRecord) -> Times:
    fields: Iterable[str] = ("compute_input", "compute_infer", "compute_output")
    return Times(0, sum(_less(getattr(after, f), getattr(before, f)).ns for f in fields))


def _less(after: Any, before: Any) -> Times:
    return Times(after.count - before.count, after.ns - before.ns)


SECONDS = 1.0


def server_counts() -> dict[tuple[str, int], StatisticsRecord]:
    """Return what the servers of remote models have counted, by the models' names and versions here."""
    models = [m for m in list(in_memory) if m.seen.remote and not m.closed.is_set() and m.instances]
    by_link: dict[RemoteConnection, list[LoadedModel]] = {}
    for model in models:
        backend: Any = model.instances[0].backend
        if not (backend.link.lost or backend.link.closed):
            by_link.setdefault(backend.link, []).append(model)
    if not by_link:
        return {}
    out: dict[tuple[str, int], StatisticsRecord] = {}
    waiting = [_Answer(link) for link in by_link]
    for answer in waiting:
        start_in_thread(answer.ask)
    for answer in waiting:
        answer.there.wait(SECONDS)
        rows = {(row["name"], str(row["version"])): row for row in list(answer.rows)}
        for model in by_link[answer.link]:
            backend = model.instances[0].backend
            row = rows.get((backend.name, str(model.version)))
            if row is not None:
                out[model.who] = statistics_record(row)
    return out


class _Answer:
    def __init__(self, link: RemoteConnection) -> None:
        self.link = link
        self.there = threading.Event()
        self.rows: list[dict[str, Any]] = []

    def ask(self) -> None:
        """Ask for all of its models at once."""
        try:
            self.rows = self.link.all_statistics(SECONDS)
        finally:
            self.there.set()
