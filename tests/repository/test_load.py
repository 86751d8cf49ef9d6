"""Loading from folders: load, override, reload, unload, what is listed and what is counted."""

from __future__ import annotations

import json
import os
import traceback
from typing import Any

import pytest

import bls_notebook as bls
from tests.repository.models import TEXT, said, saying, with_method, write

PARAMETER = with_method(
    saying("self.config", "import json\n"),
    "initialize(self, args)",
    "parameters = json.loads(args['model_config'])['parameters']\n"
    "self.config = parameters.get('p', {}).get('string_value', 'none')",
)


def config_with(value: str) -> str:
    output = [{"name": "OUT", "data_type": "TYPE_STRING", "dims": [-1]}]
    return json.dumps({"backend": "python", "output": output, "parameters": {"p": {"string_value": value}}})


@pytest.mark.parametrize("changed", ["", "1/model.py", "1/helper.py", "1/extra.txt", "labels.txt"])
def test_loading_again_loads_what_has_changed(disk: bls.ModelRepository, changed: str) -> None:
    source = saying("(N, helper.N)", "import helper\nN = 0\n", "global N\nN += 1\nhelper.N += 1")
    write(disk.paths[0], "m", source, helper="N = 0\n")
    first = disk.load("m")
    assert said(disk, "m") == "(1, 1)"
    if changed:
        file = disk.paths[0] / "m" / changed
        file.write_text(file.read_text() + "\n" if file.exists() else "new")
        os.utime(file, ns=(1, 1))
    again = disk.load("m")
    assert said(disk, "m") == ("(1, 1)" if changed else "(2, 2)")
    if not changed:
        assert again == first
        disk.reload("m")
        assert said(disk, "m") == "(1, 1)"


def test_a_new_version_folder_is_a_change(disk: bls.ModelRepository) -> None:
    write(disk.paths[0], "m", saying("1", "", ""))
    disk.load("m")
    (disk.paths[0] / "m" / "2").mkdir()
    with pytest.raises(bls.BLSError, match=r"version 2.*file not found"):
        disk.load("m")
    assert said(disk, "m") == "1"


def test_a_config_overrides_and_stays_until_an_unload_or_the_files_change(disk: bls.ModelRepository) -> None:
    write(disk.paths[0], "m", PARAMETER)
    disk.load("m")
    assert said(disk, "m") == "none"
    disk.load("m", config=config_with("given"))
    assert said(disk, "m") == "given"
    disk.load("m")
    assert said(disk, "m") == "given", "as on Triton"
    disk.unload("m")
    disk.load("m")
    assert said(disk, "m") == "none"
    disk.load("m", config=config_with("given"))
    os.utime(disk.paths[0] / "m" / "config.pbtxt", ns=(1, 1))
    disk.load("m")
    assert said(disk, "m") == "none"


@pytest.mark.parametrize(
    "config", ["{", "[]", "5", '"x"', "{'a': 1}", '{"nonsense": 1}', '{"backend": 5}', TEXT, 5, []]
)
def test_a_config_that_does_not_parse_changes_nothing(disk: bls.ModelRepository, config: Any) -> None:
    write(disk.paths[0], "m", PARAMETER)
    disk.load("m")
    with pytest.raises(bls.ConfigError, match=r"^model 'm'") as info:
        disk.load("m", config=config)
    assert (len(str(info.value).splitlines()), said(disk, "m"), disk.load("m").state) == (1, "none", "READY")


def test_files_instead_of_the_disks(disk: bls.ModelRepository) -> None:
    write(disk.paths[0], "m", PARAMETER)
    disk.load("m")
    files = {"file:3/model.py": saying("helper.WHO", "import helper\n").encode(), "file:3/helper.py": b"WHO = 'sent'"}
    record = disk.load("m", config=config_with("x"), files=files)
    assert (record.version, record.source, said(disk, "m")) == (3, "files", "sent")
    assert [(r.version, r.state) for r in disk.index()] == [(1, "UNAVAILABLE"), (3, "READY")]
    disk.reload("m")
    assert said(disk, "m") == "none"
    with pytest.raises(bls.ModelLoadError, match="got files without a config") as info:
        disk.load("m", files={"file:1/model.py": b""})
    assert info.value.reason == "failed to load 'm', failed to poll from model repository"
    assert said(disk, "m") == "none"
    disk.load("new", config=config_with("x"), files={"file:1/model.py": PARAMETER.encode()})  # a model that is nowhere
    assert said(disk, "new") == "x"


