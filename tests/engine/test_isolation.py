"""Models behave as if in processes of their own: nobody's writes are ever seen by anybody else.

And memory that nobody else can reach moves without a copy.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.engine import isolation, outputs
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, Tensor, dlpack, request

from tests.engine import seen
from tests.engine.holders import HOLDERS, LARGE, MAKERS, TINY, fresh
from tests.engine.seen import address

CONFIG = """
input [
  { name: "A" data_type: TYPE_FP32 dims: [-1] },
  { name: "B" data_type: TYPE_FP32 dims: [-1] optional: true }
]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""
HEAD = '''
import numpy as np
import triton_python_backend_utils as pb_utils
from tests.engine import seen
from tests.engine.holders import HOLDERS, MAKERS, fresh
'''
# Keeps its inputs, writes to them, and notes where they were.
WRITER = HEAD + '''
class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            arrays = [t.as_numpy() for t in request.inputs()]
            seen.notes["kept"] = arrays
            seen.notes["received"] = [a.copy() for a in arrays]
            seen.notes["writeable"] = [a.flags.writeable and type(a) is np.ndarray for a in arrays]
            seen.notes["at"] = [seen.address(a) for a in arrays]
            for array in arrays:
                array[...] = 99
            out.append(pb_utils.InferenceResponse())
        return out
'''
# Makes its output and keeps hold of it in the way that it is told; writes to it the next time.
KEEPER = HEAD + '''
class TritonPythonModel:
    held = None

    {kind} execute(self, requests):
        self.disturb()
        responses = []
        for request in requests:
            seen.notes["requests"] = requests
            {body}
        return responses

    def make(self, maker, holder, size):
        array = MAKERS[maker](size)
        self.held = HOLDERS[holder][0](array), holder
        return array

    def disturb(self):
        if self.held is None:
            return
        kept, holder = self.held
        array = HOLDERS[holder][1](kept)
        if array is None:
            seen.notes["found"] = None
        else:
            seen.notes["found"] = np.array(array)
            if array.flags.writeable:
                array[...] = 99
'''
MAKE = '''
            array = self.make(*(seen.notes[n] for n in ("maker", "holder", "size")))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
            del array
'''
MOVES_REQUESTS = request._EXEC_UNHELD > 0


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    seen.notes.clear()
    with bls.ModelRepository() as repository:
        repository.define("writer", WRITER, CONFIG)
        yield repository
    seen.notes.clear()


def ask(*arrays: Any, model: str = "writer") -> InferenceRequest:
    """A request that nobody holds where it is used at once: ``ask(array).exec()``."""
    return InferenceRequest(
        model_name=model, inputs=[Tensor(n, a) for n, a in zip("AB", arrays, strict=False)], requested_output_names=[]
    )


def the_only(response: Any) -> Any:
    assert not response.has_error(), response.error().message()
    (tensor,) = response.output_tensors()
    return tensor.as_numpy()


def fine(response: Any) -> None:
    assert not response.has_error(), response.error().message()


def check_inputs_arrived(count: int, size: int) -> None:
    assert seen.notes["writeable"] == [True] * count
    for array in seen.notes["received"]:
        np.testing.assert_array_equal(array, fresh(size))


def assert_untouched(array: Any, size: int) -> None:
    if array is None:
        return
    values = np.asarray(array).ravel()
    if values.dtype == np.float32 and values.size == size:
        assert values.tolist() in (fresh(size).tolist(), fresh(size)[::-1].tolist())
    assert not np.all(values == 99)
    for kept in seen.notes["kept"]:
        assert not np.shares_memory(np.asarray(array), kept)


# -- inputs: what the callee does is not seen by the caller ---------------------------------------------


def hold(holder: str, maker: str, size: int, kept: list[Any]) -> Any:
    array = MAKERS[maker](size)
    kept.append(HOLDERS[holder][0](array))
    return array


