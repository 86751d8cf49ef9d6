from __future__ import annotations

import json

import pytest
from hypothesis import given

from bls_notebook.profiling.analysis.difference import Difference, ModelChange, direction
from bls_notebook.profiling.records.session import ModelSeen, Session, Span
from bls_notebook.records.measurements import quartiles
from tests.profiling.simulated import Model, session
from tests.profiling.strategies import sessions


def of_model(difference: Difference, name: str) -> ModelChange:
    (found,) = (m for m in difference.models if m.name == name)
    return found


def test_what_got_faster_and_where() -> None:
    models = {"a": Model([2, ("b",) * 4], code="1"), "b": Model([10], code="2")}
    more = {"a": Model([2, ("b",) * 4], code="1"), "b": Model([10], instances=4, code="3")}
    found = session(models, "a").diff(session(more, "a"))
    assert found.wall_before - found.wall_after == 33
    b = of_model(found, "b")
    assert b.duration.verdict == "faster"
    assert b.queue.verdict == "faster"
    assert b.self_time.verdict == "same"
    assert b.self_time.factor == 1.0
    assert b.moved == ("1 to 4 instances",)
    assert (b.code, of_model(found, "a").code, found.code) == ("changed", "same", "changed")


def test_a_model_that_one_side_lacks() -> None:
    found = session({"a": Model([1])}, "a").diff(session({"b": Model([1])}, "b"))
    assert of_model(found, "a").duration.verdict == ""
    assert of_model(found, "a").duration.factor == 0.0
    assert found.code == "unknown"


def test_what_moved() -> None:
    def one(**more: object) -> Session:
        return Session((Span(1, "a", instance="a_0", **more),), (ModelSeen("a", code="x", config="y"),))  # type: ignore[arg-type]

    found = one().diff(one(device="gpu:0", kind="async", batch=3))
    assert found.models[0].moved == ("cpu to gpu:0", "sync to async", "batched")
    assert found.code == "same"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([10, 11, 12], [5, 6, 7], "faster"),
        ([5, 6, 7], [10, 11, 12], "slower"),
        ([5, 10, 15], [4, 9, 14], "same"),
        ([10, 11, 12], [2, 9, 30], "same"),  # it spreads too widely to tell
        ([], [1], ""),
        ([1], [1], "same"),
    ],
)
def test_verdict(before: list[float], after: list[float], expected: str) -> None:
    assert direction(quartiles(before), quartiles(after)) == expected


@given(sessions())
def test_a_session_does_not_differ_from_itself(record: Session) -> None:
    found = record.diff(record)
    for change in found.models:
        assert change.duration.verdict == change.queue.verdict == "same"
        assert change.moved == ()
    assert Difference.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@given(sessions(), sessions())
def test_the_other_way_round_it_is_the_opposite(one: Session, other: Session) -> None:
    opposite = {"faster": "slower", "slower": "faster", "same": "same", "": ""}
    there, back = one.diff(other), other.diff(one)
    for a, b in zip(there.models, back.models, strict=True):
        assert a.name == b.name
        assert opposite[a.duration.verdict] == b.duration.verdict
