"""The analyses of long sessions: their work grows with the number of requests, not with its square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bls_notebook.display.mime_bundle import render
from bls_notebook.profiling.analysis import span_tree
from bls_notebook.profiling.analysis.span_tree import lock_waits
from bls_notebook.profiling.chrome_trace import chrome_trace
from bls_notebook.profiling.session import Session
from bls_notebook.profiling.timeline.picture import timeline_svg
from tests.profiling.sessions import idle_instances, shared_loop


def calls(work: Callable[[Any], object], session: Session) -> int:
    """Count the calls of functions, also of those written in C, that some work makes."""
    number = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work(session)
    finally:
        sys.setprofile(before)
    return number


@pytest.mark.parametrize("make", [idle_instances, shared_loop])
def test_the_work_grows_with_the_number_of_requests(make: Callable[[int], Session]) -> None:
    for work in (lock_waits, Session.statistics, Session.critical_path, chrome_trace):
        small, large = (calls(work, make(count)) for count in (200, 800))
        assert large < 6 * small, work
    # With more requests the picture shows shades in place of blocks.
    small, large = (calls(timeline_svg, make(count)) for count in (200, 800))
    assert large < 6 * small


@pytest.mark.parametrize("make", [idle_instances, shared_loop])
def test_a_display_finds_the_waits_for_the_lock_once(
    make: Callable[[int], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    monkeypatch.setattr(span_tree, "_turns", lambda *given: found.append(given) or ())
    session = make(50)
    render(session, live=True)
    timeline_svg(session)
    assert len([of for of, _ in found if of is session]) == 1
    assert replace(session) == session  # what is kept is no part of the record
    assert lock_waits(replace(session, lock=())) == []


def test_many_coroutines_of_one_thread_have_fewer_longer_pieces() -> None:
    session = shared_loop(1_000)
    pieces = [piece for wait in lock_waits(session) for piece in wait.pieces]
    assert {wait.span for wait in lock_waits(session)} >= {span.id for span in session.spans if span.model == "a"}
    assert len(pieces) < 25_000


def test_a_request_waits_for_the_lock_once_it_is_the_next_one() -> None:
    session = idle_instances(40)
    spans = {span.id: span for span in session.spans}
    waits = [wait for wait in lock_waits(session) if wait.queued]
    assert len(waits) > 20
    for wait in waits:
        earlier = sorted(span.started for span in spans.values() if span.started < spans[wait.span].started)
        assert wait.pieces[0][0] >= ([0] * 4 + earlier)[-4]