@pytest.mark.parametrize("size", [TINY, LARGE])
@pytest.mark.parametrize("holder", HOLDERS)
def test_writes_to_an_input_never_reach_who_holds_it(repo: bls.ModelRepository, holder: str, size: int) -> None:
    for maker in MAKERS:
        kept: list[Any] = []

        def body(maker: str = maker, kept: list[Any] = kept) -> None:
            fine(ask(hold(holder, maker, size, kept)).exec())

        repo.run(body)
        check_inputs_arrived(1, size)
        assert_untouched(HOLDERS[holder][1](kept[0]), size)


@pytest.mark.parametrize("holder", HOLDERS)
def test_writes_to_an_input_of_async_exec(repo: bls.ModelRepository, holder: str) -> None:
    kept: list[Any] = []

    async def body() -> None:
        for maker in ("fresh", "view", "read only", "capsule"):
            kept.append(None)
            fine(await ask(hold(holder, maker, LARGE, kept)).async_exec())
            check_inputs_arrived(1, LARGE)
            assert_untouched(HOLDERS[holder][1](kept[-1]), LARGE)

    repo.run(body)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(HOLDERS)), st.sampled_from(sorted(MAKERS)), st.sampled_from([TINY, 512, 516, LARGE])),
        min_size=1,
        max_size=2,
    ),
    st.booleans(),
)  # fmt: skip
def test_any_inputs_held_in_any_ways(
    repo: bls.ModelRepository, inputs: list[tuple[str, str, int]], asynchronous: bool
) -> None:
    kept: list[Any] = []

    def arrays() -> list[Any]:
        return [hold(holder, maker, size, kept) for holder, maker, size in inputs]

    async def body() -> None:
        fine(await ask(*arrays()).async_exec())

    repo.run(body if asynchronous else lambda: fine(ask(*arrays()).exec()))
    assert seen.notes["writeable"] == [True] * len(inputs)
    for (holder, _, size), keep, received in zip(inputs, kept, seen.notes["received"], strict=True):
        np.testing.assert_array_equal(received, fresh(size))
        assert_untouched(HOLDERS[holder][1](keep), size)


@pytest.mark.parametrize("size", [TINY, LARGE])
def test_the_same_array_in_two_inputs_arrives_as_two(repo: bls.ModelRepository, size: int) -> None:
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

        repo.run(body)
        check_inputs_arrived(2, size)
        first, second = seen.notes["kept"]
        assert not np.shares_memory(first, second), make.__name__


@pytest.mark.parametrize("size", [TINY, LARGE])
def test_a_request_that_is_kept_can_be_sent_again(repo: bls.ModelRepository, size: int) -> None:
    def body() -> None:
        request = ask(fresh(size))
        for _ in range(3):
            fine(request.exec())
            check_inputs_arrived(1, size)
            assert_untouched(request.inputs()[0].as_numpy(), size)

    repo.run(body)


def test_a_request_that_is_kept_in_other_ways_can_be_sent_again(repo: bls.ModelRepository) -> None:
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

    repo.run(body)


def test_a_request_that_is_kept_elsewhere_while_it_is_sent_on_other_threads(repo: bls.ModelRepository) -> None:
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

    repo.run(body)


def test_a_tensor_in_two_requests(repo: bls.ModelRepository) -> None:
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

    repo.run(body)


def test_weak_references_to_requests_and_tensors(repo: bls.ModelRepository) -> None:
    found: list[Any] = []

    def noting() -> InferenceRequest:
        request = ask(fresh(LARGE))
        tensor = request.inputs()[0]
        found.extend([weakref.ref(request), weakref.ref(tensor)])
        return request

    def body() -> None:
        fine(noting().exec())

    repo.run(body)
    check_inputs_arrived(1, LARGE)
    for reference in found:
        thing = reference()
        if isinstance(thing, InferenceRequest):
            for tensor in thing.inputs():
                assert_untouched(tensor.as_numpy(), LARGE)
        elif thing is not None:
            assert_untouched(thing.as_numpy(), LARGE)


