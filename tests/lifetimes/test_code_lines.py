from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import allocation_log
from bls_notebook.lifetimes.records import Life
from bls_notebook.profiling.code_lines import NOWHERE

SOURCE = """\
import threading
import numpy as np
import triton_python_backend_utils as pb
import bls_notebook as bls


def helper(array):
    return [pb.Tensor("Y", each) for each in [array * 2]][0]  # in a comprehension


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        return [pb.InferenceResponse([self.answer(each)]) for each in requests]

    def answer(self, request):
        x = pb.get_input_tensor_by_name(request, "X")
        how = request.correlation_id()
        if how == 1:
            return helper(x.as_numpy())
        if how == 2:
            made = pb.Tensor(  # over several lines
                "Y",
                x.as_numpy() + 1,
            )
            self.kept.append(made)
            return made
        if how == 3:
            return pb.Tensor.from_dlpack("Y", np.arange(2000, dtype=np.float32))
        if how == 4:
            done = []
            thread = threading.Thread(target=lambda: done.append(pb.Tensor("Y", x.as_numpy() + 1)))
            thread.start()
            thread.join()
            return done[0]
        if how == 5:
            array = bls.cupy().zeros(2000, "float32")  # the memory
            return pb.Tensor.from_dlpack("Y", array)
        if how == 6:
            sent = pb.Tensor("X", x.as_numpy() * 3)
            asked = pb.InferenceRequest(
                model_name="m", requested_output_names=["Y"], inputs=[sent], correlation_id=1)
            return pb.get_output_tensor_by_name(asked.exec(), "Y")
"""
CONFIG = """
instance_group [ { count: 2, kind: KIND_CPU } ]
input [ { name: "X", data_type: TYPE_FP32, dims: [ -1 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ -1 ] } ]
"""
X = np.ones(2000, np.float32)


@pytest.fixture
def gpu() -> Iterator[None]:
    bls.simulate_gpus(1, even_with_cuda=True)
    yield
    bls.simulate_gpus(0)


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        repository.define("m", SOURCE, CONFIG)
        yield repository


def lives(repo: bls.ModelRepository, how: int, **options: Any) -> list[Life]:
    with bls.track_memory(**options) as track:
        response = repo.infer("m", {"X": X}, correlation_id=how)
        assert response.error is None, response.error.message()
    return list(track.record.lives)


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    ("how", "function", "text"),
    [
        (1, "helper", "in a comprehension"),
        (2, "answer", "over several lines"),
        (3, "answer", "np.arange(2000"),
        (4, "answer", "target=lambda"),
    ],
)
def test_the_line_that_made_an_output(repo: bls.ModelRepository, how: int, function: str, text: str) -> None:
    for life in lives(repo, how):
        if life.tensor == "Y":  # also the copy of one that the model keeps
            assert (life.line.line, text in life.line.text) == (line_of(text), True)
            if sys.version_info >= (3, 11) or how not in (1, 4):
                assert life.line.function == function
            assert life.line.file.endswith("model.py") or "ipykernel" in life.line.file
        elif life.maker.model:  # the engine's copy of the input
            assert life.line == NOWHERE


def test_memory_of_a_gpu_is_made_where_it_is_allocated(repo: bls.ModelRepository, gpu: None) -> None:
    [made] = [life for life in lives(repo, 5) if life.device == "gpu:0"]
    assert made.line.line == line_of("# the memory")


def test_memory_of_a_callee_is_not_its_callers(repo: bls.ModelRepository) -> None:
    found = lives(repo, 6)
    sent = [life for life in found if life.line.line == line_of("as_numpy() * 3")]
    assert [(life.tensor, life.maker.request) for life in sent] == [("X", 1)]
    assert {life.line.line for life in found if life.tensor == "Y"} == {line_of("in a comprehension")}
    assert all(life.line == NOWHERE for life in found if life.tensor == "X" and life.how == "copy")


def test_lines_can_be_left_out(repo: bls.ModelRepository) -> None:
    assert {life.line for life in lives(repo, 1, lines=False)} == {NOWHERE}
    assert allocation_log.place is None
    lives(repo, 1)
    assert allocation_log.place is None


def test_globals_that_only_look_like_a_models(repo: bls.ModelRepository) -> None:
    class Posing:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            raise AssertionError("asked")

    variables: dict[str, Any] = {"__bls_home__": Posing(), "pb": bls.pb_utils, "X": X}
    with bls.track_memory():
        exec("made = pb.Tensor('X', X)", variables)
    assert variables["made"]._line is None or variables["made"]._line[2] == ""
