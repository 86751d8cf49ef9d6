"""How models misbehave: what is wrong with each answer, and when it comes."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np

import bls_notebook as bls
from bls_notebook.pb_utils import Tensor
from bls_notebook.repository.substitution.substitution import substitute
from bls_notebook.testing.drills.callees import Callee, FailingAnswers
from bls_notebook.testing.drills.faults import faults_named, spoilt
from bls_notebook.testing.drills.timed_request import DelayedResponse
from tests.engine.harness import Caller
from tests.testing.drills.models import REQUEST, define

NUMBERS = Tensor("F", np.array([[1.0, 2.0]], np.float32))
TEXT = Tensor("T", np.array([b"a", b"bc"], np.object_))
WHOLE = Tensor("I", np.array([3, 4], np.int64))
BF16 = Tensor._of("B", np.array([0x3F80], np.uint16), "BF16")


def test_each_tensor_is_spoilt_where_it_can_be() -> None:
    def told(fault: str, batching: bool = False) -> list[tuple[str, list[int], Any]] | None:
        out = spoilt([NUMBERS, TEXT, WHOLE], fault, batching)
        return None if out is None else [(t._datatype, t.shape(), t.as_numpy().reshape(-1)[:1].tolist()) for t in out]

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


def test_what_is_held_is_answered_once_it_is_released() -> None:
    delay = DelayedResponse()
    with bls.ModelRepository() as repo:
        define(repo, "twice")
        callee = Callee("twice", Mock(), Mock(flag_alone=False), 1, 1, False, False, None, {})
        failing = FailingAnswers(faults_named(["stall"])[0], callee, delay, lambda: None)
        with substitute(repo, {"twice": failing}):
            asked = Caller(repo.infer, "twice", REQUEST)
            assert delay.entered.wait(10)
            assert not asked.done
            delay.release()
            assert "'twice' was released" in asked.result().error.message()
        delay = failing._delay = DelayedResponse()
        with substitute(repo, {"twice": failing}):
            asked = Caller(repo.infer, "twice", REQUEST)
            assert delay.entered.wait(10)
        assert "'twice' was released" in asked.result().error.message()  # by the end of the substitution
        assert repo.infer("twice", REQUEST).error is None
