"""What a model does to its outputs after it gave them, their receiver never sees; nor the other way round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.pb_utils import InferenceResponse, Tensor
from tests.engine import seen
from tests.engine.holders import HOLDERS, LARGE, MAKERS, TINY, fresh
from tests.engine.isolated import CONFIG, HEAD, ask, assert_untouched, check_inputs_arrived, fine, keeper, the_only


@pytest.mark.parametrize("size", [TINY, LARGE])
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_response_is_not_changed_by_who_holds_its_output(apart: bls.ModelRepository, holder: str, size: int) -> None:
    apart.define("keeper", keeper(), CONFIG)
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

        apart.run(body)


OTHER_WAYS = {
    "the response is kept": """
            if before:
                spoil(before.output_tensors())
            self.before = respond(fresh(5000))
            responses.append(self.before)
""",
    "a weak reference to the response": """
            if before and before():
                spoil(before().output_tensors())
            response = respond(fresh(5000))
            self.before = weakref.ref(response)
            responses.append(response)
            del response
""",
    "a weak reference to the tensor": """
            if before and before():
                spoil([before()])
            tensor = pb_utils.Tensor("OUT", fresh(5000))
            self.before = weakref.ref(tensor)
            responses.append(pb_utils.InferenceResponse([tensor]))
            del tensor
""",
    "the list of responses is kept": """
            for response in before or []:
                spoil(response.output_tensors())
            responses.append(respond(fresh(5000)))
            self.before = responses
""",
    "a list in a list is kept": """
            for old in before or []:
                spoil(old[0].output_tensors())
            responses.append(respond(fresh(5000)))
            self.before = [responses]
""",
    "the same list again": """
            self.before = before or [respond(fresh(5000))]
            responses = self.before
""",
    "the list of outputs is kept": """
            spoil(before or [])
            self.before = [pb_utils.Tensor("OUT", fresh(5000))]
            responses.append(pb_utils.InferenceResponse(self.before))
""",
    "the list that the response gives is kept": """
            spoil(before or [])
            responses.append(respond(fresh(5000)))
            self.before = responses[0].output_tensors()
""",
    "a frame that is kept": """
            if before:
                spoil(before.f_locals["responses"][0].output_tensors())
            responses.append(respond(fresh(5000)))
            self.before = sys._getframe()
""",
    "one buffer for all": """
            self.before = fresh(5000) if before is None else before
            self.before[...] = fresh(5000)
            responses.append(respond(self.before))
            self.held = self.before, "variable"
""",
    "an async execute": """
            array = fresh(5000)
            self.held = array, "variable"
            responses.append(respond(array))
""",
    "the model's input is its output": """
            array = request.inputs()[0].as_numpy()
            self.held = array, "variable"
            responses.append(respond(array))
""",
    "the model keeps its requests": """
            for old in before or []:
                spoil(old.inputs())
            self.before = requests
            responses.append(respond(request.inputs()[0].as_numpy()))
""",
    "the model keeps the tensor of its request": """
            spoil([before] if before else [])
            self.before = request.inputs()[0]
            responses.append(respond(self.before.as_numpy()))
""",
    "the sender": """
            array = fresh(5000)
            self.held = array, "variable"
            request.get_response_sender().send(respond(array), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            array[...] = 99
            responses = None
""",
}


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_a_response_is_never_changed_later(apart: bls.ModelRepository, way: str) -> None:
    apart.define("keeper", keeper("async def" if way == "an async execute" else "def", OTHER_WAYS[way]), CONFIG)

    def caller() -> None:
        first = ask(fresh(LARGE), model="keeper").exec()
        array = the_only(first)
        np.testing.assert_array_equal(array, fresh(LARGE))
        for _ in range(2):
            other = the_only(ask(fresh(LARGE), model="keeper").exec())
            np.testing.assert_array_equal(other, fresh(LARGE))
            other[...] = -55
            np.testing.assert_array_equal(array, fresh(LARGE))
            np.testing.assert_array_equal(the_only(first), fresh(LARGE))

    apart.run(caller)

    async def async_caller() -> None:
        array = the_only(await ask(fresh(LARGE), model="keeper").async_exec())
        np.testing.assert_array_equal(the_only(await ask(fresh(LARGE), model="keeper").async_exec()), fresh(LARGE))
        np.testing.assert_array_equal(array, fresh(LARGE))

    apart.run(async_caller)


def test_a_decoupled_models_buffer(apart: bls.ModelRepository) -> None:
    apart.define("stream", HEAD + """
class TritonPythonModel:
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        buffer = np.zeros(5000, np.float32)
        for i in range(4):
            buffer[...] = i
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", buffer)]))
        buffer[...] = 99
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""", CONFIG + "model_transaction_policy { decoupled: true }")  # fmt: skip

    def body() -> list[Any]:
        walk = ask(fresh(1), model="stream").exec(decoupled=True)
        return [set(t.as_numpy().tolist()) for r in walk for t in r.output_tensors()]

    assert apart.run(body) == [{0.0}, {1.0}, {2.0}, {3.0}]


def test_an_output_that_is_passed_on_as_an_input(apart: bls.ModelRepository) -> None:
    apart.define("keeper", keeper(), CONFIG)
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

    apart.run(body)


def test_a_response_of_one_model_returned_by_another(apart: bls.ModelRepository) -> None:
    apart.define("keeper", keeper(), CONFIG)
    seen.notes.update(maker="fresh", holder="variable", size=LARGE)
    relay = (
        HEAD
        + """
class TritonPythonModel:
    def execute(self, requests):
        inner = pb_utils.InferenceRequest(
            model_name="keeper", inputs=[pb_utils.Tensor("A", fresh(1))], requested_output_names=[]
        ).exec()
        self.before = getattr(self, "before", [])
        for old in self.before:
            old.output_tensors()[0].as_numpy()[...] = 99
        {way}
"""
    )
    ways = {
        "kept and its tensor returned": (
            """self.before.append(inner)
        return [pb_utils.InferenceResponse(inner.output_tensors())]"""
        ),
        "kept and returned": (
            """self.before.append(inner)
        return [inner]"""
        ),
        "returned": "return [inner]",
        "its tensor returned": "return [pb_utils.InferenceResponse([inner.output_tensors()[0]])]",
    }
    for way, text in ways.items():
        apart.define("relay", relay.replace("{way}", text), CONFIG)

        def body(way: str = way) -> None:
            arrays = []
            for _ in range(3):
                arrays.append(the_only(ask(fresh(1), model="relay").exec()))
                for array in arrays:
                    np.testing.assert_array_equal(array, fresh(LARGE), way)
            assert not np.shares_memory(arrays[0], arrays[1])

        apart.run(body)


def test_a_subclass_of_a_response_or_tensor_is_not_what_the_caller_gets(apart: bls.ModelRepository) -> None:
    apart.define("own", HEAD + """
class TritonPythonModel:
    def execute(self, requests):
        class Answer(pb_utils.InferenceResponse):
            pass
        class Named(pb_utils.Tensor):
            pass
        answer = Answer([Named("OUT", fresh(5000))])
        answer.secret = self
        self.kept = answer.__dict__
        out = [answer]
        del answer
        return out
""", CONFIG)  # fmt: skip

    def body() -> None:
        response = ask(fresh(1), model="own").exec()
        assert type(response) is InferenceResponse
        assert type(response.output_tensors()[0]) is Tensor

    apart.run(body)
