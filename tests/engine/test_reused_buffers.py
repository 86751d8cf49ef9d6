"""A model that changes an array between `async_exec` and its next await is warned: a server reads it only then."""

from __future__ import annotations

import pytest

import bls_notebook as bls
from tests.engine.harness import ints, value
from tests.engine.sources import DOUBLE, model, pbtxt

WAYS = {
    "one buffer for two calls": ("buffer[:] = n; calls.append(self.send(buffer))", True),
    "a view of one buffer": ("buffer[:] = n; calls.append(self.send(buffer[:2]))", True),
    "a large buffer": ("large[-7:] = n; calls.append(self.send(large))", True),
    "a change after the last call": ("calls.append(self.send(buffer)); buffer += n", True),
    "the same array twice": ("calls.append(self.send(buffer))", False),
    "a fresh array": ("calls.append(self.send(np.full(2, n, np.int32)))", False),
    "a copy": ("buffer[:] = n; calls.append(self.send(buffer.copy()))", False),
    "an await between them": ("buffer[:] = n; await self.send(buffer)", False),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_array_that_is_changed_after_async_exec(repo: bls.ModelRepository, way: str) -> None:
    body, is_warned = WAYS[way]
    repo.define("double", DOUBLE, pbtxt(count=2))
    repo.define("a", model(f"""
def send(self, array):
    inputs = [pb.Tensor("X", array)]
    return pb.InferenceRequest(model_name="double", requested_output_names=["Y"], inputs=inputs).async_exec()

async def execute(self, requests):
    buffer, large, calls = np.zeros(2, np.int32), np.zeros(1 << 18, np.int32), []
    for n in 1, 2:
        {body}
    await asyncio.gather(*calls)
    return [answer(len(calls)) for _ in requests]
"""), pbtxt())  # fmt: skip
    response = repo.infer("a", ints(1))
    assert value(response) == (0 if way == "an await between them" else 2)
    warnings = [text for text in response.warnings if "was changed after async_exec of 'double'" in text]
    assert len(warnings) == is_warned
