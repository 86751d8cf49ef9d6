"""Models on disk: which folders are models and versions, which are served, and which names may be used."""

from __future__ import annotations

import contextlib
import os
import posixpath
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook import pb_utils
from bls_notebook.repository.source.names import check_model_name, file_override_path
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
            assert said(disk, "m", version).endswith(f"'m' version {version} is not found")
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
    with bls.ModelRepository(tmp_path / "one", tmp_path / "one") as repo:
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


BAD_NAMES = [
    "", ".", "..", "../x", "a/../b", "/abs", "a/b", "a\\b", "C:", "C:\\x", "a\0b", "a\nb", "a\x7f", ".hidden", " a",
    "a ", "a*", "a?", 'a"', "a<b", "a|b", "x" * 256, "\u00e9" * 128, "\ud800", None, 5, b"a", ["a"], Path("a"),
]  # fmt: skip
GOOD_NAMES = [
    "a", "add_sub", "a.b", "a-b", "a b", "A" * 255, "\u00e9" * 127, "\u6a21\u578b", "1", "numpy", "model", "__x__"
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_every_call_refuses_a_bad_name_in_one_clear_line(repo: bls.ModelRepository, name: Any) -> None:
    calls: list[Any] = [repo.load, repo.reload, repo.config, repo.model, repo.statistics]
    calls += [lambda name: repo.define(name, saying("1"), TEXT), lambda name: repo.set_config(name, TEXT)]
    if isinstance(name, str):
        repo.unload(name)  # of a model that cannot exist, it is no error
    else:
        calls.append(repo.unload)
    for call in calls:
        with pytest.raises(bls.InvalidNameError, match=r"^model name") as info:
            call(name)
        assert "\n" not in str(info.value)
        assert len(str(info.value)) < 300
    assert repo.index() == []
    for character in '*?<>"|\\':  # which neither folders nor shells accept
        with pytest.raises(bls.InvalidNameError, match="cannot be used: it contains") as info:
            repo.load(f"a{character}b")
        assert info.value.reason == "Invalid argument: Invalid stub name: contains invalid characters"


@pytest.mark.parametrize("name", [f"a{character}b" for character in ";&$`'()[]{}~!#"])
def test_python_models_cannot_have_shell_characters_in_their_names(
    repo: bls.ModelRepository, name: str, tmp_path: Path
) -> None:
    with pytest.raises(bls.InvalidNameError, match="which has a meaning in a shell") as info:
        repo.define(name, saying("1"), TEXT)
    assert repr(name[1]) in str(info.value)
    write(tmp_path, name, saying("1"))
    with bls.ModelRepository(tmp_path) as disk:
        with pytest.raises(bls.InvalidNameError, match="which has a meaning in a shell"):
            disk.load(name)
        reason = "load failed for model .*: Invalid argument: Invalid stub name"
        with pytest.raises(pb_utils.TritonModelException, match=reason):
            disk._server.load_for_model("a_0", name, "", None)
    with pytest.raises(bls.InvalidNameError, match="of an instance group"):
        repo.define(
            "m",
            saying("1"),
            TEXT + f'\ninstance_group {{ kind: KIND_CPU name: "{chr(92) * (name[1] in chr(39))}{name}" }}',
        )
    assert [row.state for row in repo.index()] == ["UNAVAILABLE"] * 2
    with pytest.raises(bls.BLSError) as caught:  # no process is started for an ensemble, but it needs a step
        repo.define(name, "", f'platform: "ensemble"\n{TEXT}\nensemble_scheduling {{ }}')
    assert not isinstance(caught.value, bls.InvalidNameError)


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_model_of_a_good_name_works(repo: bls.ModelRepository, name: str) -> None:
    repo.define(name, saying("'fine'"), TEXT)
    assert repo.infer(name, {})["OUT"].as_numpy()[0] == b"fine"
    assert repo.ready(name)
    assert check_model_name(name) == name


@given(st.text())
def test_any_text_names_a_plain_folder_or_a_file_in_it_or_is_refused(text: str) -> None:
    with contextlib.suppress(bls.InvalidNameError):
        check_model_name(text)
        assert PurePosixPath(text).parts == (text,)
        assert text not in (".", "..")
        assert len(text.encode()) <= 255
    with contextlib.suppress(bls.InvalidNameError):
        path = file_override_path("file:" + text)
        root = PurePosixPath("/repository/model")
        assert root in PurePosixPath(posixpath.normpath(root / path)).parents


@pytest.mark.parametrize("version", [0, -1, 2**63, True, "1", 1.0, None])
def test_a_bad_version(repo: bls.ModelRepository, version: Any) -> None:
    with pytest.raises(bls.InvalidNameError, match=r"^model version: got .*, expected a whole number from 1"):
        repo.define("m", saying("1"), TEXT, version=version)
    assert repo.index() == []


@pytest.mark.parametrize(
    "name",
    [
        "1/model.py", "file:", "file:model.py", "file:../x/model.py", "file:1/../../x", "file:/model.py",
        "file:/../1/model.py", "file:1/..", "file:1/a\\b", "file:1/a\0b", "file:C:/x", "file:1/..\\x",
        "FILE:1/model.py", "", "file:1/a:b", None, 5, b"file:1/m",
    ],
    ids=ascii,
)  # fmt: skip
def test_a_file_outside_is_refused_and_one_inside_taken(name: Any) -> None:
    with pytest.raises(bls.InvalidNameError, match=r"^file override .* cannot be used: expected 'file:<version>/"):
        file_override_path(name)
    for path in ("1/model.py", "12/a/b.bin", "1/\u00e9.txt", "/1/model.py", "///1/model.py", "/etc/x"):
        assert str(file_override_path(f"file:{path}")) == path.lstrip("/")  # relative to the model's folder
