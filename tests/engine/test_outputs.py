"""What `execute` returns: what Triton's stub takes and refuses, and which outputs the requester gets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.engine.exception_text import ReturnError
from bls_notebook.engine.tensors.outputs import answer, check_returned
from bls_notebook.pb_utils import InferenceResponse, Tensor, TritonError, TritonModelException


def response(*names: str, error: TritonError | None = None) -> InferenceResponse:
    return InferenceResponse([Tensor(n, np.array([i])) for i, n in enumerate(names)], error)


def outputs(got: InferenceResponse) -> dict[str, int]:
    return {t.name(): int(t.as_numpy()[0]) for t in got.output_tensors()}


# -- the return value -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_list_with_a_response_for_each_request(count: int) -> None:
    returned = [response("A") for _ in range(count)]
    assert check_returned(returned, count) is returned


def test_nones_and_subclasses_are_taken() -> None:
    class Mine(InferenceResponse):
        pass

    class Responses(list):  # type: ignore[type-arg]
        pass

    assert check_returned([None, Mine()], 2)[0] is None
    assert len(check_returned(Responses([response()]), 1)) == 1


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        ((), "<class 'tuple'>"),
        (None, "<class 'NoneType'>"),
        ({}, "<class 'dict'>"),
        ("x", "<class 'str'>"),
        (5, "<class 'int'>"),
        (InferenceResponse(), "<class 'c_python_backend_utils.InferenceResponse'>"),
        (iter([]), "<class 'list_iterator'>"),
    ],
)
def test_anything_but_a_list_is_refused(returned: Any, found: str) -> None:
    with pytest.raises(ReturnError) as info:
        check_returned(returned, 1)
    assert str(info.value) == f"Expected a list in the execute return, found type '{found}'."
    assert isinstance(info.value, TritonModelException)


@pytest.mark.parametrize(("given", "count"), [(0, 1), (2, 1), (1, 2)])
def test_a_wrong_number_is_refused(given: int, count: int) -> None:
    with pytest.raises(ReturnError) as info:
        check_returned([response() for _ in range(given)], count)
    assert (
        str(info.value) == "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
        f"InferenceRequest(s) size is:{count}, and InferenceResponse(s) size is:{given}\n"
    )


@pytest.mark.parametrize("element", [5, "x", np.zeros(1), TritonError("x"), [response()], Tensor("A", np.zeros(1))])
def test_something_else_in_the_list_is_refused(element: Any) -> None:
    with pytest.raises(
        ReturnError, match=r"^Expected an 'InferenceResponse' object in the execute function return list"
    ):
        check_returned([response(), element], 2)


# -- the answer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_away", [True, False])
@pytest.mark.parametrize(
    ("sent", "requested", "expected"),
    [
        (["A"], ["A"], {"A": 0}),
        (["A", "B"], ["A", "B"], {"A": 0, "B": 1}),
        (["B", "A"], ["A", "B"], {"A": 1, "B": 0}),
        (["A", "B"], ["B"], {"B": 1}),
        (["A"], ["B"], {}),
        (["A"], ["A", "B"], {"A": 0}),
        ([], ["A"], {}),
        (["A", "A"], ["A"], {"A": 1}),
        (["A", "B", "A"], ["A", "B"], {"A": 2, "B": 1}),
        (["A", "A"], ["A", "B"], {"A": 1}),
        (["A", "C"], ["A", "B"], {"A": 0}),
        (["C"], ["A"], {}),
    ],
)
def test_which_outputs_are_handed_on(
    sent: list[str], requested: list[str], expected: dict[str, int], given_away: bool
) -> None:
    got = answer([response(*sent)], 0, tuple(requested), given_away)
    assert outputs(got) == expected


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
