"""Models on disk: which folders are models, which are versions, and which versions are served."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from tests.repository.models import TEXT, said, saying, with_method, write

VERSION = with_method(saying("self.version"), "initialize(self, args)", "self.version = args['model_version']")


def rows(repo: bls.ModelRepository) -> list[tuple[str, int, str]]:
    return [(r.name, r.version, r.state) for r in repo.index()]


def test_an_empty_repository(disk: bls.ModelRepository, repo: bls.ModelRepository) -> None:
    for each in (disk, repo):
        assert (each.index(), each.ready("nobody")) == ([], False)
        with pytest.raises(bls.ModelNotFoundError, match="'nobody' is not in the repository"):
            each.load("nobody")


def test_models_are_listed_before_they_are_loaded_and_other_folders_never(disk: bls.ModelRepository) -> None:
    root = disk.paths[0]
    write(root, "b", VERSION)
    write(root, "a", VERSION)
    (root / ".hidden" / "1").mkdir(parents=True)
    (root / "__pycache__").mkdir()
    (root / "file.txt").write_text("x")
    for name in ("x", "1x", "01", "0", "-1", "1.0", "\u00b2", "\u0661", ".1", "1 "):  # no versions
        write(root, "b", VERSION, version=name)
    (root / "b" / "2").write_text("a file")
    assert rows(disk) == [("a", 1, "UNAVAILABLE"), ("b", 1, "UNAVAILABLE")]
    assert [r.reason for r in disk.index()] == ["not loaded", "not loaded"]
    with pytest.raises(bls.ModelNotFoundError, match=r"'nobody' is not in the repository .*its models: a, b"):
        disk.load("nobody")
    disk.load("b")
    assert rows(disk)[1] == ("b", 1, "READY")
    assert [Path(r.source).resolve() for r in disk.index()] == [root / "a", root / "b"]


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", [10]),
        ("version_policy: { latest: { num_versions: 2 } }", [2, 10]),
        ("version_policy: { latest: { num_versions: 9 } }", [1, 2, 10]),
        ("version_policy: { all: {} }", [1, 2, 10]),
        ("version_policy: { specific: { versions: [1, 10] } }", [1, 10]),
        ("version_policy: { specific: { versions: [2] } }", [2]),
    ],
)
def test_version_policies(disk: bls.ModelRepository, policy: str, served: list[int]) -> None:
    for version in (1, 2, 10):
        write(disk.paths[0], "m", VERSION, TEXT + "\n" + policy, version)
    record = disk.load("m")
    assert (record.version, rows(disk)) == (served[-1], [("m", v, "READY") for v in served])
    for version in (1, 2, 3, 10):
        assert disk.ready("m", version) is (version in served)
        if version in served:
            assert said(disk, "m", version) == str(version)
        else:
            assert said(disk, "m", version).endswith("Model 'm' is not ready.")
    assert said(disk, "m") == str(served[-1])


def test_a_policy_that_picks_no_version(disk: bls.ModelRepository) -> None:
    write(disk.paths[0], "m", VERSION, TEXT + " version_policy: { specific: { versions: [7] } }")
    with pytest.raises(
        bls.ModelLoadError, match=r"^model 'm': no version to load in .*: its version folders: 1; expected"
    ):
        disk.load("m")
    assert rows(disk) == [("m", 1, "UNAVAILABLE")]


def test_a_model_without_versions_or_without_a_file(disk: bls.ModelRepository) -> None:
    root = disk.paths[0]
    for name, words in (("bare", "version folders: none"), ("empty", r"'empty'.*Python model file not found")):
        (root / name / ("1" if name == "empty" else "")).mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(f'backend: "python" {TEXT}')
        with pytest.raises(bls.ModelLoadError, match=words):
            disk.load(name)
    assert {r.state for r in disk.index()} == {"UNAVAILABLE"}


def test_several_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, f"m_{name}", saying(repr(name)))
        write(tmp_path / name, "both", saying(repr(name)))
    with bls.ModelRepository(tmp_path / "one", str(tmp_path / "two")) as repo:
        assert repo.paths == (tmp_path / "one", tmp_path / "two")
        for name in ("one", "two"):
            repo.load(f"m_{name}")
            assert said(repo, f"m_{name}") == name
        with pytest.raises(bls.BLSError, match=r"'both' is in 2 folders of the repository: .*one.*two.*unique"):
            repo.load("both")
    with bls.ModelRepository([tmp_path / "one"], tmp_path / "two") as repo:
        assert repo.paths == (tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("path", ["nowhere", 5, None, b"x", "a\0b", ["nowhere"], [None]], ids=ascii)
def test_a_path_that_is_no_folder(path: Any) -> None:
    with pytest.raises(bls.BLSError) as info:
        bls.ModelRepository(path)
    assert "\n" not in str(info.value)


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_symbolic_links_are_followed_to_a_model_file_of_another_name(disk: bls.ModelRepository, tmp_path: Path) -> None:
    config = TEXT + ' default_model_filename: "mine.py"'
    folder = write(tmp_path / "elsewhere", "target", saying("'linked'"), config)
    (folder / "model.py").rename(folder / "mine.py")
    (disk.paths[0] / "link").symlink_to(tmp_path / "elsewhere" / "target")
    disk.load("link")
    assert said(disk, "link") == "linked"
