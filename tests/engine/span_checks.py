"""Models that profiles are tried on, and what holds of every session."""

from __future__ import annotations

from bls_notebook.profiling.session import Session, Span
from tests.engine.sources import model

SYNC_CALLER = model("""
def execute(self, requests):
    return [answer(value_of(ask("d", number(r)).exec()) + 1) for r in requests]
""")
STREAM = model("""
def execute(self, requests):
    for r in requests:
        sender = r.get_response_sender()
        for n in range(number(r)):
            sender.send(answer(n))
        sender.send(flags=FINAL)
""")
WAITS = model("""
def execute(self, requests):
    gates.open_gate("in")
    gates.pass_gate("go")
    return [answer(1) for r in requests]
""")


def check(session: Session) -> Session:
    """Assert what holds for every session; return it."""
    ids = [s.id for s in session.spans]
    assert len(set(ids)) == len(ids)
    by_id = {s.id: s for s in session.spans}
    assert [s.sent for s in session.spans] == sorted(s.sent for s in session.spans)
    for span in session.spans:
        times = (0, span.sent, span.queued, span.started, span.inferred, span.ended, session.wall)
        assert times == tuple(sorted(times)), span
        assert span.parent == 0 or span.parent in by_id
        assert span.ran == (span.released > 0)
        assert span.state in ("ok", "error", "cancelled", "open")
        assert bool(span.error) == (span.state == "error" or (span.state == "cancelled" and bool(span.error)))
        if span.parent:
            parent = by_id[span.parent]
            assert parent.started <= span.sent
            assert parent.ran
        assert all(span.sent <= m.ns <= span.ended or m.kind == "cancelled" for m in span.marks)
    figures = session.statistics()
    assert sum(m.critical for m in figures.models) + figures.notebook == session.wall
    assert Session.from_dict(session.to_dict()) == session
    return session


def tree(session: Session) -> list[tuple[str, str, str]]:
    """Who sent what, and how."""
    names = {s.id: s.model for s in session.spans} | {0: ""}
    return [(names[s.parent], s.model, s.kind) for s in session.spans]


def only(session: Session, name: str) -> Span:
    (found,) = (s for s in session.spans if s.model == name)
    return found
