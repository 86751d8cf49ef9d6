"""`assert_same_answers`: what is written, what is compared, and files that are not what they should be."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook import pb_utils
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.testing import RepositoryUnderTest

CONFIG = """
input {{ name: "X" data_type: TYPE_{0} dims: [ -1 ] }} output {{ name: "Y" data_type: TYPE_{0} dims: [ -1 ] }}
"""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RepositoryUnderTest]:
    monkeypatch.delenv("CI", raising=False)
    with RepositoryUnderTest(here=tmp_path) as repository:
        yield repository


def asked(repo: RepositoryUnderTest, array: Any, datatype: str = "FP32") -> Any:
    """A response that holds an array, or an error."""
    answer = array if isinstance(array, str) else (lambda request: {"Y": request.inputs()[0]})
    with repo.stub("echo", answer, config=CONFIG.format("STRING" if datatype == "BYTES" else datatype)):
        return repo.infer("echo", {"X": np.zeros(1, np.float32) if isinstance(array, str) else array})


def values(datatype: str, size: int) -> Any:
    random = np.random.default_rng(size)
    if datatype == "BYTES":
        texts = np.empty(size, object)
        texts[:] = [bytes(random.integers(0, 256, n % 7, np.uint8)) for n in range(size)]
        return texts
    if datatype == "BF16":
        return random.random(size, np.float32).astype(ml_dtypes.bfloat16)
    dtype = DTYPE_OF_DATATYPE[datatype]
    out = random.integers(0, 2 if datatype == "BOOL" else 100, size).astype(dtype)
    if dtype.kind == "f" and size:
        out = (out / 7).astype(dtype)
        out[:4] = [np.nan, np.inf, -np.inf, -0.0][:size]
    return out


@pytest.mark.parametrize("size", [0, 3, 1000])
@pytest.mark.parametrize("datatype", [*DTYPE_OF_DATATYPE, "BF16"])
def test_a_written_snapshot_equals_its_responses(repo: RepositoryUnderTest, datatype: str, size: int) -> None:
    response = asked(repo, values(datatype, size), datatype)
    assert response.error is None
    repo.assert_same_answers("a/b.json", response, response)
    written = {path.name: path.read_bytes() for path in (repo.here / "a").iterdir()}
    assert set(written) == ({"b.json", "b.npz"} if size > 64 else {"b.json"})
    repo.assert_same_answers("a/b.json", response, response)
    repo.update_snapshots = True
    repo.assert_same_answers("a/b.json", response, response)
    assert written == {path.name: path.read_bytes() for path in (repo.here / "a").iterdir()}
    if size:
        repo.update_snapshots = False
        other = values(datatype, size)
        other[-1] = other[-1] + b"!" if datatype == "BYTES" else not other[-1] if datatype == "BOOL" else 50
        with pytest.raises(AssertionError, match="Y differ"):
            repo.assert_same_answers("a/b.json", response, asked(repo, other, datatype))


def test_a_file_shows_a_change_where_it_is(repo: RepositoryUnderTest) -> None:
    repo.assert_same_answers("a.json", asked(repo, np.array([0.1, 2, 3], np.float32)))
    before = (repo.here / "a.json").read_text().splitlines()
    repo.update_snapshots = True
    repo.assert_same_answers("a.json", asked(repo, np.array([0.1, 5, 3], np.float32)))
    after = (repo.here / "a.json").read_text().splitlines()
    assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]] == [("      2.0,", "      5.0,")]
    assert "      0.1," in before


def test_tolerances(repo: RepositoryUnderTest) -> None:
    for size in (4, 400):
        repo.assert_same_answers(f"{size}.json", asked(repo, np.ones(size, np.float32)))
        near = asked(repo, np.full(size, 1.001, np.float32))
        repo.assert_same_answers(f"{size}.json", near, rtol=0.01)
        repo.assert_same_answers(f"{size}.json", near, atol=0.01)
        with pytest.raises(AssertionError, match=rf"Y differ(?s:.*)FP32 \[{size}\].*{size} \(100%\)"):
            repo.assert_same_answers(f"{size}.json", near)


def test_differences_from_a_snapshot(repo: RepositoryUnderTest) -> None:
    one = asked(repo, np.ones(3, np.float32))
    repo.assert_same_answers("a.json", one)
    for told, *responses in (
        ("2 responses, the snapshot has 1", one, one),
        ("an error, but the snapshot has none\n.*\n.*gone", asked(repo, "gone")),
        ("output Y: INT32, the snapshot has FP32", asked(repo, np.ones(3, np.int32), "INT32")),
        ("shapes differ", asked(repo, np.ones(4, np.float32))),
    ):
        with pytest.raises(AssertionError, match=told) as failed:
            repo.assert_same_answers("a.json", *responses)
        assert "--bls-update-snapshots" in str(failed.value)
    repo.assert_same_answers("error.json", asked(repo, "gone"))
    repo.assert_same_answers("error.json", asked(repo, "gone"))
    raised = "ValueError: nothing\n\nAt:\n  /srv/me/models/a/1/model.py(3): f\n\n\nAt:\n  /srv/me/b.py(9): g\n"
    repo.assert_same_answers("raised.json", asked(repo, raised))
    assert "/srv/me" not in (repo.here / "raised.json").read_text()
    repo.assert_same_answers("raised.json", asked(repo, raised.replace("srv/me", "ci").replace("3", "4")))
    with pytest.raises(AssertionError, match="the snapshot has another: gone"):
        repo.assert_same_answers("error.json", asked(repo, "lost"))
    with pytest.raises(AssertionError, match="no error, but the snapshot has an error: gone"):
        repo.assert_same_answers("error.json", one)


def test_streams_and_outputs_that_came_or_went(repo: RepositoryUnderTest) -> None:
    def words(request: pb_utils.InferenceRequest) -> Iterator[Any]:
        yield {"Y": [1.0]}
        yield {"Y": [2.0]}

    decoupled = CONFIG.format("FP32") + "model_transaction_policy { decoupled: true }"
    with repo.stub("words", words, config=decoupled):
        for _ in range(2):
            repo.assert_same_answers("a.json", *repo.stream("words", {"X": [0.0]}))
    data = json.loads((repo.here / "a.json").read_text())
    data["answers"][0]["outputs"]["Z"] = data["answers"][0]["outputs"].pop("Y")
    (repo.here / "a.json").write_text(json.dumps(data))
    with (
        repo.stub("words", words, config=decoupled),
        pytest.raises(AssertionError, match="response 1 of 2: outputs Y; the snapshot has Z"),
    ):
        repo.assert_same_answers("a.json", *repo.stream("words", {"X": [0.0]}))


def test_one_that_is_not_there_fails_where_nobody_can_commit_it(
    repo: RepositoryUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match=r"'a\.json' is missing"):
        repo.assert_same_answers("a.json", asked(repo, np.ones(3, np.float32)))
    assert not list(repo.here.iterdir())


def _in(data: Any, *path: Any, value: Any) -> str:
    at = data
    for each in path[:-1]:
        at = at[each]
    at[path[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("format",), "x", "no snapshot of bls_notebook"),
        (("version",), 2, "has version 2, expected 1"),
        (("answers",), 3, "cannot be read"),
        (("answers", 0), None, "cannot be read"),
        (("answers", 0, "outputs"), [1], "cannot be read"),
        (("answers", 0, "outputs", "Y", "datatype"), "os.system", "cannot be read"),
        (("answers", 0, "outputs", "Y", "shape"), [-1], "no tensor has the shape"),
        (("answers", 0, "outputs", "Y", "shape"), [10**12], "its header is"),
        (("answers", 0, "outputs", "Y", "shape"), "x", "cannot be read"),
        (("answers", 0, "outputs", "Y", "shape"), [float("inf")], "cannot be read"),
        (("answers", 1, "outputs", "Y", "values"), [1.0], "cannot be read"),
        (("answers", 1, "outputs", "Y", "values"), ["x", "y", "z"], "cannot be read"),
        (("answers", 1, "outputs", "Y", "values"), 7, "cannot be read"),
    ],
)
def test_damaged_files_are_one_line(repo: RepositoryUnderTest, path: Any, value: Any, told: str) -> None:
    responses = asked(repo, np.ones(100, np.float32)), asked(repo, np.ones(3, np.float32))
    repo.assert_same_answers("a.json", *responses)
    file = repo.here / "a.json"
    file.write_text(_in(json.loads(file.read_text()), *path, value=value))
    with pytest.raises(bls.BLSError, match=told) as failed:
        repo.assert_same_answers("a.json", asked(repo, np.zeros(100, np.float32)), responses[1])
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize("how", ["cut", "gone", "other", "huge", "pickle", "json", "binary"])
def test_damaged_archives_and_files(repo: RepositoryUnderTest, how: str) -> None:
    repo.assert_same_answers("a.json", asked(repo, np.ones(100, np.float32)))
    file, beside = repo.here / "a.json", repo.here / "a.npz"
    if how == "cut":
        beside.write_bytes(beside.read_bytes()[:50])
    elif how == "gone":
        beside.unlink()
    elif how == "other":
        np.savez(beside, x=np.ones(3))
    elif how == "huge":
        with zipfile.ZipFile(beside, "w") as archive, archive.open("0/Y.npy", "w") as member:
            header = {"descr": "<f4", "fortran_order": False, "shape": (10**13,)}
            np.lib.format.write_array_header_1_0(member, header)
    elif how == "pickle":
        np.savez(beside, **{"0/Y": np.array([print], object)})
    else:
        file.write_bytes(b"{" if how == "json" else b"\xff\x00")
    with pytest.raises(bls.BLSError, match=r"snapshot 'a\.json' cannot be read: .*write it again") as failed:
        repo.assert_same_answers("a.json", asked(repo, np.zeros(100, np.float32)))
    assert "\n" not in str(failed.value)


def test_misuse(repo: RepositoryUnderTest) -> None:
    one = asked(repo, np.ones(3, np.float32))
    with pytest.raises(bls.BLSError, match=r"ends with \.json"):
        repo.assert_same_answers("a.txt", one)
    with pytest.raises(bls.BLSError, match="no responses"):
        repo.assert_same_answers("a.json")
    (repo.here / "folder.json").mkdir()
    repo.update_snapshots = True
    with pytest.raises(bls.BLSError, match="cannot be written"):
        repo.assert_same_answers("folder.json", one)
    assert [path.name for path in repo.here.iterdir()] == ["folder.json"]
