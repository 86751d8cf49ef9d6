"""An export: what is in it, what is refused, and that it is the same again from what it wrote."""

from __future__ import annotations

import errno
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.__main__ import main
from bls_notebook.backends import ENVIRONMENT_MARKER
from bls_notebook.repository.call_order import load_with_callees
from bls_notebook.repository.config import parse_config
from bls_notebook.repository.repository import define_cell
from bls_notebook.shipping import exporter
from bls_notebook.shipping.exports import folder_writer as writing
from tests.backends.processes.test_environments import make
from tests.shipping.fake_tritonserver import linux

SAMPLES = Path(__file__).parents[2] / "model_repository"
CONFIG = {
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}],
}
HEAD = "import triton_python_backend_utils as pb_utils\n"
TWICE = f"""{HEAD}
class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x)]) for x in inputs]
"""
CALLER = f"""{HEAD}
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        name = chr(116) + "wice"  # which only a call shows
        inputs, wanted = request.inputs(), ["Y"]
        call = pb_utils.InferenceRequest(model_name=name, inputs=inputs, requested_output_names=wanted)
        return pb_utils.InferenceResponse(call.exec().output_tensors())
"""


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repo:
        repo.define("twice", TWICE, CONFIG)
        repo.define("caller", CALLER, CONFIG)
        yield repo


@linux
@pytest.mark.parametrize("written", ["by an argument", "as a path", "with another path"])
def test_an_environment_is_exported_with_the_path_of_its_archive(
    repo: bls.ModelRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    environment = tmp_path / "environment"
    make(environment)
    (environment / ENVIRONMENT_MARKER).touch()
    (environment / "archive").write_text("packed")
    monkeypatch.setattr(exporter, "packed_environment", lambda folder: folder / "archive")
    path = {"by an argument": "", "as a path": environment, "with another path": "/none"}[written]
    parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}'
    config = f"""# mine
    input {{ name: "X" data_type: TYPE_FP32 dims: [1] }} output {{ name: "Y" data_type: TYPE_FP32 dims: [1] }}
    {parameter if path else ""}"""
    repo.define("twice", f"import numpy\n{TWICE}", config, environment=None if path == environment else environment)
    record = bls.export(tmp_path / "ship", "twice", repo=repo)
    assert (tmp_path / "ship" / "twice" / "environment.tar.gz").read_text() == "packed"
    text = (tmp_path / "ship" / "twice" / "config.pbtxt").read_text()
    parameters = parse_config(text, model="twice").parameters
    assert parameters["EXECUTION_ENV_PATH"].string_value == "$$TRITON_MODEL_DIRECTORY/environment.tar.gz"
    assert str(environment) not in text
    assert text.startswith("# mine") == (written != "with another path")
    assert record.requirements == ()  # the archive has the packages


@pytest.mark.parametrize(
    ("source", "more"),
    [
        ("'twice'", {}),
        ("NAMES[0]\nNAMES = ['twice']", {}),
        ("self.callee", {"parameters": {"callee": {"string_value": "twice"}}}),
    ],
)
def test_models_named_in_code_or_configuration_are_exported(
    repo: bls.ModelRepository, tmp_path: Path, source: str, more: dict[str, Any]
) -> None:
    name, _, rest = source.partition("\n")
    repo.define("asker", CALLER.replace('chr(116) + "wice"', name) + rest, {**CONFIG, **more})
    bls.export(tmp_path / "all", repo=repo)
    with bls.ModelRepository(tmp_path / "all") as again:
        load_with_callees(again, ["asker"])
        record = bls.export(tmp_path / "out", repo=again)
    assert [(each.name, each.calls) for each in record.models] == [("asker", ("twice",)), ("twice", ())]


