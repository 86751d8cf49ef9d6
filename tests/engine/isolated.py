"""Words for the tests of isolation: a callee that writes to its inputs, and one that keeps its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from bls_notebook.pb_utils import InferenceRequest, Tensor, request
from tests.engine import seen
from tests.engine.holders import fresh

CONFIG = """
input [
  { name: "A" data_type: TYPE_FP32 dims: [-1] },
  { name: "B" data_type: TYPE_FP32 dims: [-1] optional: true }
]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""
HEAD = """
import numpy as np
import triton_python_backend_utils as pb_utils
from tests.engine import seen
from tests.engine.holders import HOLDERS, MAKERS, fresh
import sys, weakref


def respond(array):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])


def spoil(tensors):
    for tensor in tensors:
        tensor.as_numpy()[...] = 99
"""
# Keeps its inputs, writes to them, and notes where they were.
WRITER = (
    HEAD
    + """
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
"""
)
# Makes its output and keeps hold of it in the way that it is told; writes to it the next time.
KEEPER = (
    HEAD
    + """
class TritonPythonModel:
    held = None

    {kind} execute(self, requests):
        self.disturb()
        responses = []
        for request in requests:
            seen.notes["requests"] = requests
            before = getattr(self, "before", None)
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
"""
)
MAKE = """
            array = self.make(*(seen.notes[n] for n in ("maker", "holder", "size")))
            responses.append(respond(array))
            del array
"""
MOVES_REQUESTS = request._UNHELD > 0


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


def keeper(kind: str = "def", body: str = MAKE) -> str:
    return KEEPER.replace("{kind}", kind).replace("{body}", body.strip())
