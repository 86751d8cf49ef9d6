"""A real IPython shell with the magics, and a separate repository, for each test."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import bls_notebook as bls

SOURCE = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(0)
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "COUNT", "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def execute(self, requests):
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if (array < 0).any():
                raise ValueError("negative <b>input</b>")
            out = pb_utils.Tensor("OUT", array * FACTOR)
            count = pb_utils.Tensor("COUNT", np.array([array.size], np.int32))
            responses.append(pb_utils.InferenceResponse([out, count]))
        return responses
"""

STREAM = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(0)
        config.set_model_transaction_policy({"decoupled": True})
        config.add_input({"name": "N", "data_type": "TYPE_INT32", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for i in range(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0]):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([i], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


class Recorder(DisplayPublisher):
    """Keeps what is displayed."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[dict[str, Any]] = []

    def publish(self, data: Any, metadata: Any = None, **more: Any) -> None:
        self.outputs.append({"data": data, **more})


@dataclass
class Outcome:
    """The result of a cell."""

    success: bool
    value: Any
    error: BaseException | None
    outputs: list[dict[str, Any]]
    stdout: str
    stderr: str

    @property
    def bundles(self) -> list[dict[str, str]]:
        return [output["data"] for output in self.outputs]

    @property
    def text(self) -> str:
        return "\n".join(bundle.get("text/plain", "") for bundle in self.bundles)

    @property
    def html(self) -> str:
        return "\n".join(bundle.get("text/html", "") for bundle in self.bundles)


class Cells:
    """Runs cells in a shell."""

    def __init__(self, shell: InteractiveShell, capture: pytest.CaptureFixture[str]) -> None:
        self.shell = shell
        self._capture = capture

    def __call__(self, cell: str) -> Outcome:
        self._capture.readouterr()
        publisher = self.shell.display_pub
        publisher.outputs.clear()
        result = self.shell.run_cell(cell, store_history=True)
        outputs = list(publisher.outputs)
        error = result.error_before_exec or result.error_in_exec
        return Outcome(result.success, result.result, error, outputs, *self._capture.readouterr())

    def model(self, name: str = "times", factor: int = 2, options: str = "") -> Outcome:
        """Define a model that multiplies."""
        return self(f"%%tritonmodel {name} {options}\n{SOURCE.replace('FACTOR', str(factor))}")

    def stream(self, name: str = "counter") -> Outcome:
        """Define a decoupled model that counts."""
        return self(f"%%tritonmodel {name}\n{STREAM}")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    forget_failure()
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)
    shell.display_pub = recorder = Recorder()
    # The value of a cell goes the same way as what it displays.
    monkeypatch.setattr(shell.displayhook, "write_output_prompt", lambda: None)
    monkeypatch.setattr(shell.displayhook, "write_format_data", lambda data, _=None: recorder.publish(data))
    before = bls.current_repository()
    bls.set_current_repository(bls.ModelRepository())
    yield shell
    bls.current_repository().close()
    bls.set_current_repository(before)
    InteractiveShell.clear_instance()
    shell.InteractiveTB.tb = None  # of the last error, with the variables of its frames
    forget_failure()


def forget_failure() -> None:
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)


@pytest.fixture
def cells(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> Iterator[Cells]:
    shell.extension_manager.load_extension("bls_notebook")
    yield Cells(shell, capsys)
    shell.extension_manager.unload_extension("bls_notebook")
    module = {name: value for name, value in shell.user_ns.items() if re.fullmatch(r"__\w+__", name)}
    shell.reset(new_session=False)  # variables may keep memory of a simulated GPU
    shell.user_ns.update(module)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model repository on disk with models `disk` and `broken`."""
    for name, source in (("disk", SOURCE.replace("FACTOR", "10")), ("broken", "import no_such_module\n")):
        version = tmp_path / "models" / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(source)
    return tmp_path / "models"


@pytest.fixture
def complete(cells: Cells) -> Callable[..., list[str]]:
    """Complete code at its end, before optional code `after`; return the completed code."""
    from IPython.core.completer import provisionalcompleter

    def run(code: str, after: str = "") -> list[str]:
        with provisionalcompleter():
            found = list(cells.shell.Completer.completions(code + after, len(code)))
        return [code[: completion.start] + completion.text for completion in found]

    return run


@pytest.fixture
def sender(cells):
    cells.model()
    cells("import numpy as np\nimages = np.ones(1000, np.float32)")
    return cells
