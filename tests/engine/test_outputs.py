"""What `execute` returns: what Triton's stub takes and refuses, and which outputs the requester gets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.engine.tensors.outputs import answer, check_returned
from bls_notebook.pb_utils import InferenceResponse, Tensor, TritonError


def response(*names: str, error: TritonError | None = None) -> InferenceResponse:
    return InferenceResponse([Tensor(n, np.array([i])) for i, n in enumerate(names)], error)


def outputs(got: InferenceResponse) -> dict[str, int]:
    return {t.name(): int(t.as_numpy()[0]) for t in got.output_tensors()}


def test_nones_and_subclasses_are_taken() -> None:
    class Mine(InferenceResponse):
        pass

    class Responses(list):  # type: ignore[type-arg]
        pass

    assert check_returned([None, Mine()], 2)[0] is None
    assert len(check_returned(Responses([response()]), 1)) == 1


@given(st.lists(st.sampled_from("ABCD")), st.sets(st.sampled_from("ABCD")), st.booleans())
def test_of_each_requested_name_the_last_is_handed_on(sent: list[str], requested: set[str], given_away: bool) -> None:
    got = answer([response(*sent)], 0, tuple(requested), given_away)
    assert outputs(got) == {name: i for i, name in enumerate(sent) if name in requested}
    assert len(got.output_tensors()) == len(outputs(got))


def test_an_error_goes_alone() -> None:
    error = TritonError("bad", TritonError.NOT_FOUND)
    for given_away in (True, False):
        got = answer([response("A", error=error)], 0, ("A",), given_away)
        assert got.output_tensors() == []
        assert got.error().message() == "bad"  # type: ignore[union-attr]
        assert got.error().code() is TritonError.NOT_FOUND  # type: ignore[union-attr]


def test_parameters_go_along() -> None:
    for given_away in (True, False):
        sent = InferenceResponse([Tensor("A", np.zeros(1))], parameters={"k": 1})
        assert answer([sent], 0, ("A",), given_away).parameters() == '{"k": 1}'


def test_what_the_model_still_holds_stays_as_it_is() -> None:
    kept = response("A", "B", "A")
    tensors = kept.output_tensors()
    for given_away in (True, False):
        got = answer([kept], 0, ("A",), given_away)
        assert outputs(got) == {"A": 2}
        assert kept.output_tensors() == tensors
        assert got is not kept


def test_the_one_of_several_that_is_meant() -> None:
    several = [response("A"), response("B"), response("A", "B")]
    assert [outputs(answer(several, i, ("A", "B"), True)) for i in range(3)] == [{"A": 0}, {"B": 0}, {"A": 0, "B": 1}]