def test_what_the_caller_writes_later_is_not_seen_by_the_callee(repo: bls.ModelRepository) -> None:
    def body() -> None:
        array = fresh(LARGE)
        request = ask(array)
        fine(request.exec())
        kept = seen.notes["kept"][0]
        assert np.all(kept == 99)
        array[...] = -1
        request.inputs()[0].as_numpy()[...] = -2
        assert np.all(kept == 99)

    repo.run(body)


def test_what_the_caller_writes_while_the_request_is_queued_is_not_seen(repo: bls.ModelRepository) -> None:
    async def body() -> None:
        array = fresh(LARGE)
        future = ask(array).async_exec()
        array[...] = -1
        fine(await future)
        check_inputs_arrived(1, LARGE)

    repo.run(body)


@pytest.mark.parametrize("size", [TINY, LARGE])
def test_inputs_from_outside_any_model(repo: bls.ModelRepository, size: int) -> None:
    array = fresh(size)
    tensor = Tensor("A", fresh(size))
    for value in (array, tensor, list(range(size))):
        assert repo.infer("writer", {"A": value}).error is None
        check_inputs_arrived(1, size)
    assert_untouched(array, size)
    assert_untouched(tensor.as_numpy(), size)


def test_bytes_are_isolated_too(repo: bls.ModelRepository) -> None:
    repo.define(
        "words",
        HEAD
        + '''
class TritonPythonModel:
    def execute(self, requests):
        array = requests[0].inputs()[0].as_numpy()
        seen.notes["received"] = array.tolist()
        array[...] = b"changed"
        self.out = getattr(self, "out", np.array([b"x", "y", 3], object))
        response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.out)])
        return [response]
''',
        'input [{ name: "A" data_type: TYPE_STRING dims: [-1] }] output [{ name: "OUT" data_type: TYPE_STRING dims: [-1] }]',
    )
    mutable = bytearray(b"raw")
    array = np.array([b"a", "b", mutable, None], np.object_)
    before = array.tolist()
    first = repo.infer("words", {"A": array})["OUT"].as_numpy()
    assert seen.notes["received"] == [b"a", b"b", str(mutable).encode(), b"None"]
    assert array.tolist() == before
    assert first.tolist() == [b"x", b"y", b"3"]
    first[0] = b"mine"
    assert repo.infer("words", {"A": np.array([b"q"])})["OUT"].as_numpy().tolist() == [b"x", b"y", b"3"]


def test_bfloat16_is_isolated_too(repo: bls.ModelRepository) -> None:
    repo.define(
        "brain",
        HEAD
        + '''
from bls_notebook.pb_utils import dlpack
class TritonPythonModel:
    def execute(self, requests):
        tensor = requests[0].inputs()[0]
        bits, _ = dlpack.array_of_capsule(tensor.to_dlpack())
        response = pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", dlpack.capsule_of_bfloat16(bits))])
        self.kept, before = bits, getattr(self, "kept", None)
        if before is not None:
            before[...] = 0
        return [response]
''',
        'input [{ name: "A" data_type: TYPE_BF16 dims: [-1] }] output [{ name: "OUT" data_type: TYPE_BF16 dims: [-1] }]',
    )
    bits = np.arange(LARGE, dtype=np.uint16)
    tensor = Tensor.from_dlpack("A", dlpack.capsule_of_bfloat16(bits))
    first = repo.infer("brain", {"A": tensor})["OUT"]
    repo.infer("brain", {"A": tensor})
    read, is_bfloat = dlpack.array_of_capsule(first.to_dlpack())
    assert is_bfloat
    assert read.tolist() == bits.tolist() == list(range(LARGE))


# -- outputs: what the callee does later is not seen by the caller --------------------------------------


def keeper(kind: str = "def", body: str = MAKE) -> str:
    return KEEPER.replace("{kind}", kind).replace("{body}", body.strip())


