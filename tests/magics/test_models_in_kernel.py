"""Code of models that asks the person at the notebook, and where what it shows appears, in a real kernel."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.magics.debugged_kernel import ROOT, started_kernel
from tests.waiting import LIMIT

pytestmark = pytest.mark.slow

OUT = '--output "OUT INT32 [1]"'
# `N` is the name; `stops()` of a helper module, `initialize` and `execute` stop if told so.
MODEL = f"""\
%%tritonmodel N {OUT} -q
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        local = 6
        IN_INITIALIZE

    def execute(self, requests):
        local = 7
        IN_EXECUTE
        answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([local], np.int32))])
        return [answer]
"""


def model(name: str, execute: str = "pass", initialize: str = "pass", kind: str = "def", head: str = "") -> str:
    text = MODEL.replace("tritonmodel N", f"tritonmodel {name}").replace("def execute", f"{kind} execute")
    text = text.replace("IN_INITIALIZE", initialize).replace("IN_EXECUTE", execute)
    return text.replace("import numpy as np\n", f"import numpy as np\n{head}\n", 1)


class Kernel:
    """A kernel whose prompts are answered."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.prompts: list[str] = []
        self.text = ""

    def run(self, cell: str, *answers: str, ok: bool = True) -> str:
        """Run a cell, give the answers to its prompts, and return its text; there are as many prompts as answers."""
        left, self.prompts, self.text = list(answers), [], ""

        def answer(message: dict[str, Any]) -> None:
            self.prompts.append(message["content"]["prompt"])
            self.client.input(left.pop(0) if left else "q")

        def show(message: dict[str, Any]) -> None:
            content = message["content"]
            self.text += content.get("text", "") + content.get("data", {}).get("text/plain", "")
            self.text += "\n".join(content.get("traceback", ()))

        reply = self.client.execute_interactive(
            cell, allow_stdin=True, stdin_hook=answer, output_hook=show, timeout=LIMIT
        )
        assert (reply["content"]["status"] == "ok") is ok, self.text
        assert len(self.prompts) == len(answers), (self.prompts, self.text)
        return self.text


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with started_kernel(tmp_path_factory.mktemp("prompts")) as manager:
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=LIMIT)
        kernel = Kernel(client)
        kernel.run("%load_ext bls_notebook\nimport bls_notebook as bls\nrepo = bls.current_repository()")
        yield kernel
        client.stop_channels()


PDB = "import pdb; pdb.set_trace()"
IPDB = "from IPython.core.debugger import set_trace; set_trace()"


@pytest.mark.parametrize("stop", ["breakpoint()", PDB, IPDB])
def test_a_model_opens_a_prompt_in_its_own_frame(kernel: Kernel, stop: str) -> None:
    assert "6" in kernel.run(model("asks", stop, stop), "p local", "c").split()
    assert kernel.prompts == ["ipdb> ", "ipdb> "]
    assert "7" in kernel.run("r = %bls asks", "p local", "c").split()
    kernel.run("r = %bls asks", "local = 8", "c")
    assert kernel.run("int(r['OUT'].as_numpy()[0])") == "8"
    kernel.run(model("asks", stop, kind="async def"))
    assert "7" in kernel.run("r = await repo.infer_async('asks', {})", "p local", "c").split()


def test_breakpoint_in_a_helper_module_and_outside_models(kernel: Kernel, tmp_path: Path) -> None:
    folder = tmp_path / "helped" / "1"
    folder.mkdir(parents=True)
    (folder / "stops.py").write_text("def stop():\n    depth = 41\n    breakpoint()\n    return depth + 1\n")
    body = model("N", "local = stops.stop()", head="import stops").split("\n", 1)[1]
    (folder / "model.py").write_text(body)
    config = 'name: "helped"\nbackend: "python"\noutput [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]'
    (tmp_path / "helped" / "config.pbtxt").write_text(config)
    kernel.run(f"other = bls.ModelRepository({str(tmp_path)!r})\nother.load('helped')")
    assert "41" in kernel.run("r = other.infer('helped', {})", "p depth", "c").split()
    assert kernel.run("int(r['OUT'].as_numpy()[0])") == "42"
    kernel.run("other.close()\nbreakpoint()")  # as ever, it waits for a debugger to be attached


def test_input_and_debug_ask_the_cell(kernel: Kernel) -> None:
    kernel.run(model("asks", "local = int(input('how many? '))"))
    kernel.run("r = %bls asks", "12")
    assert kernel.prompts == ["how many? "]
    assert kernel.run("int(r['OUT'].as_numpy()[0])") == "12"
    kernel.run(model("fails", "1 / 0"))
    kernel.run("%bls fails")
    assert "7" in kernel.run("%debug", "p local", "q").split()


