"""What `execute` returns: what Triton's stub takes and refuses, and which outputs the requester gets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.engine.tensors.outputs import answer, check_returned
from bls_notebook.pb_utils import InferenceResponse, Tensor, TritonError


def response(*names: str, error: TritonError | None = None) -> InferenceResponse:
    return InferenceResponse([Tensor(n, np.array([i])) for i, n in enumerate(names)], error)


def test_nones_and_subclasses_are_taken() -> None:
    class Mine(InferenceResponse):
        pass

    class Responses(list):  # type: ignore[type-arg]
        pass

    assert check_returned([None, Mine()], 2)[0] is None
    assert len(check_returned(Responses([response()]), 1)) == 1


@given(st.lists(st.sampled_from("ABCD")), st.sets(st.sampled_from("ABCD")), st.booleans())
def test_all_outputs_of_requested_names_are_handed_on(sent: list[str], requested: set[str], given_away: bool) -> None:
    whole = InferenceResponse(response(*sent).output_tensors(), parameters={"k": 1})
    tensors = whole.output_tensors()
    got = answer([response("A"), whole], 1, tuple(requested), given_away)
    handed_on = [(t.name(), int(t.as_numpy()[0])) for t in got.output_tensors()]
    assert handed_on == [(name, i) for i, name in enumerate(sent) if name in requested]
    assert got.parameters() == '{"k":1}'
    assert got is not whole
    assert whole.output_tensors() == tensors  # what the model still holds stays as it is


@pytest.mark.parametrize("given_away", [True, False])
def test_an_error_goes_alone(given_away: bool) -> None:
    got = answer([response("A", error=TritonError("bad", TritonError.NOT_FOUND))], 0, ("A",), given_away)
    error: Any = got.error()
    assert (got.output_tensors(), error.message(), error.code()) == ([], "bad", TritonError.NOT_FOUND)