@pytest.mark.parametrize("size", [TINY, LARGE])
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_response_is_never_changed_by_who_holds_its_output(
    repo: bls.ModelRepository, holder: str, size: int
) -> None:
    repo.define("keeper", keeper(), CONFIG)
    for maker in MAKERS:
        seen.notes.update(maker=maker, holder=holder, size=size)

        def body() -> None:
            first = ask(fresh(1), model="keeper").exec()
            array = the_only(first)
            assert type(array) is np.ndarray
            assert array.flags.writeable
            np.testing.assert_array_equal(array, fresh(size))
            fine(ask(fresh(1), model="keeper").exec())
            np.testing.assert_array_equal(array, fresh(size))
            np.testing.assert_array_equal(the_only(first), fresh(size))
            second = the_only(ask(fresh(1), model="keeper").exec())
            second[...] = -55
            fine(ask(fresh(1), model="keeper").exec())
            found = seen.notes["found"]
            assert found is None or not np.any(found == -55), "the callee sees what its caller wrote"

        repo.run(body)


OTHER_WAYS = {
    "the response is kept": (
        "def",
        '''
            if self.held is None:
                self.response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", fresh(5000))])
                self.held = self.response.output_tensors()[0].as_numpy()[:], "view"
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", fresh(5000))]))
''',
    ),
    "a weak reference to the response": (
        "def",
        '''
            import weakref
            before = getattr(self, "weak", None)
            before = before() if before is not None else None
            if before is not None:
                before.output_tensors()[0].as_numpy()[...] = 99
            response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", fresh(5000))])
            self.weak = weakref.ref(response)
            responses.append(response)
            del response
''',
    ),
    "a weak reference to the tensor": (
        "def",
        '''
            import weakref
            before = getattr(self, "weak", None)
            before = before() if before is not None else None
            if before is not None:
                before.as_numpy()[...] = 99
            tensor = pb_utils.Tensor("OUT", fresh(5000))
            self.weak = weakref.ref(tensor)
            responses.append(pb_utils.InferenceResponse([tensor]))
            del tensor
''',
    ),
    "the list of responses is kept": (
        "def",
        '''
            for response in getattr(self, "before", []):
                for tensor in response.output_tensors():
                    tensor.as_numpy()[...] = 99
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", fresh(5000))]))
            self.before = responses
''',
    ),
    "a list in a list is kept": (
        "def",
        '''
            for before in getattr(self, "before", []):
                before[0].output_tensors()[0].as_numpy()[...] = 99
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", fresh(5000))]))
            self.before = [responses]
''',
    ),
    "the list of outputs is kept": (
        "def",
        '''
            for tensor in getattr(self, "before", []):
                tensor.as_numpy()[...] = 99
            self.before = [pb_utils.Tensor("OUT", fresh(5000))]
            responses.append(pb_utils.InferenceResponse(self.before))
''',
    ),
    "the list that the response gives is kept": (
        "def",
        '''
            for tensor in getattr(self, "before", []):
                tensor.as_numpy()[...] = 99
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", fresh(5000))]))
            self.before = responses[0].output_tensors()
''',
    ),
    "a frame that is kept": (
        "def",
        '''
            import sys
            before = getattr(self, "frame", None)
            if before is not None:
                before.f_locals["responses"][0].output_tensors()[0].as_numpy()[...] = 99
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", fresh(5000))]))
            self.frame = sys._getframe()
''',
    ),
    "one buffer for all": (
        "def",
        '''
            if not hasattr(self, "buffer"):
                self.buffer = fresh(5000)
            self.buffer[...] = fresh(5000)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.buffer)]))
            self.held = self.buffer, "variable"
''',
    ),
    "an async execute": (
        "async def",
        '''
            array = fresh(5000)
            self.held = array, "variable"
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
''',
    ),
    "the model's input is its output": (
        "def",
        '''
            array = request.inputs()[0].as_numpy()
            self.held = array, "variable"
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
''',
    ),
    "the model keeps its requests": (
        "def",
        '''
            for before in getattr(self, "before", []):
                before.inputs()[0].as_numpy()[...] = 99
            self.before = requests
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]))
''',
    ),
    "the model keeps the tensor of its request": (
        "def",
        '''
            before = getattr(self, "before", None)
            if before is not None:
                before.as_numpy()[...] = 99
            self.before = request.inputs()[0]
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.before.as_numpy())]))
''',
    ),
    "the sender": (
        "def",
        '''
            array = fresh(5000)
            self.held = array, "variable"
            response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])
            request.get_response_sender().send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            array[...] = 99
            responses = None
''',
    ),
}


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_a_response_is_never_changed_later(repo: bls.ModelRepository, way: str) -> None:
    kind, body = OTHER_WAYS[way]
    repo.define("keeper", keeper(kind, body), CONFIG)

    def caller() -> None:
        first = ask(fresh(LARGE), model="keeper").exec()
        array = the_only(first)
        np.testing.assert_array_equal(array, fresh(LARGE))
        for _ in range(2):
            np.testing.assert_array_equal(the_only(ask(fresh(LARGE), model="keeper").exec()), fresh(LARGE))
            np.testing.assert_array_equal(array, fresh(LARGE))
            np.testing.assert_array_equal(the_only(first), fresh(LARGE))

    repo.run(caller)

    async def async_caller() -> None:
        array = the_only(await ask(fresh(LARGE), model="keeper").async_exec())
        np.testing.assert_array_equal(the_only(await ask(fresh(LARGE), model="keeper").async_exec()), fresh(LARGE))
        np.testing.assert_array_equal(array, fresh(LARGE))

    repo.run(async_caller)


