"""Ctrl-C in a real kernel gives the prompt back, also while a model's code cannot be stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.magics.debugged_kernel import started_kernel
from tests.magics.test_kernel import Kernel, data_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="the kernel's interrupt differs")]
CELL = """\
%%tritonmodel busy --output OUT INT32 [1] -q
import hashlib, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        CODE
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1], np.int32))])]
"""
LINE = 7
SAYS = 'print("here", flush=True); '  # on the same line, so that Ctrl-C strikes this line whenever it comes


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with started_kernel(tmp_path_factory.mktemp("kernel")) as manager:
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=100)
        kernel = Kernel(manager, client)
        assert (
            kernel.run("%load_ext bls_notebook\nimport bls_notebook as bls\nrepo = bls.current_repository()")[0][
                "status"
            ]
            == "ok"
        )
        yield kernel
        client.stop_channels()


@pytest.mark.parametrize("call", ["repo.infer('busy', {})", "%bls busy"])
@pytest.mark.parametrize(
    "code",
    [
        "all(True for _ in iter(int, 1))",
        "time.sleep(3600)",
        "threading.Event().wait()",
        "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)",
    ],
    ids=["Python", "sleep", "lock", "C"],
)
def test_the_prompt_comes_back(kernel: Kernel, code: str, call: str) -> None:
    assert kernel.run(CELL.replace("CODE", SAYS + code))[0]["status"] == "ok"  # never ends by itself
    reply, outputs = kernel.run(call, on_stream=kernel.manager.interrupt_kernel)
    assert reply["status"] == "error"
    (data,) = data_of(outputs, "display_data")
    assert "interrupted in model 'busy', Cell In[" in data["text/plain"]
    assert f"], line {LINE}" in data["text/plain"]
    # The remedy.
    assert kernel.run(CELL.replace("CODE", "pass"))[0]["status"] == "ok"
    assert kernel.run("assert repo.infer('busy', {}).error is None")[0]["status"] == "ok"
