from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.settings import BLSNotebook
from bls_notebook.magics.tritonmodel import with_changes_to_show
from bls_notebook.records.models import Change, ModelRecord
from tests.repository.models import saying


def test_a_cell_becomes_a_model_that_serves(cells) -> None:
    made = cells.model()
    assert made.success
    assert (made.value.name, made.value.state, made.value.source) == ("times", "READY", "cell")
    assert set(made.bundles[0]) == {"text/plain", "text/html"}
    assert "times" in made.text
    assert "READY" in made.text
    assert bls.current_repository().infer("times", {"IN": [1, 2]}).as_numpy()["OUT"].tolist() == [2, 4]


def test_the_cell_is_the_source_to_the_letter(cells) -> None:
    cells("%%tritonmodel echo --output OUT STRING [1]\n" + saying('"{curly} $HOME %magic !ls"'))
    shown = bls.current_repository().infer("echo", {})["OUT"].as_numpy()[0].decode()
    assert shown == "{curly} $HOME %magic !ls"


def test_options_version_and_variables_reach_the_model(cells) -> None:
    assert cells.model(options="--instances 3 --version 4").value.instances == 3
    assert bls.current_repository().index()[0].version == 4
    cells.shell.user_ns.update(mine={"instance_group": [{"count": 2, "kind": "KIND_CPU"}]}, name="called")
    made = cells.model(name="$name", options="--config mine").value
    assert (made.name, made.instances) == ("called", 2)


def test_quiet_shows_nothing_unless_it_fails(cells) -> None:
    quiet = cells.model(options="--quiet")
    assert quiet.success
    assert not quiet.bundles
    failed = cells("%%tritonmodel times -q\nx = 1")
    assert not failed.success
    assert failed.text


def test_tritonconfig_before_and_after_the_model(cells) -> None:
    assert not cells("%%tritonconfig times --quiet\nmax_batch_size: 0").bundles
    stored = cells("%%tritonconfig times\ninstance_group { count: 2 kind: KIND_CPU }")
    assert stored.success
    assert "'times'" in stored.text
    assert cells.model().value.instances == 2
    assert cells("%%tritonconfig times\ninstance_group { count: 4 kind: KIND_CPU }").value.instances == 4
    assert bls.current_repository().model("times").instances == 4


def test_tritonconfig_reports_what_it_drops(cells) -> None:
    tensors = [
        f"{kind} {{ name: '{kind[0]}{i}' data_type: TYPE_FP32 dims: 1 }}" for kind in ("input", "output") for i in "12"
    ]
    cells("%%tritonmodel m\nclass TritonPythonModel:\n    def execute(self, requests): return []")
    assert not cells("%%tritonconfig m\n" + "\n".join(tensors)).value.warnings
    assert not cells("%%tritonconfig m\n" + "\n".join(reversed(tensors))).value.warnings
    first, second = cells(f"%%tritonconfig m\n{tensors[0]}").value.warnings
    assert (first.partition(":")[0], second.partition(":")[0]) == (
        "the model no longer has input 'i2'",
        "the model no longer has outputs 'o2', 'o1'",
    )


def test_a_cell_that_raises_something_odd_fails_like_any_other(cells) -> None:
    odd = "class Odd(Exception):\n    __traceback__ = __cause__ = property(lambda self: 1 / 0)\n"
    shown = cells(f"%%tritonmodel odd\n{odd}    def __str__(self): raise SystemExit\nraise Odd")
    assert not shown.success
    assert "odd failed" in shown.text
    assert "version 1 could not be loaded" in shown.text


LOOKS = """\

%%tritonmodel looks --output OUT BYTES [1]
import inspect, os, pickle
import numpy as np, triton_python_backend_utils as pb_utils

class Point:
    x = 1

class TritonPythonModel:
    def execute(self, requests):
        assert os.path.isfile(__file__) and os.path.basename(__file__) == "model.py"
        assert os.path.samefile(pb_utils.get_model_dir(), os.path.dirname(__file__))
        assert type(pickle.loads(pickle.dumps(Point()))) is Point
        seen = inspect.getsource(Point) + inspect.getsource(TritonPythonModel.last)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([seen], object))])]

    def last(self):
        return missing_name
"""


def test_a_model_sees_its_own_file_and_source(cells) -> None:
    defined = cells(LOOKS)
    assert "line 18: 'missing_name'" in defined.value.warnings[0]  # as the cell counts
    response = cells("%bls looks").value
    assert response.error is None, response.error
    source = response["OUT"].as_numpy()[0].decode()
    assert source == "class Point:\n    x = 1\n    def last(self):\n        return missing_name\n"