def files_in(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_called_models_are_exported(repo: bls.ModelRepository, tmp_path: Path) -> None:
    assert repo.infer("caller", {"X": [3.0]})["Y"].as_numpy() == [6.0]
    record = bls.export(tmp_path / "out", "caller", repo=repo)
    assert [(m.name, m.calls) for m in record.models] == [("caller", ("twice",)), ("twice", ())]
    assert record.entries == ("caller",)
    assert (tmp_path / "out/caller/1/model.py").read_text() == CALLER
    assert json.loads((tmp_path / "out" / writing.MANIFEST).read_text())["files"].keys() == {
        *("caller/config.pbtxt", "caller/1/model.py", "twice/config.pbtxt", "twice/1/model.py", "README.md")
    }
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("names", [("digit_reader",), ()], ids=["one", "all"])
def test_an_export_of_an_export_is_identical(names: tuple[str, ...], tmp_path: Path) -> None:
    with bls.ModelRepository(SAMPLES) as repo:
        digits = ("digit_reader", "digit_preprocess", "digit_classifier", "digit_expert")
        for name in (*digits, "add_sub", "bls_sync"):
            repo.load(name)
        repo.define("cell", TWICE, CONFIG)
        bls.export(tmp_path / "a", *names, repo=repo)
    with bls.ModelRepository(tmp_path / "a", control_mode="none") as again:
        bls.export(tmp_path / "b", *names, repo=again)
        bls.export(tmp_path / "b.zip", *names, repo=again)
    first, second = files_in(tmp_path / "a"), files_in(tmp_path / "b")
    assert first == second
    assert len({name.partition("/")[0] for name in first if "/" in name}) == (4 if names else 7)
    assert "scikit-learn==" in first["requirements.txt"].decode()
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    assert packed == {name: data for name, data in first.items() if name != writing.MANIFEST}


def test_a_configuration_passed_to_load_is_exported(repo: bls.ModelRepository, tmp_path: Path) -> None:
    repo.load("twice", config={**CONFIG, "max_batch_size": 8, "dynamic_batching": {}})
    bls.export(tmp_path / "out", "twice", repo=repo)
    with bls.ModelRepository(tmp_path / "out") as again:
        again.load("twice")
        assert again.config("twice") == repo.config("twice")
        assert again.infer("twice", {"X": np.ones((3, 1), np.float32)})["Y"].shape() == [3, 1]


def test_a_configuration_is_exported_as_written_or_completed(tmp_path: Path) -> None:
    with bls.ModelRepository(SAMPLES) as repo:
        repo.load("add_sub")
        given = (SAMPLES / "add_sub/config.pbtxt").read_text()
        bls.export(tmp_path / "given", repo=repo)
        bls.export(tmp_path / "whole", completed=True, repo=repo)
        assert (tmp_path / "given/add_sub/config.pbtxt").read_text() == given
        assert "instance_group" in (tmp_path / "whole/add_sub/config.pbtxt").read_text()


def test_an_ensemble_is_exported_with_its_steps(repo: bls.ModelRepository, tmp_path: Path) -> None:
    step = {"model_name": "twice", "model_version": -1, "input_map": {"X": "X"}, "output_map": {"Y": "Y"}}
    repo.set_config("both", {**CONFIG, "platform": "ensemble", "ensemble_scheduling": {"step": [step]}})
    record = bls.export(tmp_path / "out", "both", repo=repo)
    assert [(each.name, each.backend) for each in record.models] == [("both", ""), ("twice", "python")]
    with bls.ModelRepository(tmp_path / "out") as again:
        again.load("both")
        assert again.infer("both", {"X": [3.0]})["Y"].as_numpy() == [6.0]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (TWICE.replace("2 * x", "factor * x"), "notebook variable 'factor'"),
        (TWICE.replace("2 * x", "faktor * x"), "'faktor' is not defined in the model"),
        (f"import bls_notebook as bls\n{TWICE}", "model 'unfit', 1/model.py, line 1: it imports"),
    ],
)
def test_models_that_would_fail_on_a_server_are_refused(
    repo: bls.ModelRepository, tmp_path: Path, source: str, told: str
) -> None:
    define_cell(repo, "unfit", source, CONFIG, 1, ["factor"], None)
    with pytest.raises(bls.BLSError, match="nothing was written") as caught:
        bls.export(tmp_path / "out", repo=repo)
    assert told in str(caught.value)
    assert not list(tmp_path.iterdir())


@linux
def test_links_are_followed_and_modes_kept(tmp_path: Path) -> None:
    real, model = tmp_path / "real", tmp_path / "models/linked"
    (real / "weights").mkdir(parents=True)
    (real / "model.py").write_text(TWICE)
    (real / "weights/a.bin").write_bytes(b"w")
    tool = real / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (tmp_path / "more").mkdir()
    (tmp_path / "more/b.bin").write_bytes(b"m")
    (real / "more").symlink_to(tmp_path / "more")
    (real / "around").symlink_to(model)
    model.mkdir(parents=True)
    (model / "1").symlink_to(real)
    (model / "config.pbtxt").write_text(
        'input { name: "X" data_type: TYPE_FP32 dims: 1 } output { name: "Y" data_type: TYPE_FP32 dims: 1 }'
    )
    with bls.ModelRepository(tmp_path / "models") as repo:
        repo.load("linked")
        bls.export(tmp_path / "out", repo=repo)
        (tmp_path / "more" / os.fsdecode(b"\xff.bin")).touch()
        with pytest.raises(bls.BLSError, match=r"linked/1/more/\\udcff.bin: archives need file names in UTF-8"):
            bls.export(tmp_path / "out.zip", repo=repo)
    assert not (tmp_path / "out.zip").exists()
    exported = tmp_path / "out/linked/1"
    names = {p.relative_to(exported).as_posix() for p in exported.rglob("*") if p.is_file()}
    assert names == {"model.py", "weights/a.bin", "tool", "more/b.bin"}
    assert os.access(exported / "tool", os.X_OK)
    assert not os.access(exported / "model.py", os.X_OK)


