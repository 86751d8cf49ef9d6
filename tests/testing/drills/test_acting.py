"""How models misbehave: what is wrong with each answer, and when it comes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, Tensor
from bls_notebook.testing.drills.acting import Actor
from bls_notebook.testing.drills.faults import faults_named
from bls_notebook.testing.drills.holding import Hold
from bls_notebook.testing.drills.spoiling import spoilt

NUMBERS = Tensor("F", np.array([[1.0, 2.0]], np.float32))
TEXT = Tensor("T", np.array([b"a", b"bc"], np.object_))
WHOLE = Tensor("I", np.array([3, 4], np.int64))
BF16 = Tensor._of("B", np.array([0x3F80], np.uint16), "BF16")


def test_each_tensor_is_spoilt_where_it_can_be() -> None:
    def told(fault: str, batching: bool = False) -> list[tuple[str, list[int], Any]] | None:
        out = spoilt([NUMBERS, TEXT, WHOLE], fault, batching)
        return (
            None
            if out is None
            else [(t._datatype, t.shape(), t.as_numpy().reshape(-1)[:1].tolist()) for t in out]
        )

    assert told("missing-output") == []
    assert told("empty") == [("FP32", [0, 2], []), ("BYTES", [0], []), ("INT64", [0], [])]
    assert told("empty", True) == [("FP32", [1, 0], []), ("BYTES", [0], []), ("INT64", [0], [])]
    assert told("shape") == [("FP32", [1, 1, 2], [1.0]), ("BYTES", [1, 2], [b"a"]), ("INT64", [1, 2], [3])]
    assert told("data-type") == [("FP64", [1, 2], [1.0]), ("INT32", [2], [0]), ("FP32", [2], [3.0])]
    assert told("inf") == [("FP32", [1, 2], [float("inf")]), ("BYTES", [2], [b"a"]), ("INT64", [2], [3])]
    assert told("huge") == [
        ("FP32", [1, 2], [np.finfo(np.float32).max]),
        ("BYTES", [2], [b"x" * (1 << 20)]),
        ("INT64", [2], [np.iinfo(np.int64).max]),
    ]
    assert spoilt([TEXT, WHOLE], "nan", False) is None
    nan = spoilt([BF16], "nan", False)
    assert nan is not None
    assert (nan[0]._datatype, nan[0]._array.tolist()) == ("BF16", [0x7FC0])
    assert NUMBERS.as_numpy().tolist() == [[1.0, 2.0]]  # as it was


class Known:
    """Answers with what it was asked."""

    flag_alone = False

    def __call__(self, request: InferenceRequest) -> list[InferenceResponse]:
        return [InferenceResponse(request.inputs())]


def actor(fault: str, hold: Hold | None = None) -> Actor:
    return Actor(faults_named([fault])[0], "m", Known(), False, False, {}, 1, hold or Hold(), lambda: None)


def request(number: float) -> InferenceRequest:
    tensor = Tensor("X", np.array([number], np.float32))
    return InferenceRequest(model_name="m", requested_output_names=["X"], inputs=[tensor])


def test_what_is_held_is_answered_once_it_is_let_go() -> None:
    hold = Hold()
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(actor("stall", hold)(request(1))))
    thread.start()
    assert hold.entered.wait(10)
    assert not answers
    hold.let_go()
    thread.join(10)
    assert "'m' was let go" in answers[0].message()
