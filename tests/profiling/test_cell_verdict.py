from __future__ import annotations

from dataclasses import replace

import pytest

from bls_notebook.profiling.analysis.span_tree import lock_waits
from bls_notebook.profiling.records.session import ModelSeen, Session, Span
from bls_notebook.profiling.records.spans import LockHeld
from bls_notebook.profiling.records.verdicts import CAUSES, Verdict
from tests.profiling.simulated import Model, session

MS = 1_000_000
TWO = {"a": Model([10 * MS], 2)}
PIPELINE = {"a": Model([MS, "b", "c", MS], 4), "b": Model([5 * MS]), "c": Model([7 * MS], 2)}


def of(record: Session, cpu: float = 0.1) -> Verdict:
    """The verdict on a session of a process that used so many processors' time, of four."""
    found = replace(record, cpu=round(cpu * record.wall), cores=4).verdict()
    assert found.cause in CAUSES
    return found


def test_requests_one_after_the_other() -> None:
    found = of(session(TWO, *"aaaa"))
    assert (found.cause, found.model) == ("in_turn", "a")
    assert found.sentence.startswith("4 requests took 40 ms, one after the other")
    assert "with `instance_group.count` 4 for `a`: predicted 4.0 times as fast" in found.advice


def test_requests_that_queue() -> None:
    found = of(session(TWO, tuple("aaaaaaaa")))
    assert (found.cause, found.model, found.count) == ("queue", "a", 4)
    assert "6 of them queued on the 2 instances of `a` for 75% of the time" in found.sentence
    assert "2.0 times as fast as one after the other" in found.sentence
    assert found.advice.endswith("predicted 2.0 times as fast as now.")


def test_requests_that_are_as_fast_as_they_can_be_and_one_alone() -> None:
    assert of(session({"a": Model([10 * MS], 8)}, tuple("aaaaaaaa"))).cause == "helped"
    found = of(session(PIPELINE, "a"))
    assert found.cause == "one"
    assert "The time went on `c` (50%), `b` (36%)" in found.sentence
    assert "`a` waits for `b`, then for `c`: `%blsprofile a … --overlap` finds out" in found.advice


def test_the_cells_own_code_failures_and_nothing_at_all() -> None:
    assert of(session(TWO, 100 * MS, "a")).cause == "notebook"
    record = session(TWO, "a")
    failed = replace(record, spans=tuple(replace(s, state="error", error="no\nwhy") for s in record.spans))
    assert of(failed).sentence == "1 of 1 requests to `a` failed: no"
    assert Session().verdict() == Verdict("", "")


def test_pure_python_busy_processors_and_little_work() -> None:
    record = session(TWO, tuple("aaaa"))
    assert of(replace(record, lock=(LockHeld(0, record.wall),)), 1.0).cause == "gil"
    assert of(record, 3.9).cause == "cores"
    assert of(session({"a": Model([10_000])}, *"aaaa")).cause == "little"


@pytest.mark.parametrize("step", [10 * MS, 11 * MS, 12 * MS])
def test_instances_that_wait_for_each_other_end_one_after_the_other(step: int) -> None:
    names = [f"a_0_{i}" for i in range(4)]
    spans = tuple(Span(i + 1, "a", instance=names[i], ended=step * (i + 1), inferred=step * (i + 1)) for i in range(4))
    record = Session(spans, (ModelSeen("a", instances=tuple(names)),), wall=4 * step)
    found = of(record)
    assert (found.cause, found.model) == ("contention", "a")
    assert "wait for each other on something that they share" in found.sentence
    even = tuple(replace(s, ended=4 * step, inferred=4 * step) for s in spans)
    assert of(replace(record, spans=even)).cause != "contention"


def test_waits_for_the_lock_are_of_those_that_took_turns_or_could_have_begun() -> None:
    models = (ModelSeen("a", instances=("a_0", "a_1")),)
    one = Span(1, "a", instance="a_0", thread=11, ended=20 * MS, inferred=20 * MS)
    two = replace(one, id=2, instance="a_1", thread=12)
    late = replace(one, id=3, thread=13, queued=21 * MS, started=26 * MS, inferred=30 * MS, ended=30 * MS)
    held = LockHeld(5 * MS, 25 * MS, (11, 12))
    record = Session((one, two, late), models, wall=30 * MS, lock=(held,))
    found = {wait.span: wait for wait in lock_waits(record)}
    assert [list(found[i].pieces) for i in (1, 2)] == [[(5 * MS, 20 * MS)]] * 2
    assert (list(found[3].pieces), found[3].queued) == ([(21 * MS, 25 * MS)], True)
    # Without a second one at work, and where no instance was idle, it was something else.
    assert not lock_waits(replace(record, spans=(one,), lock=(replace(held, threads=(11,)),)))
    first = replace(one, queued=20 * MS, started=20 * MS, ended=30 * MS)
    busy = first, replace(first, id=2, instance="a_1", thread=12)
    assert not [wait for wait in lock_waits(replace(record, spans=(*busy, late))) if wait.queued]