def test_files_that_a_server_ignores(disk: bls.ModelRepository) -> None:
    write(disk.paths[0], "m", PARAMETER)
    disk.load("m", config=config_with("x"))

    def warnings(config: str, version: int = 1) -> tuple[str, ...]:
        files = {f"file:{version}/model.py": saying("'sent'").encode()}
        return disk.load("m", config=config, files=files).warnings

    (warning,) = warnings(config_with("x"))
    assert warning.startswith("model 'm', version 1: a server ignores these files and keeps the code")
    assert said(disk, "m") == "sent"
    groups = {"instance_group": [{"count": 2, "kind": "KIND_CPU"}]}
    assert warnings(json.dumps({**json.loads(config_with("x")), **groups})) == (warning,)
    assert warnings(config_with("y")) == warnings(config_with("y"), 2) == ()
    disk.unload("m")
    assert warnings(config_with("y"), 2) == ()


def test_a_cells_model_is_loaded_again_from_its_cell(repo: bls.ModelRepository) -> None:
    repo.define("m", PARAMETER, TEXT)
    repo.unload("m")
    assert not repo.ready("m")
    record = repo.load("m")
    assert (record.source, said(repo, "m")) == ("cell", "none")
    repo.load("m", config=config_with("given"))
    assert said(repo, "m") == "given"
    repo.reload("m")
    assert said(repo, "m") == "none"


def test_a_cell_goes_before_a_folder_of_the_same_name(disk: bls.ModelRepository) -> None:
    write(disk.paths[0], "m", saying("'disk'"))
    disk.load("m")
    disk.define("m", saying("'cell'"), TEXT)
    assert (said(disk, "m"), [(r.name, r.source) for r in disk.index()]) == ("cell", [("m", "cell")])
    assert (disk.paths[0] / "m" / "1" / "model.py").read_text() == saying("'disk'")


def test_unloading(disk: bls.ModelRepository) -> None:
    write(disk.paths[0], "m", saying("1"))
    disk.unload("nobody")
    disk.unload("m")
    disk.load("m")
    disk.unload("m", unload_dependents=True)
    assert not disk.ready("m")
    failed = "Model m - Error when running inference: "
    assert said(disk, "m") == f"{failed}Request for unknown model: 'm' has no available versions"
    (row,) = disk.index()
    assert (row.name, row.state, row.reason) == ("m", "UNAVAILABLE", "unloaded")
    disk.unload("m")
    disk.load("m")
    assert said(disk, "m") == "1"


def test_of_several_versions_all_load_or_none(disk: bls.ModelRepository) -> None:
    config = TEXT + " version_policy: { all: {} }"
    write(disk.paths[0], "m", saying("'one'"), config, 1)
    write(disk.paths[0], "m", saying("'two'"), config, 2)
    disk.load("m")
    write(disk.paths[0], "m", "1 / 0\n", config, 3)
    with pytest.raises(bls.ModelLoadError, match="version 3"):
        disk.load("m")
    assert ([said(disk, "m", v) for v in (1, 2)], said(disk, "m")) == (["one", "two"], "two")
    assert not disk.ready("m", 3)


def test_asking_for_what_is_not_loaded(disk: bls.ModelRepository) -> None:
    write(disk.paths[0], "m", saying("1"))
    for ask in (disk.config, disk.model, disk.statistics):
        with pytest.raises(bls.ModelNotFoundError, match="'m' is not loaded; load it first: `repo"):
            ask("m")
        with pytest.raises(bls.ModelNotFoundError, match=r"'nobody' is not loaded; .* models in service: none"):
            ask("nobody")
    for version in ("1", 1.0, True, []):
        with pytest.raises(bls.BLSError):
            disk.ready("m", version)  # type: ignore[arg-type]


def test_arguments_of_initialize(disk: bls.ModelRepository) -> None:
    source = saying("self.args", "import json\n")
    source = with_method(source, "initialize(self, args)", "self.args = json.dumps(args)")
    write(disk.paths[0], "m", source, version=3)
    disk.load("m")
    args = json.loads(said(disk, "m"))
    assert all(isinstance(v, str) for v in args.values())
    config = json.loads(args.pop("model_config"))
    assert (config["name"], config["output"][0]["name"]) == ("m", "OUT")
    assert args == {
        "model_instance_kind": "CPU", "model_instance_name": "m_0", "model_instance_device_id": "0",
        "model_repository": str(disk.paths[0] / "m"), "model_version": "3", "model_name": "m",
    }  # fmt: skip


def test_the_last_failure_is_kept_for_the_debugger(repo: bls.ModelRepository) -> None:
    assert repo.last_failure is None
    repo.define("m", saying("1 / 0"), TEXT)
    repo.infer("m", {})
    failure = repo.last_failure
    assert isinstance(failure, ZeroDivisionError)
    *_, (frame, _) = traceback.walk_tb(failure.__traceback__)
    assert "requests" in frame.f_locals
