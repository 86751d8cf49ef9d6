"""`ResponseIterator`: the responses of a decoupled model, walked once, again, and in parts."""

from __future__ import annotations

import contextvars
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.engine.response_stream import AnsweredStream
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, ResponseIterator, Tensor, TritonError
from tests.engine.harness import Caller

COUNT = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            count = request.inputs()[0].as_numpy()[0]
            for i in range(count):
                tensor = pb_utils.Tensor("OUT", np.array([i], np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
COUNT_CONFIG = """
model_transaction_policy { decoupled: true }
input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [1] }]
"""


class Stream:
    """A stream that is there already."""

    def __init__(self, *responses: InferenceResponse) -> None:
        self.responses = deque(responses)
        self.cancelled = self.discarded = 0

    def next_response(self) -> tuple[InferenceResponse, bool]:
        response = self.responses.popleft()
        return response, not self.responses

    def cancel(self) -> None:
        self.cancelled += 1

    def discard(self) -> None:
        self.discarded += 1


def responses(count: int) -> list[InferenceResponse]:
    return [InferenceResponse(parameters={"i": i}) for i in range(count)]


def test_a_response_iterator_is_its_own_iterator() -> None:
    walk = ResponseIterator(Stream(*responses(1)))
    assert iter(walk) is walk
    assert not hasattr(walk, "__aiter__")
    with pytest.raises(TypeError):
        len(walk)  # type: ignore[arg-type]


@given(st.integers(1, 6), st.lists(st.integers(0, 7), max_size=5))
def test_a_walk_goes_on_where_it_was_left_and_starts_again_once_it_ended(count: int, steps: list[int]) -> None:
    """Against python_backend's own state machine, written down once more."""
    made = responses(count)
    walk = ResponseIterator(Stream(*made))
    read = position = 0
    for step in steps:
        iter(walk)
        if read == count and position >= count:
            position = 0
        got = []
        for _ in range(step):
            try:
                got.append(next(walk))
            except StopIteration:
                break
        expected = made[position : position + step]
        assert got == expected
        position += len(expected)
        read = max(read, position)


def test_after_the_end_next_stops_until_it_is_walked_again() -> None:
    made = responses(2)
    walk = ResponseIterator(Stream(*made))
    assert list(walk) == made
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(walk)
    assert (list(walk), list(walk)) == (made, made)


def test_errors_between_the_first_and_the_last_response_arrive() -> None:
    bad, worse = (InferenceResponse(error=TritonError(words)) for words in ("bad", "worse"))
    first, last = responses(2)
    assert list(ResponseIterator(Stream(first, bad, worse, last))) == [first, bad, worse, last]


def test_cancel_asks_the_stream_until_the_end() -> None:
    stream = Stream(*responses(2))
    walk = ResponseIterator(stream)
    walk.cancel()
    next(walk)
    walk.cancel()
    assert stream.cancelled == 2
    next(walk)
    walk.cancel()
    assert stream.cancelled == 2


def test_one_that_is_dropped_early_tells_the_stream() -> None:
    for read, discarded in ((0, 1), (1, 1), (2, 0)):
        stream = Stream(*responses(2))
        walk: Any = ResponseIterator(stream)
        for _ in range(read):
            next(walk)
        del walk
        assert stream.discarded == discarded


def test_an_interrupted_wait_can_be_taken_up_again() -> None:
    made = responses(1)

    class Interrupted(Stream):
        first = True

        def next_response(self) -> tuple[InferenceResponse, bool]:
            if self.first:
                self.first = False
                raise KeyboardInterrupt
            return super().next_response()

    walk = ResponseIterator(Interrupted(*made))
    with pytest.raises(KeyboardInterrupt):
        next(walk)
    assert list(walk) == made


def count_request(count: int, model: str = "count") -> InferenceRequest:
    return InferenceRequest(
        model_name=model, inputs=[Tensor("IN", np.array([count], np.int32))], requested_output_names=[]
    )


def values(walk: Any) -> list[Any]:
    return [[t.as_numpy()[0] for t in r.output_tensors()] for r in walk]


def test_a_final_flag_alone_is_one_empty_response(repo: bls.ModelRepository) -> None:
    repo.define("count", COUNT, COUNT_CONFIG)
    walk = repo.run(lambda: count_request(3).exec(decoupled=True))
    assert type(walk) is ResponseIterator
    assert (values(walk), values(walk)) == ([[0], [1], [2], []], [[0], [1], [2], []])
    assert values(repo.run(lambda: count_request(0).exec(decoupled=True))) == [[]]


def test_threads_that_share_it_share_the_responses_and_all_end(repo: bls.ModelRepository) -> None:
    repo.define("count", COUNT, COUNT_CONFIG)

    def read(stream: ResponseIterator, got: list[Any]) -> None:
        while True:
            try:
                got.append(next(stream))
            except StopIteration:
                return

    def run() -> None:
        stream = count_request(60).exec(decoupled=True)
        got: list[Any] = []
        readers = [Caller(contextvars.copy_context().run, read, stream, got) for _ in range(4)]
        for reader in readers:
            reader.result()
        assert len(got) == len(list(stream)) == 61
        assert {id(response) for response in got} == {id(response) for response in stream}

    for _ in range(5):
        repo.run(run)


def test_a_response_that_is_there_already_is_had_once() -> None:
    stream = ResponseIterator(AnsweredStream(InferenceResponse()))
    other = ResponseIterator(stream._stream)
    assert (len(list(stream)), list(other), len(list(stream))) == (1, [], 1)


def test_a_refused_request_is_one_response(repo: bls.ModelRepository) -> None:
    (only,) = repo.run(lambda: list(count_request(1, "nobody").exec(decoupled=True)))
    assert only.error().message().endswith("Request for unknown model: 'nobody' is not found")
    repo.define("count", COUNT, COUNT_CONFIG)
    refused = repo.run(lambda: count_request(1).exec())
    assert "Please use 'decoupled=True' argument" in refused.error().message()