def test_models_that_are_not_loaded_are_named(repo: bls.ModelRepository, tmp_path: Path) -> None:
    with pytest.raises(bls.BLSError, match="'twise' is not loaded; did you mean"):
        bls.export(tmp_path / "out", "twise", repo=repo)
    repo.infer("caller", {"X": [3.0]})
    longer = {**CONFIG["input"][0], "dims": [-1, 3]}
    repo.define("long", TWICE, {**CONFIG, "input": [longer]})
    written = bls.export(tmp_path / "long", "long", repo=repo)
    assert written.models[0].shapes == ("X:1,3",)
    guide = (tmp_path / "long/README.md").read_text()
    assert "perf_analyzer -m long --shape X:1,3\n" in guide
    assert "sends random data of the smallest shapes: `--shape` gives it yours" in guide
    repo.unload("long")
    repo.unload("twice")
    record = bls.export(tmp_path / "out", repo=repo)
    assert record.models[0].absent == ("twice",)
    assert "caller calls twice, which is not loaded here and was left out" in (tmp_path / "out/README.md").read_text()


def write(path: Path, text: str = "mine") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda out: write(out / "notes.txt"), "contains 'notes.txt', which no export wrote"),
        (lambda out: write(out / "twice/1/model.py"), "'twice/1/model.py' in .* was changed since"),
        (lambda out: (out / "link").symlink_to("/etc/passwd"), "contains 'link'"),
        (lambda out: (out / writing.MANIFEST).write_text("[]"), "which no export wrote"),
    ],
)
def test_an_export_overwrites_only_exported_files(
    repo: bls.ModelRepository, tmp_path: Path, spoil: Any, told: str
) -> None:
    out = tmp_path / "out"
    bls.export(out, repo=repo)
    write(out / "twice/1/__pycache__/model.pyc")  # of a server that ran it
    bls.export(out, "caller", repo=repo)
    assert not (out / "twice").exists()
    bls.export(out, repo=repo)
    spoil(out)
    before = files_in(out)
    with pytest.raises(bls.BLSError, match=told):
        bls.export(out, "caller", repo=repo)
    assert files_in(out) == before


def test_other_files_and_archives_are_not_overwritten(repo: bls.ModelRepository, tmp_path: Path) -> None:
    write(tmp_path / "out")
    with pytest.raises(bls.BLSError, match="is not a folder"):
        bls.export(tmp_path / "out", repo=repo)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("mine", "mine")
    with pytest.raises(bls.BLSError, match="was not written by an export"):
        bls.export(tmp_path / "x.zip", repo=repo)


@pytest.mark.parametrize("name", ["out", "out.zip"])
def test_a_full_disk_leaves_the_old_export(
    repo: bls.ModelRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    bls.export(tmp_path / name, "twice", repo=repo)
    before = files_in(tmp_path)

    class Full(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():  # the disk is full after the first byte
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().read(1)

    monkeypatch.setattr(writing, "_opened", lambda content: Full(b"xy"))
    with pytest.raises(bls.BLSError, match="No space left on device"):
        bls.export(tmp_path / name, repo=repo)
    monkeypatch.undo()
    assert files_in(tmp_path) == before


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(SAMPLES), str(tmp_path / "out"), "add_sub", "--for", "docker", "--json"]) == 0
    assert (tmp_path / "out" / "Dockerfile").is_file()
    assert json.loads(capsys.readouterr().out)["models"][0]["name"] == "add_sub"
    several = ["add_sub", "--for", "compose", "--replicas", "2"]
    assert main(["export", str(SAMPLES), str(tmp_path / "out"), *several]) == 0
    assert "server triton-2" in (tmp_path / "out" / "haproxy.cfg").read_text()
    assert "runs 2 servers behind HAProxy" in (tmp_path / "out" / "README.md").read_text()
    assert main(["export", str(SAMPLES), str(tmp_path), "add_sub"]) == 2
    assert "which no export wrote" in capsys.readouterr().err


def test_a_stub_cannot_be_exported(tmp_path: Path) -> None:
    tensors = "input { %s } output { %s }" % (('name: "X" data_type: TYPE_FP32 dims: 1',) * 2)
    write(tmp_path / "models/engine/config.pbtxt", f'platform: "tensorrt_plan" {tensors}')
    repo, _ = bls.try_repository(tmp_path / "models", tell=lambda line: None)
    with repo, pytest.raises(bls.BLSError, match="is a stub, which cannot run on a server"):
        bls.export(tmp_path / "out", repo=repo)
