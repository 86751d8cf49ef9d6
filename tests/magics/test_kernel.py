"""The magics in a real kernel: its event loop, its replies, its completions, its interrupts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.magics.conftest import SOURCE
from tests.magics.debugged_kernel import started_kernel
from tests.waiting import LIMIT

pytestmark = pytest.mark.slow
OUTPUTS = ("execute_result", "display_data", "update_display_data", "error", "stream")
TIMES = "%%tritonmodel times\n" + SOURCE.replace("FACTOR", "2")


class Kernel:
    """A kernel to send cells to."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client

    def run(
        self, cell: str, on_stream: Any = None, person: bool = False
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Run a cell, as a `person` does who may be asked or as a script; its reply, and its outputs.

        `on_stream` is called at its first text: on a busy machine, a line may come in two parts.
        """
        outputs: list[dict[str, Any]] = []

        def hook(message: dict[str, Any]) -> None:
            is_text = message["msg_type"] == "stream"
            is_first = is_text and not any(each["msg_type"] == "stream" for each in outputs)
            if message["msg_type"] in OUTPUTS:
                outputs.append(message)
            if on_stream is not None and is_first:
                on_stream()

        reply = self.client.execute_interactive(cell, output_hook=hook, timeout=LIMIT, allow_stdin=person)
        return reply["content"], outputs


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with started_kernel(tmp_path_factory.mktemp("kernel")) as manager:
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=LIMIT)
        kernel = Kernel(manager, client)
        for cell in ("%load_ext bls_notebook", TIMES):
            assert kernel.run(cell)[0]["status"] == "ok"
        yield kernel
        client.stop_channels()


def data_of(outputs: list[dict[str, Any]], kind: str) -> list[dict[str, str]]:
    return [m["content"]["data"] for m in outputs if m["msg_type"] == kind]


LONG = """\
import time
from bls_notebook import progress as told
soon, told.FIRST_AFTER = told.FIRST_AFTER, 0.0
with told.progress("loading it") as one:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and not getattr(one._bar, "_shown", False):
        time.sleep(0.01)
told.FIRST_AFTER = soon"""


def test_progress_of_a_long_load_in_its_cell(kernel: Kernel) -> None:
    reply, outputs = kernel.run(LONG.replace("SECONDS", str(LIMIT)), person=True)
    assert reply["status"] == "ok"
    assert outputs[0]["msg_type"] == "display_data"
    assert outputs[0]["content"]["data"]["text/plain"].startswith("loading it, ")
    assert outputs[-1]["msg_type"] == "update_display_data"
    assert outputs[-1]["content"]["data"] == {}


def test_a_response_is_the_result_of_its_cell_and_a_bad_argument_one_line(kernel: Kernel) -> None:
    reply, outputs = kernel.run("%bls times IN=[1, 2]")
    assert reply["status"] == "ok"
    (data,) = data_of(outputs, "execute_result")
    assert set(data) == {"text/plain", "text/html"}
    assert "[2.0, 4.0]" in data["text/plain"]
    reply, outputs = kernel.run("%bls times IN=[1")
    assert reply["status"] == "error"
    assert [m["msg_type"] for m in outputs] == ["stream"]
    assert outputs[0]["content"]["text"].count("\n") <= 1


def test_top_level_await_runs_beside_the_kernels_own_loop(kernel: Kernel) -> None:
    _, outputs = kernel.run(
        "%%bls\n"
        "import asyncio, numpy as np, triton_python_backend_utils as pb_utils\n"
        "request = pb_utils.InferenceRequest(model_name='times', requested_output_names=['OUT'],\n"
        "    inputs=[pb_utils.Tensor('IN', np.array([3], np.float32))])\n"
        "print('printed in the loop')\n"
        "display('displayed in the loop')\n"
        "responses = await asyncio.gather(*(request.async_exec() for _ in range(3)))\n"
        "[r.output_tensors()[0].as_numpy().tolist() for r in responses]"
    )
    assert [m["content"]["text"] for m in outputs if m["msg_type"] == "stream"] == ["printed in the loop\n"]
    assert data_of(outputs, "display_data") == [{"text/plain": "'displayed in the loop'"}]
    assert data_of(outputs, "execute_result") == [{"text/plain": "[[6.0], [6.0], [6.0]]"}]
    # An ordinary cell with await may use the magics.
    reply, outputs = kernel.run(
        "import asyncio\nawait asyncio.sleep(0)\nr = %bls times IN=[4] --async\nr['OUT'].as_numpy().tolist()"
    )
    assert reply["status"] == "ok"
    assert data_of(outputs, "execute_result") == [{"text/plain": "[8.0]"}]


def test_a_failed_definition_fails_the_cell_with_one_display(kernel: Kernel) -> None:
    reply, outputs = kernel.run("%%tritonmodel times\nx = = 1")
    assert (reply["status"], reply["ename"]) == ("error", "ModelLoadError")
    assert "SyntaxError" in reply["evalue"]
    assert any("stays in service" in line for line in reply["traceback"])
    assert [m["msg_type"] for m in outputs] == ["display_data"]
    assert kernel.run("%bls times IN=[1]")[0]["status"] == "ok"


def test_completion_and_help_by_message(kernel: Kernel) -> None:
    code = "x = 1\nr = %bls times I"
    found = kernel.client.complete(code, len(code), reply=True, timeout=LIMIT)["content"]
    assert found["matches"] == ["IN="]
    assert code[found["cursor_start"] : found["cursor_end"]] == "I"
    code = "%%tritonmodel m\nimport triton_python_backend_utils as pb\nx = pb.get_mo\n"
    found = kernel.client.complete(code, len(code) - 1, reply=True, timeout=LIMIT)["content"]
    assert found["matches"] == ["get_model_dir"]
    assert code[found["cursor_start"] : found["cursor_end"]] == "get_mo"

    def told(code: str, at: int) -> str:
        found = kernel.client.inspect(code, at, reply=True, timeout=LIMIT)["content"]
        return found["data"].get("text/plain", "")

    assert kernel.run("import bls_notebook as bls")[0]["status"] == "ok"
    assert "--stream" in told("%bls", 4)
    assert told("y = 2\nx = %bls times IN=[1]", 17).startswith("times  version 1")
    assert "BLSError" in told("bls.BLSError", 6)


@pytest.mark.skipif(sys.platform == "win32", reason="the kernel's interrupt differs")
@pytest.mark.parametrize("wait", ["await asyncio.Event().wait()", "threading.Event().wait()"])
def test_an_interrupt_ends_a_body_that_waits(kernel: Kernel, wait: str) -> None:
    reply, _ = kernel.run(
        f"%%bls\nimport asyncio, threading\nprint('waiting', flush=True)\n{wait}",
        on_stream=kernel.manager.interrupt_kernel,
    )
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
    assert kernel.run("%bls times IN=[1]")[0]["status"] == "ok"


STAYS = """\
%%tritonmodel stays --output OUT INT32 [1] -q
import asyncio, time
class TritonPythonModel:
    async def execute(self, requests):
        print("here", flush=True)
        WAIT
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the kernel's interrupt differs")
@pytest.mark.parametrize(
    ("call", "wait"),
    [
        ("await repo.infer_async('stays', {})", "await asyncio.Event().wait()"),
        ("await repo.infer_async('stays', {})", "while True: time.sleep(0.001)"),
        ("repo.infer('stays', {})", "await asyncio.Event().wait()"),
    ],
)
def test_an_interrupt_of_a_request_is_told_in_one_line(kernel: Kernel, call: str, wait: str) -> None:
    kernel.run(STAYS.replace("WAIT", wait))
    cell = f"import bls_notebook as bls\nrepo = bls.current_repository()\n{call}"
    reply, outputs = kernel.run(cell, on_stream=kernel.manager.interrupt_kernel)
    assert reply["status"] == "error"
    (data,) = data_of(outputs, "display_data")
    where = "" if call.startswith("await") else r" in model 'stays', Cell In\[\d+\], line \d+"
    assert re.fullmatch(f"! interrupted{where}; running requests were cancelled", data["text/plain"])
    assert [m for m in outputs if m["msg_type"] == "error"] == []
    assert kernel.run("repo.unload('stays')")[0]["status"] == "ok"  # when nothing is in flight


def test_ctrl_c_wakes_the_loop_even_if_it_comes_just_before_it_sleeps(kernel: Kernel) -> None:
    fd = "fd = signal.set_wakeup_fd(-1)\nsignal.set_wakeup_fd(fd, warn_on_full_buffer=False)"
    _, outputs = kernel.run(f"import asyncio, signal\n{fd}\nfd == asyncio.get_running_loop()._csock.fileno()")
    assert data_of(outputs, "execute_result") == [{"text/plain": "True"}]


LOGS = """\
%%tritonmodel logs
import threading
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        print("before")
        pb_utils.Logger.log_info("in between")
        print("after")
        return [pb_utils.InferenceResponse() for _ in requests]
"""
LATE = """\
import asyncio
import bls_notebook as bls
gate = asyncio.Event()
async def call():
    await gate.wait()
    return await bls.current_repository().infer_async("logs", {})
task = asyncio.create_task(call())
"""


def test_a_request_that_outlives_its_cell_logs_under_it_all_the_same(kernel: Kernel) -> None:
    kernel.run(LOGS)
    streams: list[dict[str, Any]] = []

    def hook(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            streams.append(message)

    first = kernel.client.execute(LATE, allow_stdin=False)
    kernel.client.get_shell_msg(timeout=LIMIT)
    second = kernel.client.execute("gate.set(); await task; print('the other cell')", allow_stdin=False)
    kernel.client.get_shell_msg(timeout=LIMIT)
    while not any("the other cell" in m["content"]["text"] for m in streams) or len(streams) < 2:
        hook(kernel.client.get_iopub_msg(timeout=LIMIT))
    texts = {m["parent_header"]["msg_id"]: "" for m in streams}
    for message in streams:
        texts[message["parent_header"]["msg_id"]] += message["content"]["text"]
    assert "in between" in texts[first]
    assert texts[second] == "the other cell\n"
