"""A request that a scheduler takes over, where callers' frames keep the one that it was made of."""

from __future__ import annotations

import pytest

import bls_notebook as bls
from bls_notebook.engine.tensors import inbound

from .harness import Caller, ints, message
from .sources import model, pbtxt

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
