"""Models behave as if in processes of their own: what a callee does to its inputs, nobody else sees."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import dlpack
from bls_notebook.pb_utils import InferenceRequest, Tensor
from tests.engine import seen
from tests.engine.holders import HOLDERS, LARGE, MAKERS, TINY, fresh
from tests.engine.isolated import CONFIG, HEAD, ask, assert_untouched, check_inputs_arrived, fine, the_only


def hold(holder: str, maker: str, size: int, kept: list[Any]) -> Any:
    array = MAKERS[maker](size)
    kept.append(HOLDERS[holder][0](array))
    return array


@pytest.mark.parametrize("size", [TINY, LARGE])
@pytest.mark.parametrize("holder", HOLDERS)
def test_writes_to_an_input_never_reach_who_holds_it(apart: bls.ModelRepository, holder: str, size: int) -> None:
    for maker in MAKERS:
        kept: list[Any] = []

        def body(maker: str = maker, kept: list[Any] = kept) -> None:
            fine(ask(hold(holder, maker, size, kept)).exec())

        apart.run(body)
        check_inputs_arrived(1, size)
        assert_untouched(HOLDERS[holder][1](kept[0]), size)


@pytest.mark.parametrize("holder", HOLDERS)
def test_writes_to_an_input_of_async_exec(apart: bls.ModelRepository, holder: str) -> None:
    kept: list[Any] = []

    async def body() -> None:
        for maker in ("fresh", "view", "read only", "capsule"):
            kept.append(None)
            fine(await ask(hold(holder, maker, LARGE, kept)).async_exec())
            check_inputs_arrived(1, LARGE)
            assert_untouched(HOLDERS[holder][1](kept[-1]), LARGE)

    apart.run(body)


@pytest.mark.parametrize("size", [TINY, LARGE])
def test_the_same_array_in_two_inputs_arrives_as_two(apart: bls.ModelRepository, size: int) -> None:
    def same() -> InferenceRequest:
        array = fresh(size)
        return ask(array, array)

    def two_views() -> InferenceRequest:
        array = fresh(size)
        return ask(array[:], array[:])

    def array_and_view() -> InferenceRequest:
        array = fresh(size)
        return ask(array, array[:])

    def two_tensors_of_one_memory() -> InferenceRequest:
        array = fresh(size)
        return ask(array, Tensor.from_dlpack("X", array).as_numpy())

    makers: list[Callable[[], InferenceRequest]] = [same, two_views, array_and_view, two_tensors_of_one_memory]
    for make in makers:

        def body(make: Callable[[], InferenceRequest] = make) -> None:
            fine(make().exec())

        apart.run(body)
        check_inputs_arrived(2, size)
        first, second = seen.notes["kept"]
        assert not np.shares_memory(first, second), make.__name__


def test_a_request_that_is_kept_in_other_ways_can_be_sent_again(apart: bls.ModelRepository) -> None:
    def sends() -> Iterator[tuple[str, list[Callable[[], Any]]]]:
        bound = ask(fresh(LARGE)).exec
        yield "bound method", [bound, bound]
        listed = [ask(fresh(LARGE))]
        yield "list", [lambda: listed[0].exec(), lambda: listed[0].exec()]
        unbound = ask(fresh(LARGE))
        yield "unbound method", [lambda: InferenceRequest.exec(unbound)] * 2
        mapped = [ask(fresh(LARGE))]
        yield "map", [lambda: next(map(InferenceRequest.exec, mapped))] * 2
        starred = (ask(fresh(LARGE)),)
        yield "starred", [lambda: InferenceRequest.exec(*starred)] * 2
        proxied = ask(fresh(LARGE))
        yield "proxy", [lambda: weakref.proxy(proxied).exec()] * 2
        attribute = type("Holder", (), {"request": ask(fresh(LARGE))})
        yield "attribute", [lambda: attribute.request.exec()] * 2

        def sort(requests: list[InferenceRequest]) -> Any:
            answers = []

            def key(request: InferenceRequest) -> int:
                answers.append(request.exec())
                return 0

            requests.sort(key=key)
            return answers[0]

        in_a_sort = [ask(fresh(LARGE))]
        yield "sort", [lambda: sort(in_a_sort)] * 2

    def body() -> None:
        for name, calls in sends():
            for call in calls:
                response = call()
                assert not response.has_error(), (name, response.error().message())
                check_inputs_arrived(1, LARGE)

    apart.run(body)


def test_a_request_that_is_kept_elsewhere_while_it_is_sent_on_other_threads(apart: bls.ModelRepository) -> None:
    async def body() -> None:
        bound = ask(fresh(LARGE)).exec
        for _ in range(2):
            fine(await asyncio.to_thread(bound))
            check_inputs_arrived(1, LARGE)
        asynchronous = ask(fresh(LARGE)).async_exec
        for _ in range(2):
            fine(await asynchronous())
            check_inputs_arrived(1, LARGE)
        for _ in range(2):
            context = contextvars.copy_context()
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                fine(await asyncio.wrap_future(pool.submit(context.run, bound)))
            check_inputs_arrived(1, LARGE)

    apart.run(body)


def test_a_tensor_in_two_requests(apart: bls.ModelRepository) -> None:
    def body() -> None:
        tensor = Tensor("A", fresh(LARGE))
        inputs = [tensor]
        for _ in range(3):
            fine(InferenceRequest(model_name="writer", inputs=[tensor], requested_output_names=[]).exec())
            check_inputs_arrived(1, LARGE)
            fine(InferenceRequest(model_name="writer", inputs=inputs, requested_output_names=[]).exec())
            check_inputs_arrived(1, LARGE)
        assert_untouched(tensor.as_numpy(), LARGE)
        del tensor
        fine(InferenceRequest(model_name="writer", inputs=inputs, requested_output_names=[]).exec())
        assert_untouched(inputs[0].as_numpy(), LARGE)

    apart.run(body)


def test_weak_references_to_requests_and_tensors(apart: bls.ModelRepository) -> None:
    found: list[Any] = []

    def noting() -> InferenceRequest:
        request = ask(fresh(LARGE))
        tensor = request.inputs()[0]
        found.extend([weakref.ref(request), weakref.ref(tensor)])
        return request

    def body() -> None:
        fine(noting().exec())

    apart.run(body)
    check_inputs_arrived(1, LARGE)
    for reference in found:
        thing = reference()
        if isinstance(thing, InferenceRequest):
            for tensor in thing.inputs():
                assert_untouched(tensor.as_numpy(), LARGE)
        elif thing is not None:
            assert_untouched(thing.as_numpy(), LARGE)


def test_inputs_written_while_queued_are_not_seen(apart: bls.ModelRepository) -> None:
    async def body() -> None:
        array = fresh(LARGE)
        future = ask(array).async_exec()
        array[...] = -1
        fine(await future)
        check_inputs_arrived(1, LARGE)

    apart.run(body)


@pytest.mark.parametrize("size", [TINY, LARGE])
def test_inputs_from_outside_any_model(apart: bls.ModelRepository, size: int) -> None:
    array = fresh(size)
    tensor = Tensor("A", fresh(size))
    for value in (array, tensor, list(range(size))):
        assert apart.infer("writer", {"A": value}).error is None
        check_inputs_arrived(1, size)
    assert_untouched(array, size)
    assert_untouched(tensor.as_numpy(), size)


def test_bytes_are_isolated_too(apart: bls.ModelRepository) -> None:
    apart.define("words", HEAD + """
