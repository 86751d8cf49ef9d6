"""A request that a scheduler takes over, where callers' frames keep the one that it was made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.tensors import inbound
from bls_notebook.engine.tensors.inbound import taken_over
from bls_notebook.pb_utils import InferenceRequest, Tensor

from .harness import Caller, ints, message, model, pbtxt

# The inputs are taken, and release flags are set by the model, later.
OWN = {"__weakref__", "_inputs", "_release_flags"}


def request() -> Any:
    made = InferenceRequest("7", 3, [Tensor("X", np.zeros(2))], ["Y"], "m", 2, flags=1, timeout=9)
    made._arrived, made._span = 11, 0
    return made


@pytest.mark.parametrize("recorded", [True, False])
def test_all_of_a_request_is_taken_over(recorded: bool) -> None:
    left = request()
    if recorded:
        left._span, left._kind, left._track = 5, "sync", 6
    tensors, names = left._inputs, set(InferenceRequest.__slots__) - OWN
    before = {name: getattr(left, name) for name in names if hasattr(left, name)}
    taken = taken_over(left)
    assert taken is not left
    assert taken._inputs is tensors
    assert {name: getattr(taken, name) for name in names if hasattr(taken, name)} == before
    assert hasattr(taken, "_kind") is recorded
    assert left.inputs() == []


KINDS = {"plain": "", "batching": "max_batch_size: 4 ", "dynamic": "max_batch_size: 4 dynamic_batching {} "}


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("stay", [True, False])
def test_an_unanswered_request_is_noticed(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch, stay: bool, kind: str, config: str
) -> None:
    """Whatever the scheduler, and on every Python also on the way that only some of them need."""
    if stay:
        monkeypatch.setattr("bls_notebook.engine.inline.ARGUMENTS_STAY", True)
        monkeypatch.setattr("bls_notebook.engine.schedulers.lifecycle.ARGUMENTS_STAY", True)
    elif inbound.ARGUMENTS_STAY:
        pytest.skip("this Python needs it")
    repo.define("m", model(f"{kind} execute(self, requests):\n    requests[0].get_response_sender()"), pbtxt() + config)
    inputs = ints(1) if not config else {"X": ints(1)["X"].reshape(1, -1)}
    assert "execute returned None" in message(Caller(repo.infer, "m", inputs).result())
