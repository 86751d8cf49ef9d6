"""Names of models, versions and files: nothing may lead out of its folder."""

from __future__ import annotations

import contextlib
import posixpath
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.engine.errors import ModelLoadError
from bls_notebook.repository.source.names import check_model_name, file_override_path
from tests.repository.models import TEXT, saying, write

BAD_NAMES = [
    "", ".", "..", "../x", "a/../b", "/abs", "a/b", "a\\b", "C:", "C:\\x", "a\0b", "a\nb", "a\x7f", ".hidden", " a",
    "a ", "a*", "a?", 'a"', "a<b", "a|b", "x" * 256, "\u00e9" * 128, "\ud800", None, 5, b"a", ["a"], Path("a"),
]  # fmt: skip
GOOD_NAMES = [
    "a", "add_sub", "a.b", "a-b", "a b", "A" * 255, "\u00e9" * 127, "\u6a21\u578b", "1", "numpy", "model", "__x__"
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_every_call_refuses_a_bad_name_in_one_clear_line(repo: bls.ModelRepository, name: Any) -> None:
    calls: list[Any] = [repo.load, repo.reload, repo.config, repo.record, repo.statistics]
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
        with pytest.raises(ModelLoadError, match=r"^load failed for model .*: Invalid argument: Invalid stub name"):
            disk._server._loader.load_by_model(name, "", None)
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
