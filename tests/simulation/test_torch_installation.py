"""PyTorch on simulated GPUs in models: wherever a model's code runs, and nowhere else."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import bls_notebook as bls
from tests.devices.conftest import Kit
from tests.devices.models import define, model
from tests.simulation.lazy_torch import needs_torch, torch
from tests.waiting import LIMIT

pytestmark = needs_torch

SEES = model(
    """
@staticmethod
def auto_complete_config(config):
    assert where() == "cuda:0"
    return config

def initialize(self, args):
    assert AT_IMPORT and where() == "cuda:0"
    torch.set_default_device("cuda")
    self.net = torch.nn.Linear(2, 2)
    self.pool = ThreadPoolExecutor(1)

def finalize(self):
    assert where() == "cuda:0" and self.net.weight.is_cuda

def is_ready(self):
    return where() == "cuda:0"

def look(self):
    seen = [where(), str(torch.zeros(1).device), self.pool.submit(where).result()]
    thread = threading.Thread(target=lambda: seen.append(where()))
    thread.start()
    thread.join()
    return seen
""",
    """import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
import torch
AT_IMPORT = torch.cuda.is_available()

def where():
    return str(torch.zeros(1, device="cuda").cuda().device)
""",
)
SYNC = """
    def execute(self, requests):
        out = pb_utils.Tensor("OUT", __import__("numpy").array(self.look(), object))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
ASYNC = """
    async def execute(self, requests):
        await asyncio.sleep(0)
        seen = self.look()
        seen += [await asyncio.to_thread(where)]
        seen += await asyncio.get_running_loop().run_in_executor(None, self.look)
        out = pb_utils.Tensor("OUT", __import__("numpy").array(seen, object))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


@pytest.mark.parametrize("execute", [SYNC, ASYNC])
def test_wherever_its_code_runs(simulated: Kit, repo: bls.ModelRepository, execute: str) -> None:
    config = 'output { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] }'
    repo.define("sees", SEES + execute, config=config)
    assert repo.ready("sees")
    for _ in range(2):
        response = repo.infer("sees", {})
        assert response.error is None, response.error.message()
        assert set(response["OUT"].as_numpy()) == {b"cuda:0"}
        assert not torch.cuda.is_available()
        assert torch.zeros(1).device.type == "cpu"
    repo.unload("sees")


DOUBLE = model(
    """
def execute(self, requests):
    out = []
    for request in requests:
        tensor = request.inputs()[0]
        x = from_dlpack(tensor.to_dlpack()).to("cuda:1")
        out.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", to_dlpack(x * 2))]))
    return out
""",
    """import torch
from torch.utils.dlpack import from_dlpack, to_dlpack
""",
)
CALLS = model(
    """
def execute(self, requests):
    x = torch.from_numpy(requests[0].inputs()[0].as_numpy()).cuda()
    request = pb_utils.InferenceRequest(
        model_name="double", requested_output_names=["OUT"],
        inputs=[pb_utils.Tensor.from_dlpack("IN", x)],
        preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0))
    with torch.device("cuda:1"):
        answer = request.exec()
    y = torch.from_dlpack(answer.output_tensors()[0])
    assert (str(y.device), torch.cuda.current_device()) == ("cuda:0", 0), y.device
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", (x + y).cpu().numpy())])]
""",
    "import torch",
)


def test_tensors_go_from_model_to_model_on_gpus(simulated: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "double", DOUBLE)
    define(repo, "calls", CALLS, force_cpu=True)
    with bls.track_memory() as memory:
        answer = repo.infer("calls", {"IN": np.array([1, 2], np.float32)})
        assert answer.error is None, answer.error.message()
        assert answer["OUT"].as_numpy().tolist() == [3, 6]
        del answer
    lives = [life for life in memory.record.lives if life.device.startswith("gpu")]
    assert {life.device for life in lives} == {"gpu:0", "gpu:1"}
    assert {life.maker.model for life in lives} == {"double", "calls"}
    assert any("cuda()" in life.line.text for life in lives)
    assert all(life.died >= 0 for life in lives)


LEAKS = DOUBLE.replace("            out.app", "            self.kept = [x]\n            out.app")


def test_owners_of_a_torch_tensor_are_named(simulated: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "leaks", LEAKS)
    with bls.track_memory() as memory:
        repo.infer("leaks", {"IN": np.array([1, 2], np.float32)}, preferred_memory="cpu")
    (held,) = [life for life in memory.record.lives if life.device == "gpu:1" and life.died < 0]
    assert [holder.name for holder in held.holders] == ["leaks_0.kept[0]"]


def test_running_out_of_memory_costs_one_answer(simulated: Kit, repo: bls.ModelRepository) -> None:
    source = DOUBLE.replace("x * 2", "x.repeat(int(x[0].item()))")
    define(repo, "repeat", source)
    failed = repo.infer("repeat", {"IN": np.array([1 << 25], np.float32)})
    assert "CUDA out of memory. Tried to allocate 128.00 MiB. GPU 1" in failed.error.message()
    assert repo.infer("repeat", {"IN": np.array([3], np.float32)}, preferred_memory="cpu").error is None


SCRIPT = """
import sys
import bls_notebook as bls
bls.simulate_gpus(1)
repo = bls.ModelRepository()
assert "torch" not in sys.modules
repo.define("late", '''
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        import torch
        device = str(torch.zeros(1).to("cuda").device)
        device = __import__("numpy").array([device], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", device)])]
''', config='output { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] }')
print([repo.infer("late", {})["OUT"].as_numpy().tolist() for _ in range(2)])
import torch
print(torch.cuda.is_available(), torch.__spec__.loader is torch.__loader__)
"""


@pytest.mark.slow
def test_pytorch_is_imported_by_the_model_first() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout == "[[b'cuda:0'], [b'cuda:0']]\nFalse True\n", done.stdout + done.stderr