def test_a_model_may_return_the_same_list_again_and_again(repo: bls.ModelRepository) -> None:
    repo.define(
        "constant",
        HEAD
        + '''
class TritonPythonModel:
    def initialize(self, args):
        self.answer = [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", fresh(5000))])]
    def execute(self, requests):
        return self.answer
''',
        CONFIG,
    )
    for _ in range(3):
        array = repo.infer("constant", {"A": fresh(1)})["OUT"].as_numpy()
        np.testing.assert_array_equal(array, fresh(LARGE))
        array[...] = -55


def test_a_decoupled_models_buffer(repo: bls.ModelRepository) -> None:
    repo.define(
        "stream",
        HEAD
        + '''
class TritonPythonModel:
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        buffer = np.zeros(5000, np.float32)
        for i in range(4):
            buffer[...] = i
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", buffer)]))
        buffer[...] = 99
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
''',
        CONFIG + "model_transaction_policy { decoupled: true }",
    )

    def body() -> list[Any]:
        walk = ask(fresh(1), model="stream").exec(decoupled=True)
        return [set(t.as_numpy().tolist()) for r in walk for t in r.output_tensors()]

    assert repo.run(body) == [{0.0}, {1.0}, {2.0}, {3.0}]


def test_an_output_that_is_passed_on_as_an_input(repo: bls.ModelRepository) -> None:
    repo.define("keeper", keeper(), CONFIG)
    seen.notes.update(maker="fresh", holder="nothing", size=LARGE)

    def body() -> None:
        response = ask(fresh(1), model="keeper").exec()
        tensor = response.output_tensors()[0]
        fine(ask(tensor.as_numpy()).exec())
        check_inputs_arrived(1, LARGE)
        assert_untouched(tensor.as_numpy(), LARGE)
        del tensor
        fine(ask(response.output_tensors()[0].as_numpy()).exec())
        check_inputs_arrived(1, LARGE)
        assert_untouched(the_only(response), LARGE)
        fine(ask(ask(fresh(1), model="keeper").exec().output_tensors()[0].as_numpy()).exec())
        check_inputs_arrived(1, LARGE)

    repo.run(body)


