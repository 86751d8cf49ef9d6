"""Instances on GPUs: their kind and device, and that the current GPU of each is its own."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from tests.devices.conftest import Kit
from tests.devices.models import HEAD, cupy_model, define

TELL = cupy_model("""
def initialize(self, args):
    self.told = "{model_instance_name} {model_instance_kind} {model_instance_device_id}".format(**args)
    SETUP
DEF execute(self, requests):
    told = f"{self.told} current {cupy.cuda.runtime.getDevice()}"
    BODY
    return [
        pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([told], object))]) for _ in requests
    ]
""")


def tell(setup: str = "pass", body: str = "pass", is_async: bool = False) -> str:
    source = TELL.replace("SETUP", setup).replace("BODY", body)
    return source.replace("DEF", "async def" if is_async else "def")


def said(response: bls.Response) -> str:
    assert response.error is None, response.error
    return response["OUT"].as_numpy()[0].decode()  # type: ignore[no-any-return]


def told(repo: bls.ModelRepository, name: str) -> set[str]:
    """What every instance says of itself: requests are sent at once, so that each serves one."""
    model = host_of(repo).find(name)
    assert model is not None
    return {f"{s.name} {s.kind} {s.device_id}" for s in model.spec.instances}


@pytest.mark.parametrize(("group", "expected"), [
    ("", {"tell_0 GPU 0", "tell_0 GPU 1"}),
    ("kind: KIND_GPU", {"tell_0 GPU 0", "tell_0 GPU 1"}),
    ("kind: KIND_GPU gpus: [ 1 ]", {"tell_0 GPU 1"}),
    ("kind: KIND_GPU gpus: [ 0 ] count: 2", {"tell_0_0 GPU 0", "tell_0_1 GPU 0"}),
    ("kind: KIND_AUTO gpus: [ 1 ]", {"tell_0 GPU 1"}),
    ("kind: KIND_CPU", {"tell_0 CPU 0"}),
    ("kind: KIND_MODEL", {"tell_0 MODEL 0"}),
])  # fmt: skip
def test_kinds_and_devices(simulated: Kit, repo: bls.ModelRepository, group: str, expected: set[str]) -> None:
    define(repo, "tell", tell(), outputs={"OUT": "STRING"}, more=f"instance_group {{ {group} }}\n" if group else "")
    names = told(repo, "tell")
    plain = {n.replace("_0_0 ", "_0 ").replace("_0_1 ", "_0 ") for n in names}
    assert plain == {n.replace("_0_0 ", "_0 ").replace("_0_1 ", "_0 ") for n in expected}
    assert said(repo.infer("tell", {"IN": [0]})).rpartition(" current ")[0].split()[1:] in [
        n.split()[1:] for n in expected
    ]


def test_the_default_follows_the_gpus_that_are_there(gpu: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "tell", tell(), outputs={"OUT": "STRING"})
    assert {t.partition(" ")[2] for t in told(repo, "tell")} == {f"GPU {i}" for i in range(gpu.count)}
    last = gpu.count - 1
    group = f"instance_group {{ kind: KIND_GPU gpus: [ {last} ] }}\n"
    define(repo, "tell", tell(), outputs={"OUT": "STRING"}, more=group)
    assert f" GPU {last} current 0" in said(repo.infer("tell", {"IN": [0]}))


@pytest.mark.parametrize("is_async", [False, True])
def test_the_current_gpu_of_an_instance_is_its_own(two: Kit, repo: bls.ModelRepository, is_async: bool) -> None:
    on_cpu = "instance_group { kind: KIND_CPU }\n"
    define(repo, "second", tell("cupy.cuda.Device(1).use()", is_async=is_async), outputs={"OUT": "STRING"}, more=on_cpu)
    define(repo, "first", tell(is_async=is_async), outputs={"OUT": "STRING"}, more=on_cpu)
    its_own = 0 if is_async else 1  # an async `execute` runs on another thread than `initialize`, as on Triton
    for _ in range(2):
        assert said(repo.infer("second", {"IN": [0]})).endswith(f"current {its_own}")
        assert said(repo.infer("first", {"IN": [0]})).endswith("current 0")
        assert said(asyncio.run(repo.infer_async("second", {"IN": [0]}))).endswith(f"current {its_own}")
    define(repo, "moves", tell(body="cupy.cuda.Device(1).use()"), outputs={"OUT": "STRING"}, more=on_cpu)
    assert [said(repo.infer("moves", {"IN": [0]}))[-1] for _ in range(2)] == ["0", "1"]  # later, too
    assert two.cupy.cuda.runtime.getDevice() == 0


CALLS = cupy_model("""
def execute(self, requests):
    cupy.cuda.Device(1).use()
    answer = pb_utils.InferenceRequest(
        model_name="first", inputs=requests[0].inputs(), requested_output_names=["OUT"]
    ).exec().output_tensors()[0].as_numpy()[0].decode()
    told = f"{answer}, then {cupy.cuda.runtime.getDevice()}"
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([told], object))])]
""")


def test_a_callee_does_not_inherit_the_callers_gpu(two: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "first", tell(), outputs={"OUT": "STRING"}, more="instance_group { kind: KIND_CPU }\n")
    define(repo, "calls", CALLS, outputs={"OUT": "STRING"}, more="instance_group { kind: KIND_CPU }\n")
    assert said(repo.infer("calls", {"IN": [0]})).endswith("current 0, then 1")


def test_gpus_that_went_away_leave_models_usable(simulated: Kit, repo: bls.ModelRepository) -> None:
    source = HEAD + (
        "import numpy as np\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        '        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())])'
        " for r in requests]\n"
    )
    define(repo, "plain", source)
    bls.simulate_gpus(0)
    answer = repo.infer("plain", {"IN": np.ones(3, np.float32)})
    assert answer["OUT"].as_numpy().tolist() == [1, 1, 1]
