"""`load_model`, `unload_model`, `is_model_ready` and `get_model_dir`, from inside a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook import pb_utils
from bls_notebook.pb_utils import TritonModelException

EMPTY = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse() for _ in requests]
"""


@pytest.fixture
def disk(tmp_path: Path) -> bls.ModelRepository:
    (tmp_path / "late" / "1").mkdir(parents=True)
    (tmp_path / "late" / "1" / "model.py").write_text(EMPTY)
    return bls.ModelRepository(tmp_path)


def test_a_life(disk: bls.ModelRepository) -> None:
    unknown = "Failed to check model readiness: .*Request for unknown model: 'late' "

    def body() -> list[bool]:
        with pytest.raises(pb_utils.TritonModelException, match=f"{unknown}is not found"):
            pb_utils.is_model_ready("late")
        ready = []
        pb_utils.load_model(model_name="late")
        ready.append(pb_utils.is_model_ready(model_name="late", model_version="1"))
        with pytest.raises(pb_utils.TritonModelException, match=f"{unknown}version 2 is not found"):
            pb_utils.is_model_ready("late", "2")
        pb_utils.load_model("late")
        pb_utils.unload_model("late", unload_dependents=True)
        with pytest.raises(pb_utils.TritonModelException, match=f"{unknown}has no available versions"):
            pb_utils.is_model_ready("late")
        with pytest.raises(pb_utils.TritonModelException, match=f"{unknown}version 1 is not at ready state"):
            pb_utils.is_model_ready("late", "1")
        return ready

    with disk:
        assert disk.run(body) == [True]


def test_loading_with_a_config_and_files(disk: bls.ModelRepository) -> None:
    config = json.dumps({"name": "late", "backend": "python"})

    def body() -> bool:
        pb_utils.load_model("late", config, {"file:7/model.py": EMPTY.encode()})
        return pb_utils.is_model_ready("late", "7")

    with disk:
        assert disk.run(body) is True
        assert not disk.ready("late", 1)


@pytest.mark.parametrize(("arguments", "message"), [
    (("nobody",), "failed to load 'nobody', failed to poll from model repository"),
    (("../late",), "failed to load '../late', failed to poll from model repository"),
    (("",), "failed to load '', failed to poll from model repository"),
    (("late", "{"), "failed to load 'late', failed to poll from model repository"),
    (("late", "", {"file:1/model.py": b""}), "failed to load 'late', failed to poll from model repository"),
    (("late", '{"backend": "python"}', {"file:../../x.py": b""}), "failed to load 'late'"),
])  # fmt: skip
def test_load_model_failures(disk: bls.ModelRepository, arguments: Any, message: str) -> None:
    with disk:
        with pytest.raises(TritonModelException, match=r"^Failed to load model: Failed to process the request") as info:
            disk.run(lambda: pb_utils.load_model(*arguments))
        assert message in str(info.value)
        assert not disk.ready("late")


@pytest.mark.parametrize("call", [
    lambda: pb_utils.load_model(None), lambda: pb_utils.load_model(5), lambda: pb_utils.load_model("m", None),
    lambda: pb_utils.load_model("m", {"backend": "python"}),
    lambda: pb_utils.load_model("m", "{}", {"file:1/model.py": "text"}),
    lambda: pb_utils.load_model("m", "{}", {1: b""}),
    lambda: pb_utils.load_model("m", "{}", {"file:1/model.py": 5}), lambda: pb_utils.unload_model(None),
    lambda: pb_utils.is_model_ready(5), lambda: pb_utils.is_model_ready("m", 1),
    lambda: pb_utils.is_model_ready("m", None),
])  # fmt: skip
def test_arguments_of_a_wrong_kind(repo: bls.ModelRepository, call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="must"):
        repo.run(call)


def test_files_that_are_no_dict(repo: bls.ModelRepository) -> None:
    with pytest.raises(TritonModelException, match=r"^failed to load model 'm', files should be a dictionary"):
        repo.run(lambda: pb_utils.load_model("m", "{}", [("file:1/model.py", b"")]))


@pytest.mark.parametrize("version", ["x", "0", "-1", "1.0", " ", "\u00b2", "1x"])
def test_a_version_that_is_no_number(repo: bls.ModelRepository, version: str) -> None:
    with pytest.raises(TritonModelException, match="failed to get model version from specified version string"):
        repo.run(lambda: pb_utils.is_model_ready("m", version))


def test_unloading_what_is_not_there_is_no_error(repo: bls.ModelRepository) -> None:
    assert repo.run(lambda: pb_utils.unload_model("nobody")) is None
    for call in (pb_utils.load_model, pb_utils.unload_model, pb_utils.is_model_ready):  # no model, no server
        with pytest.raises(TritonModelException, match="only supported"):
            call("m")


def test_the_models_folder(tmp_path: Path) -> None:
    folder = tmp_path / "where" / "3"
    folder.mkdir(parents=True)
    (tmp_path / "where" / "config.pbtxt").write_text(
        'backend: "python" output [{ name: "DIRS" data_type: TYPE_STRING dims: [-1] }]'
    )
    (folder / "model.py").write_text("""
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, args):
        self.dirs = [pb_utils.get_model_dir()]
    def execute(self, requests):
        dirs = self.dirs + [pb_utils.get_model_dir()]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("DIRS", np.array(dirs, object))])]
""")
    with bls.ModelRepository(tmp_path) as repo:
        repo.load("where")
        assert repo.infer("where", {})["DIRS"].as_numpy().tolist() == [str(folder).encode()] * 2


def test_without_a_model_the_folder_is_the_callers() -> None:
    assert pb_utils.get_model_dir() == str(Path(__file__).parent)


def test_a_model_may_load_while_it_initializes(repo: bls.ModelRepository) -> None:
    repo.define("other", EMPTY)
    repo.define("m", EMPTY + "    def initialize(self, args):\n        assert pb_utils.is_model_ready('other')\n")
    assert repo.ready("m")


@pytest.mark.parametrize(
    ("body", "ready"), [("True", True), ("False", False), ("1", False), ("None", False), ("1/0", False)]
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_model_says_whether_it_is_ready(repo: bls.ModelRepository, kind: str, body: str, ready: bool) -> None:
    repo.define("m", EMPTY + f"    {kind} is_ready(self):\n        return {body}\n")
    assert repo.run(lambda: pb_utils.is_model_ready("m")) is ready
