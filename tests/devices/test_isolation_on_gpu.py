"""Models on a GPU are as far apart as on the CPU: nobody's writes are seen, and memory moves only where its
giver has let go.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import allocation_log
from bls_notebook.engine.tensors.handover import hand_over
from bls_notebook.pb_utils import InferenceRequest, Tensor
from tests.devices.book import Book
from tests.devices.conftest import Kit, pointer
from tests.devices.models import KEEP, cupy_model, define
from tests.engine.harness import until
from tests.engine.isolated import MOVES_REQUESTS

SIZE = 1000


def fresh(gpu: Kit) -> Any:
    return gpu.array(np.arange(SIZE))


@pytest.mark.parametrize("shape", [(1000,), (10, 100)])
def test_memory_without_another_owner_moves(gpu: Kit, shape: tuple[int, ...]) -> None:
    array = fresh(gpu).reshape(shape)
    at = array.data.ptr
    tensors = [Tensor.from_dlpack("T", array)]
    del array
    (moved,) = hand_over(tensors, True)
    assert pointer(moved) == at


HOLDERS: dict[str, Callable[[Any, Tensor], Any]] = {
    "the array": lambda array, tensor: array, "the tensor": lambda array, tensor: tensor,
    "a view": lambda array, tensor: array[1:], "a reshaped view": lambda array, tensor: array.reshape(2, -1),
    "a view of a view": lambda array, tensor: array[1:].reshape(-1)[3:],
    "a transposed view": lambda array, tensor: array.reshape(2, -1).T, "its pointer": lambda array, tensor: array.data,
    "its memory": lambda array, tensor: array.data.mem, "a capsule": lambda array, tensor: array.__dlpack__(),
    "a capsule of the tensor": lambda array, tensor: tensor.to_dlpack(),
    "another tensor": lambda array, tensor: Tensor.from_dlpack("U", array),
    "a tensor of a view": lambda array, tensor: Tensor.from_dlpack("U", array[:5]),
    "a weak reference": lambda array, tensor: weakref.ref(array),
    "a weak reference to the tensor": lambda array, tensor: weakref.ref(tensor),
    "an array over a capsule": lambda array, tensor: bls.cupy().from_dlpack(array.__dlpack__()),
    "a request": lambda array, tensor: InferenceRequest("", 0, [tensor], [], "m"),
    "a bound method": lambda array, tensor: array.sum,
}  # fmt: skip


@pytest.mark.parametrize("holder", HOLDERS, ids=HOLDERS.keys())
def test_memory_is_copied_where_somebody_holds_it(gpu: Kit, holder: str) -> None:
    array = fresh(gpu)
    tensors = [Tensor.from_dlpack("T", array)]
    held = HOLDERS[holder](array, tensors[0])
    at = array.data.ptr
    del array
    (copy,) = hand_over(tensors, True)
    assert pointer(copy) != at
    assert not copy.is_cpu()
    assert gpu.cupy.from_dlpack(copy).get().tolist() == list(range(SIZE))
    del held
    (moved,) = hand_over(tensors, True)  # and moves once that has gone
    if not holder.startswith("an array over"):
        assert pointer(moved) == at


def test_held_tensors_and_memory_of_a_capsule_are_copied(gpu: Kit) -> None:
    of_capsule = [Tensor.from_dlpack("T", fresh(gpu).__dlpack__())]
    (copy,) = hand_over(of_capsule, True)
    assert pointer(copy) != pointer(of_capsule[0])
    tensors = [Tensor.from_dlpack("T", fresh(gpu))]
    at = pointer(tensors[0])
    (copy,) = hand_over(tensors, False)
    assert pointer(copy) != at
    (copy,) = hand_over(tensors, False, True)
    assert copy.is_cpu()
    assert copy.as_numpy().flags.writeable


def test_a_copy_stays_on_its_gpu(two: Kit) -> None:
    tensors = [Tensor.from_dlpack("T", two.array([1, 2], index=1))]
    (copy,) = hand_over(tensors, False)
    assert (copy.__dlpack_device__(), two.cupy.cuda.runtime.getDevice()) == ((2, 1), 0)


SPOIL = cupy_model("""
def execute(self, requests):
    out = []
    for request in requests:
        x = cupy.from_dlpack(request.inputs()[0])
        x[:] = -1
        out.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", x)]))
    return out
""")


@pytest.mark.parametrize("way", ["infer", "async"])
def test_a_callee_that_writes_to_its_inputs(gpu: Kit, repo: bls.ModelRepository, way: str) -> None:
    define(repo, "spoil", SPOIL)
    x = fresh(gpu)
    if way == "infer":
        response = repo.infer("spoil", {"IN": x})
    else:
        response = asyncio.run(repo.infer_async("spoil", {"IN": x}))
    assert response.error is None
    assert x.get().tolist() == list(range(SIZE))
    assert set(gpu.cupy.from_dlpack(response["OUT"]).get().tolist()) == {-1}


CHAIN = cupy_model("""
def execute(self, requests):
    out = []
    for request in requests:
        response = pb_utils.InferenceRequest(
            model_name="keep",
            inputs=[pb_utils.Tensor.from_dlpack("IN", cupy.arange(1000, dtype=cupy.float32))],
            requested_output_names=["OUT"],
        ).exec()
        out.append(pb_utils.InferenceResponse(response.output_tensors()))
    return out
""")


def test_a_hop_from_model_to_model_copies_nothing(
    gpu: Kit, repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(repo, "keep", KEEP)
    define(repo, "chain", CHAIN)
    book = Book()
    monkeypatch.setattr(allocation_log, "recording", book)
    response = repo.infer("chain", {"IN": [0]})
    assert response.error is None
    assert gpu.cupy.from_dlpack(response["OUT"]).get().tolist() == list(range(1000))
    # Where the request seems held, its input is copied; the outputs of both models move on every Python.
    assert [event for event in book.events if event[:3] != ("transfer", "gpu:0", "cpu")] == (
        [] if MOVES_REQUESTS else [("copy", "gpu:0", 4000)]
    )


def test_nothing_is_left_behind(gpu: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "keep", KEEP)
    define(repo, "chain", CHAIN)
    gc.collect()
    before = gpu.used()
    for _ in range(20):
        repo.infer("chain", {"IN": [0]})
        repo.infer("keep", {"IN": fresh(gpu)})
        repo.infer("keep", {"IN": fresh(gpu)}, preferred_memory="cpu")
        asyncio.run(repo.infer_async("chain", {"IN": [0]}))
    # A worker thread may hold its last response for a moment.
    until(lambda: gc.collect() >= 0 and gpu.used() <= before, "no memory is left behind")
