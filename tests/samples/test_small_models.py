"""The sample models that need nothing but NumPy, one idea each."""

from __future__ import annotations

from threading import Barrier
from typing import Any

import numpy as np
import pytest

from bls_notebook.testing import RepositoryUnderTest
from tests.waiting import LIMIT

pytestmark = pytest.mark.triton_repository("../../model_repository")
A, B = np.array([1, 2, 3], np.float32), np.array([10, 20, 30], np.float32)
PAIR = {"INPUT0": A, "INPUT1": B}


def named(model: str, **inputs: Any) -> dict[str, Any]:
    return {"MODEL_NAME": np.array([model], np.object_), **inputs}


@pytest.mark.parametrize("model", ["add_sub", "dlpack_add_sub"])
def test_sums_and_differences(triton_repository: RepositoryUnderTest, model: str) -> None:
    answer = triton_repository.infer(model, PAIR)
    triton_repository.assert_answer(answer, {"OUTPUT0": [11, 22, 33], "OUTPUT1": [-9, -18, -27]})
    triton_repository.assert_no_warnings()


@pytest.mark.parametrize("model", ["add_sub", "dlpack_add_sub"])
def test_vectors_of_two_lengths_are_refused(triton_repository: RepositoryUnderTest, model: str) -> None:
    """And not stretched, as NumPy would."""
    answer = triton_repository.infer(model, {"INPUT0": A, "INPUT1": B[:1]})
    assert answer.error.message().startswith(f"{model}: INPUT0 has shape [3] but INPUT1 [1]")


def test_a_tensor_comes_back_as_it_went(triton_repository: RepositoryUnderTest) -> None:
    triton_repository.assert_answer(triton_repository.infer("identity_device", {"INPUT": A}), {"OUTPUT": A})


def test_the_caller_hands_on_what_it_gets(triton_repository: RepositoryUnderTest) -> None:
    answer = triton_repository.infer("bls_sync", named("add_sub", **PAIR))
    triton_repository.assert_answer(answer, {"OUTPUT0": A + B, "OUTPUT1": A - B})
    triton_repository.assert_called("add_sub", 1, caller="bls_sync", inputs=PAIR)


def test_two_calls_are_under_way_at_once(triton_repository: RepositoryUnderTest) -> None:
    """Each asks for the output that it needs; the model named may be any with those of `add_sub`."""
    both = Barrier(2, timeout=LIMIT)

    def sums(request: Any) -> dict[str, Any]:
        both.wait()
        return {"OUTPUT0": A, "OUTPUT1": B}

    with triton_repository.stub("add_sub", sums), triton_repository.stub("dlpack_add_sub", sums):
        answer = triton_repository.infer("bls_async", named("dlpack_add_sub", **PAIR))
    triton_repository.assert_answer(answer, {"OUTPUT0": A, "OUTPUT1": B})
    triton_repository.assert_overlapped(2)


@pytest.mark.parametrize("model", ["bls_sync", "bls_async"])
def test_an_error_of_the_callee_is_the_callers(triton_repository: RepositoryUnderTest, model: str) -> None:
    with triton_repository.stub("add_sub", "no memory left"):
        answer = triton_repository.infer(model, named("add_sub", **PAIR))
    assert "no memory left" in answer.error.message()


@pytest.mark.parametrize("n", [0, 1, 4])
def test_n_is_answered_n_times(triton_repository: RepositoryUnderTest, n: int) -> None:
    told = [answer.as_numpy() for answer in triton_repository.stream("square_int32", {"IN": np.int32([n])})]
    assert [int(each["OUT"][0]) for each in told if each] == [n] * n


def test_a_negative_number_is_an_error_in_the_stream(triton_repository: RepositoryUnderTest) -> None:
    (answer,) = triton_repository.stream("square_int32", {"IN": np.int32([-1])})
    assert "IN is -1" in answer.error.message()


def test_a_stream_adds_up(triton_repository: RepositoryUnderTest) -> None:
    answer = triton_repository.infer("bls_decoupled_sync", named("square_int32", IN=np.int32([4])))
    triton_repository.assert_answer(answer, {"SUM": [16], "COUNT": [4]})


def test_any_stream_adds_up(triton_repository: RepositoryUnderTest) -> None:
    three = ({"OUT": np.int32([n])} for n in (5, 6, 7))
    with triton_repository.stub("square_int32", lambda request: three):
        answer = triton_repository.infer("bls_decoupled_sync", named("square_int32", IN=np.int32([1])))
    triton_repository.assert_answer(answer, {"SUM": [18], "COUNT": [3]})


def test_several_streams_at_once(triton_repository: RepositoryUnderTest) -> None:
    numbers = np.array([4, 0, 1], np.int32)
    answer = triton_repository.infer("bls_decoupled_async", named("square_int32", IN=numbers))
    triton_repository.assert_answer(answer, {"SUM": [16, 0, 1], "COUNT": [4, 0, 1]})
    triton_repository.assert_called("square_int32", 3, caller="bls_decoupled_async")


def test_a_photo_is_made_ready_for_a_network(triton_repository: RepositoryUnderTest) -> None:
    red = np.zeros((30, 50, 3), np.uint8)
    red[:, :, 0] = 255
    answer = triton_repository.infer("preprocess", {"RAW_IMAGE": red})
    channels = [np.full((224, 224), (value - mean) / spread) for value, mean, spread in
                [(1, 0.485, 0.229), (0, 0.456, 0.224), (0, 0.406, 0.225)]]  # fmt: skip
    triton_repository.assert_answer(answer, {"PROCESSED_IMAGE": np.float32(channels)}, atol=1e-5)


def test_a_photo_without_pixels_is_refused(triton_repository: RepositoryUnderTest) -> None:
    answer = triton_repository.infer("preprocess", {"RAW_IMAGE": np.zeros((0, 5, 3), np.uint8)})
    assert "RAW_IMAGE is empty" in answer.error.message()


RECORDING = {"SIGNAL": np.float32([1, -9, 3]), "NOISE": np.float32([0, 1, 0])}


@pytest.mark.parametrize("model", ["leaky", "tidy"])
def test_the_loudest_moment(triton_repository: RepositoryUnderTest, model: str) -> None:
    answer = triton_repository.infer(model, RECORDING)
    triton_repository.assert_answer(answer, {"LOUDEST": [-10], "AT": [1]})
    triton_repository.assert_called("dlpack_add_sub", 1, caller=model)


@pytest.mark.slow
def test_the_tidy_one_keeps_nothing(triton_repository: RepositoryUnderTest) -> None:
    triton_repository.infer("tidy", RECORDING)
    with triton_repository.assert_nothing_left():
        triton_repository.infer("tidy", RECORDING)


@pytest.mark.slow
def test_the_leaky_one_is_found_out(triton_repository: RepositoryUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bls_notebook.testing.assertions._PATIENCE", 0.01)  # it never releases the memory
    triton_repository.infer("leaky", RECORDING)
    with pytest.raises(AssertionError, match=r"leaky"), triton_repository.assert_nothing_left():
        triton_repository.infer("leaky", RECORDING)