def test_lines_in_messages_are_those_of_the_cell(cells) -> None:
    number = cells.shell.execution_count
    cells("%%tritonmodel fails\n\nclass TritonPythonModel:\n    def execute(self, requests):\n        1 / 0\n")
    failed = cells("%bls fails").value.record.error
    frame = failed.frames[-1]
    assert (frame.file, frame.line) == (f"Cell In[{number}]", 5)
    assert (5, "        1 / 0") in frame.source
    refused = cells("%%tritonmodel fails\n\nx = = 1\n")
    assert "line 3" in refused.text


def test_text_that_is_no_cell_keeps_its_own_lines(cells) -> None:
    cells("source = 'class TritonPythonModel:\\n    def execute(self, requests):\\n        1 / 0\\n'")
    cells("get_ipython().run_cell_magic('tritonmodel', 'fails', source)")
    frame = cells("%bls fails").value.record.error.frames[-1]
    assert (frame.file, frame.line) == ("fails/1/model.py", 3)


CHANGED = (Change("model.py", 1, 1),)


class Kernel:
    """A notebook in a kernel, of which one cell runs; frontends without a person tell no cell ids."""

    def __init__(self, ids: bool) -> None:
        self._ids, self._cell, self._serves = ids, "", ""
        shell: Any = SimpleNamespace(kernel=object(), get_parent=self._parent)
        self._notebook = Notebook(shell, BLSNotebook())

    def _parent(self) -> dict[str, Any]:
        return {"metadata": {"cellId": self._cell} if self._ids else {}}

    def run(self, cell: str, code: str) -> bool:
        """Run a cell that defines a model with this code; whether it shows changes."""
        changes = CHANGED if self._serves not in ("", code) else ()
        self._cell, self._serves = cell, code
        shown = with_changes_to_show(self._notebook, (code, ""), ModelRecord("m", changes=changes))
        return bool(shown.changes)


@pytest.mark.parametrize("ids", [True, False])
def test_a_whole_notebook_twice(ids: bool) -> None:
    kernel = Kernel(ids)
    notebook = [("first", "a"), ("second", "b"), ("third", "c")]
    first = [kernel.run(*cell) for cell in notebook]
    assert first == [False, True, True]
    assert [kernel.run(*cell) for cell in notebook] == first


@pytest.mark.parametrize("ids", [True, False])
def test_a_cell_that_is_edited(ids: bool) -> None:
    kernel = Kernel(ids)
    assert [kernel.run("one", code) for code in "abb"] == [False, True, False]
    assert kernel.run("one", "a") == ids  # without ids nobody knows that it was the same cell


def test_in_a_terminal_it_is_always_told(cells) -> None:
    cells.model("times", 2)
    assert "changed since" not in cells.model("times", 2).text
    assert "model.py +1 −1" in cells.model("times", 3).text
    assert "model.py +1 −1" in cells.model("times", 2).text


def test_options_of_a_cell_replace_single_fields_of_the_model_on_disk(cells, tmp_path: Path) -> None:
    config = "max_batch_size: 4 instance_group { count: 3 kind: KIND_CPU }"
    tensors = ("input", "IN"), ("output", "OUT")
    config += "".join(f" {kind} {{ name: '{name}' data_type: TYPE_FP32 dims: 1 }}" for kind, name in tensors)
    (tmp_path / "page" / "1").mkdir(parents=True)
    (tmp_path / "page" / "config.pbtxt").write_text(config)
    cells(f"%tritonrepo use {tmp_path}")
    code = "class TritonPythonModel:\n    def execute(self, requests): return []"
    record = cells(f"%%tritonmodel page --instances 1 --output MORE FP32 [2]\n{code}").value
    assert ([t.name for t in record.inputs], [t.name for t in record.outputs]) == (["IN"], ["MORE"])
    assert (record.instances, record.max_batch_size) == (1, 4)
    assert cells(f"%%tritonmodel page --max-batch-size 0\n{code}").value.max_batch_size == 0


CALLER = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [self.call() for r in requests]

    def call(self):
        return pb_utils.InferenceRequest(model_name="times", requested_output_names=["OUT"], inputs=[]).exec()
"""


def test_changed_inputs_warn_about_the_models_that_call_this_one(cells) -> None:
    cells.model()
    cells(f"%%tritonmodel asks --output OUT FP32 [-1]{CALLER}")
    assert not cells.model().value.warnings
    code = "class TritonPythonModel:\n    def execute(self, requests): return []"
    [warning] = cells(f"%%tritonmodel times --input IN INT32 [-1] --output MORE FP32 [1]\n{code}").value.warnings
    assert "input 'IN' was FP32 [-1], is INT32 [-1]" in warning
    assert "output 'OUT' is gone" in warning
    assert "output 'MORE' is new (FP32 [1])" in warning
    assert warning.endswith("adapt asks, which calls this model")
    changed = cells("%%tritonconfig times\ninput { name: 'IN' data_type: TYPE_BOOL dims: 1 }").value.warnings
    assert "adapt asks" in changed[-1]
