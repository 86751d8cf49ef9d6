"""`export_changes`: only what a cell changed is shown and written, and everything else stays as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.repository.repository import define_cell
from bls_notebook.shipping import export_changes
from tests.magics.conftest import Cells

CODE = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return []
"""
CONFIG = """# the shapes of release 7
backend: "python"
max_batch_size: 8
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in ("one", "other"):
        version = tmp_path / "models" / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(CODE)
        (version / "weights.bin").write_bytes(b"weights")
        (version.parent / "config.pbtxt").write_text(CONFIG)
    (tmp_path / "models" / "one" / "1" / "model.py").chmod(0o755)
    return tmp_path / "models"


@pytest.fixture
def repo(models: Path) -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository(models) as repo:
        repo.load("one")
        repo.load("other")
        yield repo


def state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    files = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_mode)
        for file in files
    }


def define(repo: bls.ModelRepository, name: str, code: str, **fields: Any) -> None:
    """Define a model as a cell with options does."""
    define_cell(repo, name, code, None, 1, (), None, fields or None, {})


def test_only_the_changed_file_of_the_changed_model_is_written(repo: bls.ModelRepository, models: Path) -> None:
    define(repo, "one", CODE.replace("[]", "[1]"))
    before = state(models)
    shown = export_changes(repo=repo)
    assert state(models) == before
    assert [(each.name, [change.file for change in each.changes]) for each in shown.models] == [("one", ["1/model.py"])]
    assert "1 of 2 models changed; nothing is written" in render(shown).text
    assert ("-", "        return []") in shown.models[0].changes[0].lines
    assert ("+", "        return [1]") in shown.models[0].changes[0].lines

    written = export_changes(write=True, repo=repo)
    assert written.models == shown.models
    after = state(models)
    assert {path for path in after if after[path] != before.get(path)} == {"one/1/model.py"}
    assert after["one/1/model.py"][0].decode() == CODE.replace("[]", "[1]")
    assert after["one/1/model.py"][2] == before["one/1/model.py"][2]  # it stays executable
    assert export_changes(repo=repo).models == ()
    assert not list(models.rglob(".bls-*"))


def test_a_changed_configuration_is_shown_and_comments_of_an_equal_one_stay(
    repo: bls.ModelRepository, models: Path
) -> None:
    define(repo, "one", CODE, max_batch_size=4)
    define(repo, "other", CODE)
    (changed,) = export_changes(write=True, repo=repo).models
    (change,) = changed.changes
    assert (changed.name, change.file) == ("one", "config.pbtxt")
    assert (change.added, change.removed) == (1, 1)
    assert ("-", "max_batch_size: 8") in change.lines
    assert (models / "one" / "config.pbtxt").read_text() == CONFIG.replace("size: 8", "size: 4")
    assert (models / "other" / "config.pbtxt").read_text() == CONFIG
    with bls.ModelRepository(models) as again:
        again.load("one")
        assert again.config("one").max_batch_size == 4


def test_templates_in_a_configuration_stay(models: Path) -> None:
    text = CONFIG.replace("max_batch_size: 8", "max_batch_size: ${batch}")
    (models / "one" / "config.pbtxt").write_text(text)
    with bls.ModelRepository(models, fill={"batch": "8"}) as repo:
        define(repo, "one", CODE + "# changed\n")
        export_changes(write=True, repo=repo)
    assert (models / "one" / "config.pbtxt").read_text() == text


def test_a_new_model_gets_a_folder_and_other_versions_are_named(repo: bls.ModelRepository, models: Path) -> None:
    (models / "one" / "3").mkdir()
    (models / "one" / "3" / "model.py").write_text(CODE)
    define(repo, "one", CODE + "# changed\n")
    define(repo, "new", CODE, max_batch_size=2)
    found = {each.name: each for each in export_changes(write=True, repo=repo).models}
    assert found["one"].notes == ("the folder also has version 3, which a server serves by default",)
    assert found["new"].notes == ()
    assert (models / "new" / "1" / "model.py").read_text().startswith("import triton")
    assert 'backend: "python"' in (models / "new" / "config.pbtxt").read_text()
    assert not (models / "README.md").exists()


def test_a_model_that_a_server_cannot_run_is_named_and_nothing_is_written(
    repo: bls.ModelRepository, models: Path
) -> None:
    define(repo, "one", CODE + "# changed\n")
    define(repo, "other", "import bls_notebook\n" + CODE)
    before = state(models)
    found = {each.name: each for each in export_changes(repo=repo).models}
    assert "imports bls_notebook" in found["other"].notes[0]
    with pytest.raises(bls.BLSError, match=r"(?s)nothing was written, .*imports bls_notebook"):
        export_changes(write=True, repo=repo)
    assert state(models) == before
    assert [each.name for each in export_changes("one", write=True, repo=repo).models] == ["one"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs folders that cannot be written")
def test_a_folder_that_cannot_be_written_changes_nothing(repo: bls.ModelRepository, models: Path) -> None:
    define(repo, "one", CODE + "# changed\n")
    define(repo, "other", CODE + "# changed\n")
    before = state(models)
    (models / "other" / "1").chmod(0o500)
    try:
        with pytest.raises(bls.BLSError, match="cannot be written"):
            export_changes(write=True, repo=repo)
        assert state(models) == before
    finally:
        (models / "other" / "1").chmod(0o700)


def test_a_repository_without_a_folder_needs_one(tmp_path: Path) -> None:
    with bls.ModelRepository() as repo:
        define(repo, "one", CODE, max_batch_size=2)
        with pytest.raises(bls.BLSError, match="the repository has no folder on disk; name one"):
            export_changes(repo=repo)
        export_changes(place=tmp_path / "mine", write=True, repo=repo)
        assert (tmp_path / "mine" / "one" / "1" / "model.py").exists()


def test_the_verb_shows_first_and_writes_on_request(cells: Cells, models: Path) -> None:
    cells(f"%tritonrepo use {models}\n%tritonrepo load one")
    cells(f"%%tritonmodel one\n{CODE}# changed")
    assert "+ # changed" in cells(f"%tritonrepo export {models} --changed").text
    assert "# changed" not in (models / "one" / "1" / "model.py").read_text()
    assert "written" in cells(f"%tritonrepo export {models} --changed --write").text
    assert "# changed" in (models / "one" / "1" / "model.py").read_text()
    assert "--write belongs to --changed" in cells(f"%tritonrepo export {models} --write").stderr