def test_a_response_of_one_model_returned_by_another(repo: bls.ModelRepository) -> None:
    repo.define("keeper", keeper(), CONFIG)
    seen.notes.update(maker="fresh", holder="variable", size=LARGE)
    relay = HEAD + '''
class TritonPythonModel:
    def execute(self, requests):
        inner = pb_utils.InferenceRequest(
            model_name="keeper", inputs=[pb_utils.Tensor("A", fresh(1))], requested_output_names=[]
        ).exec()
        self.before = getattr(self, "before", [])
        for old in self.before:
            old.output_tensors()[0].as_numpy()[...] = 99
        {way}
'''
    ways = {
        "kept and its tensor returned": """self.before.append(inner)
        return [pb_utils.InferenceResponse(inner.output_tensors())]""",
        "kept and returned": """self.before.append(inner)
        return [inner]""",
        "returned": "return [inner]",
        "its tensor returned": "return [pb_utils.InferenceResponse([inner.output_tensors()[0]])]",
    }
    for way, text in ways.items():
        repo.define("relay", relay.replace("{way}", text), CONFIG)

        def body(way: str = way) -> None:
            arrays = []
            for _ in range(3):
                arrays.append(the_only(ask(fresh(1), model="relay").exec()))
                for array in arrays:
                    np.testing.assert_array_equal(array, fresh(LARGE), way)
            assert not np.shares_memory(arrays[0], arrays[1])

        repo.run(body)


def test_a_subclass_of_a_response_or_tensor_is_not_what_the_caller_gets(repo: bls.ModelRepository) -> None:
    """In another process there is no such class; nor may what hangs on the object be seen."""
    repo.define(
        "own",
        HEAD
        + '''
class Answer(pb_utils.InferenceResponse):
    pass
class Named(pb_utils.Tensor):
    pass
class TritonPythonModel:
    def execute(self, requests):
        answer = Answer([Named("OUT", fresh(5000))])
        answer.secret = self
        self.kept = answer.__dict__
        out = [answer]
        del answer
        return out
''',
        CONFIG,
    )

    def body() -> None:
        response = ask(fresh(1), model="own").exec()
        assert type(response) is InferenceResponse
        assert type(response.output_tensors()[0]) is Tensor

    repo.run(body)


# -- moves: nothing is copied where nobody else can look ------------------------------------------------


def test_counting_holders_works_on_this_python() -> None:
    assert isolation._TENSOR_UNHELD > 0
    assert isolation._ARRAY_UNHELD > 0
    assert isolation._BASE_UNHELD > 0
    assert outputs._RESPONSE_UNHELD > 0
    assert outputs._LIST_UNHELD > 0
    if (3, 11) <= sys.version_info < (3, 14):
        assert request._EXEC_UNHELD > 0
        assert request._ASYNC_UNHELD > 0


MOVING = ["fresh", "view", "slice", "reshaped", "other type"]


@pytest.mark.skipif(not MOVES_REQUESTS, reason="this Python cannot tell whether a request is held")
@pytest.mark.parametrize("maker", MOVING)
def test_an_input_that_nobody_holds_moves(repo: bls.ModelRepository, maker: str) -> None:
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

    repo.run(body)

    async def async_body() -> None:
        fine(await ask(array()).async_exec())
        assert seen.notes["at"] == sent[-1:]
        await asyncio.gather(*[ask(array()).async_exec() for _ in range(2)])
        assert seen.notes["at"][0] in sent[-2:]

    repo.run(async_body)
    check_inputs_arrived(1, LARGE)


@pytest.mark.skipif(not MOVES_REQUESTS, reason="this Python cannot tell whether a request is held")
def test_an_input_moves_from_inside_a_model(repo: bls.ModelRepository) -> None:
    source = HEAD + '''
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
'''
    for kind, call, send in (("def", "", "exec"), ("async def", "await ", "async_exec")):
        for take, moves in (("pop()", True), ("__getitem__(0)", False)):
            repo.define("caller", source.format(kind=kind, call=call, send=send, take=take), CONFIG)
            assert repo.infer("caller", {"A": fresh(1)}).error is None
            assert (seen.notes["at"] == [seen.notes["sent"]]) is moves


