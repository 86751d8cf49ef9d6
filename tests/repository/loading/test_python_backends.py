"""Backends made of a model.py, which models without one of their own name in their configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from tests.repository.models import HEAD, TEXT, said

BACKEND = f"""
import json, os
import helper
{HEAD}
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_output({{"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]}})
        config.set_max_batch_size(0)
        return config
    def initialize(self, args):
        self.args = args
    def execute(self, requests):
        with open(os.path.join(pb_utils.get_model_dir(), "model.json")) as file:
            told = json.load(file)
        config = json.loads(self.args["model_config"])
        told = [told["text"], helper.WHO, config["backend"], config["runtime"], __name__]
        told.append(self.args["model_name"])
        text = np.array([json.dumps(told)], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for _ in requests]
"""


def backend(folder: Path, name: str, source: str = BACKEND) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "model.py").write_text(source)
    (folder / name / "helper.py").write_text(f"WHO = {name!r}\n")


def backed(repo: bls.ModelRepository, model: str, config: str, text: str = "t", version: int = 1) -> None:
    """A model that is a file of parameters."""
    folder = repo.paths[0] / model / str(version)
    folder.mkdir(parents=True)
    (folder / "model.json").write_text(json.dumps({"text": text}))
    (folder.parent / "config.pbtxt").write_text(config)


@pytest.mark.parametrize("where", ["beside", "within", "given"])
def test_a_backend_runs_the_models_that_name_it(disk: bls.ModelRepository, tmp_path: Path, where: str) -> None:
    root = disk.paths[0]
    folder = {"beside": root.parent / "backends", "within": root / "backends", "given": tmp_path / "mine"}[where]
    backend(folder, "mine")
    given = folder if where == "given" else None
    with bls.ModelRepository(root, backend_directory=given) as repo:
        for name, more in (("a", ""), ("b", ' runtime: "model.py"')):
            backed(repo, name, f'backend: "mine"{more}', text=name)
            record = repo.load(name)
            assert (record.backend, record.state) == ("mine", "READY")
            assert json.loads(said(repo, name)) == [name, "mine", "mine", "model.py", "model", name]
            assert repo.config(name).runtime == "model.py"
        assert {row.name for row in repo.index()} == {"a", "b"}


def test_modules_beside_a_backend_are_its_own(disk: bls.ModelRepository) -> None:
    folder = disk.paths[0].parent / "backends"
    for name in ("one", "two"):
        backend(folder, name)
        backed(disk, name, f'backend: "{name}"')
        (disk.paths[0] / name / "1" / "helper.py").write_text("WHO = 'the model'\n")
        (disk.paths[0] / name / "1" / "model.py").write_text("1 / 0\n")  # the model's own file does not count
        disk.load(name)
    assert [json.loads(said(disk, name))[1] for name in ("one", "two")] == ["one", "two"]


def test_an_edited_backend_runs_once_the_model_is_loaded_again(disk: bls.ModelRepository) -> None:
    folder = disk.paths[0].parent / "backends"
    backend(folder, "mine")
    backed(disk, "m", 'backend: "mine"')
    disk.load("m")
    (folder / "mine" / "helper.py").write_text("WHO = 'edited'\n")
    disk.load("m")
    assert json.loads(said(disk, "m"))[1] == "mine"
    disk.reload("m")
    assert json.loads(said(disk, "m"))[1] == "edited"


def test_inputs_go_where_the_python_backend_has_them(disk: bls.ModelRepository) -> None:
    backend(disk.paths[0].parent / "backends", "mine")
    parameter = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }'
    for name, config, forced in (("a", "", True), ("b", parameter, False)):
        backed(disk, name, f'backend: "mine" {config}')
        disk.load(name)
        model: Any = host_of(disk).find(name)
        assert model.cpu_only is forced


LIBRARY = "backend library 'model.py' for model 'm', searched: "
RUNTIME = f"unable to find Python backend based {LIBRARY}"
REFUSED = {  # the message, and the server's reason where it is not the message's beginning
    "no such backend": (
        'backend: "nobody"',
        "there is no backend 'nobody': available are onnxruntime, python",
        "unable to find backend library for backend 'nobody', try specifying runtime on the model configuration.",
    ),
    "no such runtime": ('backend: "nobody" runtime: "model.py"', RUNTIME, ""),
    "another runtime": (
        'backend: "mine" runtime: "other.py"',
        "unable to find backend library 'other.py' for model 'm', searched: ",
        "",
    ),
    "a path": (
        'backend: "../models"',
        "there is no backend '../models'",
        "unable to find backend library for backend '../models'",
    ),
    "python itself": ('backend: "python" runtime: "model.py"', RUNTIME, ""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_missing_parts_of_a_backend(disk: bls.ModelRepository, case: str) -> None:
    config, message, reason = REFUSED[case]
    backend(disk.paths[0].parent / "backends", "mine")
    (disk.paths[0] / "model.py").write_text(BACKEND)
    backed(disk, "m", config + TEXT)
    with pytest.raises((bls.ConfigError, bls.ModelLoadError)) as caught:
        disk.load("m")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    wanted = f"load failed for model 'm': version 1 is at UNAVAILABLE state: Invalid argument: {reason or message}"
    assert caught.value.reason.startswith(wanted)


def test_errors_of_a_backend_show_its_lines_and_one_of_its_folder_its_name(disk: bls.ModelRepository) -> None:
    backend(disk.paths[0].parent / "backends", "mine", "import helper\n1 / 0\n")
    backed(disk, "m", 'backend: "mine"')
    with pytest.raises(bls.ModelLoadError, match=r"ZeroDivisionError.*model\.py line 2") as caught:
        disk.load("m")
    assert caught.value.record is not None
    assert caught.value.record.frames[-1].model == "m"
    with pytest.raises(bls.BLSError, match=r"backend_directory '.*nowhere': no such folder; give a folder"):
        bls.ModelRepository(backend_directory=disk.paths[0] / "nowhere")
    backed(disk, "backends", 'backend: "python"')  # a model may have that name
    assert "backends" in [row.name for row in disk.index()]
