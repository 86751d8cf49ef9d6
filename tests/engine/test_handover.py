"""Memory that nobody else can reach moves from one model to another without a copy."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import bls_notebook as bls
from tests.engine import seen
from tests.engine.holders import LARGE, MAKERS, fresh
from tests.engine.isolated import CONFIG, HEAD, MOVES_REQUESTS, ask, check_inputs_arrived, fine, keeper, the_only
from tests.engine.seen import address


@pytest.fixture(params=["", "tracked"], autouse=True)
def track(request: pytest.FixtureRequest) -> Iterator[None]:
    """All of this holds while memory is tracked too: the ledger changes nothing about copies."""
    if not request.param:
        yield
        return
    with bls.track_memory():
        yield


def test_holders_of_requests_can_be_counted_on_this_python() -> None:
    assert MOVES_REQUESTS or not (3, 11) <= sys.version_info < (3, 14)


MOVING = ["fresh", "view", "slice", "reshaped", "other type"]


@pytest.mark.skipif(not MOVES_REQUESTS, reason="this Python cannot tell whether a request is held")
@pytest.mark.parametrize("maker", MOVING)
def test_an_input_that_nobody_holds_moves(apart: bls.ModelRepository, maker: str) -> None:
    sent: list[int] = []

    def array() -> Any:
        made = MAKERS[maker](LARGE)
        sent.append(address(made))
        return made

    def body() -> None:
        fine(ask(array()).exec())
        assert seen.notes["at"] == sent[-1:]
        fine(ask(array(), array()).exec())
        assert seen.notes["at"] == sent[-2:]

    apart.run(body)

    async def async_body() -> None:
        fine(await ask(array()).async_exec())
        assert seen.notes["at"] == sent[-1:]
        await asyncio.gather(*[ask(array()).async_exec() for _ in range(2)])
        assert seen.notes["at"][0] in sent[-2:]

    apart.run(async_body)
    check_inputs_arrived(1, LARGE)


@pytest.mark.skipif(not MOVES_REQUESTS, reason="this Python cannot tell whether a request is held")
def test_an_input_moves_from_inside_a_model(apart: bls.ModelRepository) -> None:
    source = (
        HEAD
        + """
class TritonPythonModel:
    {kind} execute(self, requests):
        array = fresh(5000)
        seen.notes["sent"] = seen.address(array)
        tensors = [pb_utils.Tensor("A", array)]
        del array
        response = {call}pb_utils.InferenceRequest(
            model_name="writer", inputs=[tensors.{take}], requested_output_names=[]
        ).{send}()
        return [pb_utils.InferenceResponse()]
"""
    )
    for kind, call, send in (("def", "", "exec"), ("async def", "await ", "async_exec")):
        for take, moves in (("pop()", True), ("__getitem__(0)", False)):
            apart.define("caller", source.format(kind=kind, call=call, send=send, take=take), CONFIG)
            assert apart.infer("caller", {"A": fresh(1)}).error is None
            assert (seen.notes["at"] == [seen.notes["sent"]]) is moves


@pytest.mark.parametrize("maker", MOVING)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_output_that_nobody_holds_moves(apart: bls.ModelRepository, maker: str, kind: str) -> None:
    apart.define("maker", HEAD + f"""
class TritonPythonModel:
    {kind} execute(self, requests):
        responses = []
        for request in requests:
            array = MAKERS[{maker!r}](5000)
            seen.notes["made"] = seen.address(array)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
        return responses
""", CONFIG)  # fmt: skip
    got = apart.infer("maker", {"A": fresh(1)})["OUT"].as_numpy()
    assert address(got) == seen.notes["made"]
    assert got.flags.writeable

    def body() -> None:
        assert address(the_only(ask(fresh(1), model="maker").exec())) == seen.notes["made"]

    apart.run(body)

    async def async_body() -> None:
        assert address(the_only(await ask(fresh(1), model="maker").async_exec())) == seen.notes["made"]

    apart.run(async_body)


def test_an_output_moves_through_a_model_that_relays_it(apart: bls.ModelRepository) -> None:
    apart.define("keeper", keeper(), CONFIG)
    apart.define("relay", HEAD + """
class TritonPythonModel:
    def execute(self, requests):
        inner = pb_utils.InferenceRequest(
            model_name="keeper", inputs=[pb_utils.Tensor("A", fresh(1))], requested_output_names=[]
        ).exec()
        seen.notes["relayed"] = seen.address(inner.output_tensors()[0].as_numpy())
        return [inner]
""", CONFIG)  # fmt: skip
    seen.notes.update(maker="fresh", holder="nothing", size=LARGE)
    got = apart.infer("relay", {"A": fresh(1)})["OUT"].as_numpy()
    assert address(got) == seen.notes["relayed"]


def test_moved_memory_is_freed_with_its_last_holder(apart: bls.ModelRepository) -> None:
    def body() -> weakref.ref[Any]:
        fine(ask(fresh(LARGE)).exec())
        alive = weakref.ref(seen.notes["kept"][0])
        assert alive() is not None
        seen.notes.clear()
        gc.collect()
        return alive

    assert apart.run(body)() is None