@pytest.mark.parametrize("maker", MOVING)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_output_that_nobody_holds_moves(repo: bls.ModelRepository, maker: str, kind: str) -> None:
    repo.define(
        "maker",
        HEAD
        + f'''
class TritonPythonModel:
    {kind} execute(self, requests):
        responses = []
        for request in requests:
            array = MAKERS[{maker!r}](5000)
            seen.notes["made"] = seen.address(array)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
        return responses
''',
        CONFIG,
    )
    got = repo.infer("maker", {"A": fresh(1)})["OUT"].as_numpy()
    assert address(got) == seen.notes["made"]
    assert got.flags.writeable

    def body() -> None:
        assert address(the_only(ask(fresh(1), model="maker").exec())) == seen.notes["made"]

    repo.run(body)

    async def async_body() -> None:
        assert address(the_only(await ask(fresh(1), model="maker").async_exec())) == seen.notes["made"]

    repo.run(async_body)


def test_an_output_moves_through_a_model_that_relays_it(repo: bls.ModelRepository) -> None:
    repo.define("keeper", keeper(), CONFIG)
    repo.define(
        "relay",
        HEAD
        + '''
class TritonPythonModel:
    def execute(self, requests):
        inner = pb_utils.InferenceRequest(
            model_name="keeper", inputs=[pb_utils.Tensor("A", fresh(1))], requested_output_names=[]
        ).exec()
        seen.notes["relayed"] = seen.address(inner.output_tensors()[0].as_numpy())
        return [inner]
''',
        CONFIG,
    )
    seen.notes.update(maker="fresh", holder="nothing", size=LARGE)
    got = repo.infer("relay", {"A": fresh(1)})["OUT"].as_numpy()
    assert address(got) == seen.notes["relayed"]


def test_moved_memory_is_freed_with_its_last_holder(repo: bls.ModelRepository) -> None:
    class Noted(np.ndarray):  # type: ignore[type-arg]
        pass

    def body() -> weakref.ref[Any]:
        array = fresh(LARGE)
        fine(ask(array).exec())
        received = seen.notes.pop("kept")
        alive = weakref.ref(received[0])
        del received
        seen.notes.clear()
        gc.collect()
        return alive

    assert repo.run(body)() is None


# -- threads --------------------------------------------------------------------------------------------


def test_isolation_holds_among_many_threads(repo: bls.ModelRepository) -> None:
    repo.define(
        "bump",
        HEAD
        + '''
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
''',
        CONFIG + "instance_group [{ count: 3 kind: KIND_CPU }]",
    )

    def one(number: int) -> bool:
        array = np.full(LARGE, number, np.float32)
        first = the_only(ask(array, model="bump").exec())
        second = the_only(ask(np.full(LARGE, number, np.float32), model="bump").exec())
        return bool((array == number).all() and (first == 2 * (number + 1)).all() and (second == first).all())

    def body() -> list[bool]:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            jobs = [pool.submit(contextvars.copy_context().run, one, i) for i in range(60)]
            return [job.result() for job in jobs]

    assert all(repo.run(body))


def test_isolation_holds_among_many_tasks(repo: bls.ModelRepository) -> None:
    repo.define(
        "slow",
        HEAD
        + '''
import asyncio
class TritonPythonModel:
    async def execute(self, requests):
        array = requests[0].inputs()[0].as_numpy()
        await asyncio.sleep(0)
        array += 1
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])]
''',
        CONFIG + "instance_group [{ count: 2 kind: KIND_CPU }]",
    )

    async def body() -> None:
        shared = fresh(LARGE)
        responses = await asyncio.gather(*[ask(shared, model="slow").async_exec() for _ in range(20)])
        np.testing.assert_array_equal(shared, fresh(LARGE))
        arrays = [the_only(r) for r in responses]
        for i, array in enumerate(arrays):
            np.testing.assert_array_equal(array, fresh(LARGE) + 1)
            array[...] = i
        assert [set(a.tolist()) for a in arrays] == [{float(i)} for i in range(20)]

    repo.run(body)