SHOWS = """\
print("printed")
        display("displayed")
        logging.getLogger("models").warning("logged")
        pb_utils.Logger.log_warn("by Triton's logger")
        list(tqdm(range(3), desc="tqdm"))"""
LATE = """\
import threading
gate = threading.Event()
def late():
    gate.wait()
    repo.infer("shows", {})
thread = threading.Thread(target=late)
thread.start()
"""


def test_output_of_a_model_appears_in_the_cell_of_the_request(kernel: Kernel) -> None:
    head = "import logging\nfrom IPython.display import display\nfrom tqdm.auto import tqdm"
    kernel.run(model("shows", SHOWS, head=head))
    shown = {"printed": 1, "displayed": 1, "logged": 1, "by Triton's logger": 1}

    def counts(text: str) -> dict[str, int]:
        return {words: text.count(words) for words in shown}

    for cell in ("r = %bls shows", "r = repo.infer('shows', {})", "r = await repo.infer_async('shows', {})"):
        text = kernel.run(cell)
        assert counts(text) == shown, text
        assert "tqdm: " in text
        assert "in the background" not in text
    gathered = "import asyncio\nr = await asyncio.gather(*[repo.infer_async('shows', {}) for _ in range(3)])"
    assert set(counts(kernel.run(gathered)).values()) == {3}
    assert counts(kernel.run(LATE)) == dict.fromkeys(shown, 0)
    # A thread without the context of a cell prints in the newest one.
    assert counts(kernel.run("gate.set()\nthread.join()")) == shown
    assert counts(kernel.run("r = %bls shows")) == shown
    assert counts(kernel.run("1 + 1")) == dict.fromkeys(shown, 0)


LIBRARIES = {
    "matplotlib": ("import matplotlib.pyplot as plt", "plt.plot([1, 2]); plt.show()", "Figure"),
    "ipywidgets": (
        "import ipywidgets",
        "out = ipywidgets.Output(); out.append_stdout('x'); display(out); out.clear_output()", "Output",
    ),
    "multiprocessing": (
        "import multiprocessing, operator",
        "local = multiprocessing.get_context('spawn').Pool(1).apply(operator.add, (3, 4))", "",
    ),
    "subprocess": (
        "import subprocess, sys", "local = int(subprocess.check_output([sys.executable, '-c', 'print(7)']))", "",
    ),
    "asyncio": ("import asyncio", "local = asyncio.run(asyncio.sleep(0, 7))", ""),
    "executors": (
        "from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor",
        "local = ThreadPoolExecutor(1).submit(lambda: 7).result()", "",
    ),
}  # fmt: skip


def test_libraries_that_ask_for_threads_or_processes(kernel: Kernel) -> None:
    kernel.run("%matplotlib inline")
    for name, (head, execute, shown) in LIBRARIES.items():
        if importlib.util.find_spec(name.partition(".")[0]) is None and name != "executors":
            continue
        kernel.run(model(name, execute, head=f"{head}\nfrom IPython.display import display"))
        for call in (f"r = %bls {name}", f"r = await repo.infer_async('{name}', {{}})"):
            assert shown in kernel.run(call), (name, kernel.text)
            assert kernel.run("int(r['OUT'].as_numpy()[0])") == "7"


LOADS = """\
from bls_notebook import progress as told
        import time
        soon, told.FIRST_AFTER = told.FIRST_AFTER, 0.0
        with told.progress("downloading weights") as one:
            until = time.monotonic() + LIMIT
            while time.monotonic() < until and not getattr(told._under_way[0]._bar, "_shown", False):
                time.sleep(0.01)
        told.FIRST_AFTER = soon"""


def test_initialize_shows_its_progress(kernel: Kernel) -> None:
    text = kernel.run(model("loads", initialize=LOADS.replace("LIMIT", str(LIMIT))))
    assert "downloading weights, " in text


SCRIPT = '''\
DEBUGPY
import bls_notebook as bls
repo = bls.ModelRepository()
repo.define("stops", """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        seven = 7
        breakpoint()
        print("went on with", seven)
        return [pb_utils.InferenceResponse([])]
""", 'output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]')
repo.infer("stops", {})
repo.close()
'''


@pytest.mark.parametrize("imports", ["", "import debugpy.server"])
def test_breakpoint_in_a_script(imports: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.replace("DEBUGPY", imports))
    done = subprocess.run(
        [sys.executable, "-X", "frozen_modules=off", tmp_path / "script.py"],
        input="p seven + 1\nseven = 9\nc\n",
        capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(Pdb) 8\n" in done.stdout
    assert "went on with 9" in done.stdout
