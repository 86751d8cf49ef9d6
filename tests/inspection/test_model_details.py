from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from bls_notebook.inspection.records import ModelView
from tests.waiting import LIMIT

CALLEE = """
import threading
import numpy as np
import triton_python_backend_utils as pb_utils

began, go = threading.Event(), threading.Event()


class Odd:
    def __getattribute__(self, name):
        raise RuntimeError("no")


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(0)
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        return config

    def initialize(self, args):
        self.weights = {"w": np.ones((64, 64), np.float32)}
        self.views = [self.weights["w"][1:], self.weights["w"].T]
        self.odd = Odd()

    def execute(self, requests):
        if pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()[0] < 0:
            raise ValueError("negative")
        began.set()
        assert go.wait(60)
        out = pb_utils.Tensor("OUT", np.ones(1, np.float32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
CALLER = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answer = pb_utils.InferenceRequest("", 0, requests[0].inputs(), ["OUT"], "callee").exec()
        if answer.has_error():
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError("the callee said no"))]
        return [pb_utils.InferenceResponse(answer.output_tensors())]
"""
CONFIG = """
input { name: "IN" data_type: TYPE_FP32 dims: [-1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
instance_group { count: 2 kind: KIND_CPU }
parameters { key: "mode" value { string_value: "fast" } }
"""


@pytest.fixture
def repository() -> Iterator[bls.ModelRepository]:
    before = bls.current_repository()
    with bls.ModelRepository() as repo:
        bls.set_current_repository(repo)
        repo.define("callee", CALLEE)
        repo.define("caller", CALLER, CONFIG)
        yield repo
    bls.set_current_repository(before)


def view(name: str) -> ModelView:
    record = bls.inspect(name).record
    assert isinstance(record, ModelView)
    return record


def variable(repository: Any, name: str) -> Any:
    instance = host_of(repository).ready("callee").instances[0]
    return type(instance.backend.model).execute.__globals__[name]


def test_states_of_instances_and_whom_they_wait_for(repository: bls.ModelRepository) -> None:
    assert {each.state for each in view("caller").instances} == {"idle"}
    asked = threading.Thread(target=lambda: repository.infer("caller", {"IN": np.ones(1, np.float32)}))
    asked.start()
    try:
        assert variable(repository, "began").wait(LIMIT)
        busy, idle = sorted(view("caller").instances, key=lambda each: each.state)
        assert (busy.state, busy.sender, busy.waits, idle.state) == ("busy", "notebook", ("callee",), "idle")
        (callee,) = view("callee").instances
        assert (callee.state, callee.sender, callee.waits) == ("busy", "caller", ())
        assert callee.seconds is not None
    finally:
        variable(repository, "go").set()
        asked.join()


def test_memory_is_counted_once_and_nothing_of_the_model_is_asked(repository: bls.ModelRepository) -> None:
    found, size = view("callee"), 64 * 64 * 4
    held = [(each.name, each.bytes, each.what) for each in found.held]
    assert (held, found.held_bytes) == ([("callee.weights['w']", size, "float32 [64, 64]")], size)


def test_callers_callees_and_the_last_error(repository: bls.ModelRepository) -> None:
    assert view("callee").error is None
    repository.infer("caller", {"IN": np.full(3, -1, np.float32)})
    assert (view("callee").callers, view("caller").calls) == (("caller",), ("callee",))
    error: Any = view("callee").error
    returned: Any = view("caller").error
    assert ("negative" in error.message, bool(error.frames), returned.message) == (True, True, "the callee said no")
    assert [(each.name, each.shape) for each in error.inputs] == [("IN", (3,))]


def test_origins_of_configuration_fields(repository: bls.ModelRepository) -> None:
    origins = {each.path: (each.value, each.origin) for each in view("caller").settings}
    assert origins.items() >= {
        "instance_group[0].count": ("2", "author"), "instance_group[0].name": ('"caller_0"', "Triton"),
        "input[IN].dims": ("[-1]", "author"), "parameters[mode].string_value": ('"fast"', "author"),
        "backend": ('"python"', "Triton"), "max_batch_size": ("0", "default"),
    }.items()  # fmt: skip
    completed = {each.path: each.origin for each in view("callee").settings}
    assert completed["input[IN].data_type"] == "model"
    assert len(origins) == len(view("caller").settings)


def test_its_source_and_no_such_model(repository: bls.ModelRepository) -> None:
    assert view("callee").source.strip() == CALLEE.strip()
    with pytest.raises(bls.ModelNotFoundError, match="model 'nosuch' is not loaded"):
        bls.inspect("nosuch")
    record = view("caller")
    assert type(record).from_dict(record.to_dict()) == record
    assert isinstance(bls.inspect(repository.model("caller")).record, ModelView)