class TritonPythonModel:
    def execute(self, requests):
        array = requests[0].inputs()[0].as_numpy()
        seen.notes["received"] = array.tolist()
        array[...] = b"changed"
        self.out = getattr(self, "out", np.array([b"x", "y", 3], object))
        response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.out)])
        return [response]
""", 'input [{ name: "A" data_type: TYPE_STRING dims: [-1] }] output [{ name: "OUT" data_type: TYPE_STRING'
        " dims: [-1] }]")  # fmt: skip
    mutable = bytearray(b"raw")
    array = np.array([b"a", "b", mutable, None], np.object_)
    before = array.tolist()
    first = apart.infer("words", {"A": array})["OUT"].as_numpy()
    assert seen.notes["received"] == [b"a", b"b", str(mutable).encode(), b"None"]
    assert array.tolist() == before
    assert first.tolist() == [b"x", b"y", b"3"]
    first[0] = b"mine"
    assert apart.infer("words", {"A": np.array([b"q"])})["OUT"].as_numpy().tolist() == [b"x", b"y", b"3"]


def test_bfloat16_is_isolated_too(apart: bls.ModelRepository) -> None:
    apart.define("brain", HEAD + """
from bls_notebook.devices import dlpack
class TritonPythonModel:
    def execute(self, requests):
        tensor = requests[0].inputs()[0]
        capsule = tensor.to_dlpack()
        dlpack.take_bfloat16(capsule)
        bits = dlpack.view_of_capsule(capsule)
        capsule = bits.__dlpack__()
        dlpack.as_bfloat16(capsule)
        tensor = pb_utils.Tensor.from_dlpack("OUT", capsule)
        response = pb_utils.InferenceResponse([tensor])
        self.kept, before = bits, getattr(self, "kept", None)
        if before is not None:
            before[...] = 0
        return [response]
""", 'input [{ name: "A" data_type: TYPE_BF16 dims: [-1] }] output [{ name: "OUT" data_type: TYPE_BF16'
        " dims: [-1] }]")  # fmt: skip
    bits = np.arange(LARGE, dtype=np.uint16)
    capsule = bits.__dlpack__()
    dlpack.as_bfloat16(capsule)
    tensor = Tensor.from_dlpack("A", capsule)
    first = apart.infer("brain", {"A": tensor})["OUT"]
    apart.infer("brain", {"A": tensor})
    capsule = first.to_dlpack()
    assert dlpack.take_bfloat16(capsule)
    read = dlpack.view_of_capsule(capsule)
    assert read.tolist() == bits.tolist() == list(range(LARGE))


def test_isolation_holds_among_many_threads(apart: bls.ModelRepository) -> None:
    apart.define("bump", HEAD + """
class TritonPythonModel:
    def initialize(self, args):
        self.kept = []
    def execute(self, requests):
        array = requests[0].inputs()[0].as_numpy()
        value = array[0]
        assert (array == value).all()
        array += 1
        out = array * 2
        for old in self.kept:
            old[...] = -1
        self.kept = [array, out[:]]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])]
""", CONFIG + "instance_group [{ count: 3 kind: KIND_CPU }]")  # fmt: skip

    def one(number: int) -> bool:
        array = np.full(LARGE, number, np.float32)
        first = the_only(ask(array, model="bump").exec())
        second = the_only(ask(np.full(LARGE, number, np.float32), model="bump").exec())
        return bool((array == number).all() and (first == 2 * (number + 1)).all() and (second == first).all())

    def body() -> list[bool]:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            jobs = [pool.submit(contextvars.copy_context().run, one, i) for i in range(60)]
            return [job.result() for job in jobs]

    assert all(apart.run(body))
