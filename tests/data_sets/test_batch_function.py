"""`batch_function`: rows to requests and back, its pickle, errors of rows, and models outside this process."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.data_sets import RowError
from tests.data_sets.conftest import HEAD, READER, config

ROWS = np.arange(80, 110, dtype=np.float32)
ECHO = (
    HEAD
    + """
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array(r))]) for r in requests]
"""
)
STREAM = (
    HEAD
    + """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            x = array(request).ravel()
            for i in range(int(x[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full((1, 2), i, np.float32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_each_row_has_the_answer_of_infer(repo: bls.ModelRepository, concurrency: int) -> None:
    function = bls.batch_function("reader", repo, concurrency=concurrency)
    answers = function({"IN": ROWS})
    for row, value in enumerate(ROWS):
        expected = repo.infer("reader", {"IN": np.array([[value]])}).as_numpy()
        assert {name: values[row : row + 1].tolist() for name, values in answers.items()} == {
            name: values.tolist() for name, values in expected.items()
        }


PYTHONS = sorted(map(str, Path(sys.prefix).glob("3.*/bin/python")))  # of `make test-pythons`
OTHERS = [pytest.param(python, marks=pytest.mark.extra) for python in PYTHONS or [""]]


@pytest.mark.parametrize("python", [sys.executable, *OTHERS])
def test_a_pickle_is_opened_once_by_another_process_or_version_of_python_and_survives_a_redefinition(
    repo: bls.ModelRepository, tmp_path: Path, python: str
) -> None:
    if not python:
        pytest.skip("needs another version of Python: make install-pythons")
    file = tmp_path / "function.pickle"
    file.write_bytes(pickle.dumps(bls.batch_function("reader", repo, outputs=["NAME"])))
    repo.define("double", ECHO, config())
    script = """
import pickle, sys
import numpy as np
import bls_notebook.data_sets.snapshot as snapshot
function = pickle.load(open(sys.argv[1], "rb"))
for _ in range(2):
    print(function({"IN": np.array([1, 2], np.float32)})["NAME"].ravel().tolist())
print(len(snapshot._opened))
"""
    command = [python, "-c", script, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:3] == ["[b'n2', b'n4']", "[b'n2', b'n4']", "1"]


def test_a_row_without_an_answer_raises_an_error_that_names_it(repo: bls.ModelRepository) -> None:
    function = bls.batch_function("reader", repo)
    with pytest.raises(RowError, match=r"^row 13: model 'reader': .*thirteen$"):
        function({"IN": np.arange(20, dtype=np.float32)})
    assert str(pickle.loads(pickle.dumps(RowError("row 1: model 'm': x")))) == "row 1: model 'm': x"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_failed_rows_are_masked_and_have_messages_in_their_places(repo: bls.ModelRepository, concurrency: int) -> None:
    rows = np.arange(100, dtype=np.float32)
    answers = bls.batch_function("reader", repo, errors="column", concurrency=concurrency)({"IN": rows})
    failed = [row for row, message in enumerate(answers["error"]) if message is not None]
    assert failed == [13, 77]
    assert answers["error"][13] == "thirteen"
    assert "seventy-seven" in answers["error"][77]
    assert np.ma.getmaskarray(answers["OUT"])[:, 0].nonzero()[0].tolist() == failed
    good = np.delete(rows, failed)
    assert np.delete(answers["OUT"].data[:, 0], failed).tolist() == (good * 2).tolist()
    assert np.delete(answers["NAME"].data[:, 0], failed).tolist() == [f"n{int(2 * v)}".encode() for v in good]


def test_rows_of_different_shapes_and_text(repo: bls.ModelRepository) -> None:
    repo.define("echo", ECHO, config("IN:FP32:-1", "OUT:FP32:-1"))
    ragged = np.empty(5, object)
    for row, length in enumerate([2, 2, 3, 1, 2]):
        ragged[row] = np.full(length, row, np.float32)
    out = bls.batch_function("echo", repo)({"IN": ragged})["OUT"]
    assert out.dtype == object
    assert [row.tolist() for row in out] == [row.tolist() for row in ragged]
    repo.define("text", ECHO, config("IN:STRING:1", "OUT:STRING:1", batch=0))
    out = bls.batch_function("text", repo)({"IN": np.array(["a", "é", ""])})["OUT"]
    assert out.tolist() == [[b"a"], ["é".encode()], [b""]]


def test_a_decoupled_model_gives_a_list_for_each_row(repo: bls.ModelRepository) -> None:
    repo.define("stream", STREAM, config(outputs="OUT:FP32:2", more="model_transaction_policy { decoupled: true }"))
    function = bls.batch_function("stream", repo, concurrency=2)
    out = function({"IN": np.array([2, 0, 3], np.float32)})["OUT"]
    assert [[values.tolist() for values in row] for row in out] == [
        [[0, 0], [1, 1]], [], [[0, 0], [1, 1], [2, 2]],
    ]  # fmt: skip


def test_large_models_need_a_shared_folder_whose_files_are_verified(repo: bls.ModelRepository, tmp_path: Path) -> None:
    with pytest.raises(bls.BLSError, match=r"at most 100 B travel with a function .*folder="):
        bls.batch_function("reader", repo, limit=100)
    function = bls.batch_function("reader", repo, folder=tmp_path)
    assert len(pickle.dumps(function)) < 3000
    assert function({"IN": ROWS[:2]})["OUT"].shape == (2, 1)
    repo.define("double", ECHO, config())
    other = bls.batch_function("reader", repo, folder=tmp_path)
    (model,) = Path(other.snapshot.folder).glob("double/1/model.py")
    model.write_text(model.read_text() + "\n# changed")
    with pytest.raises(bls.BLSError, match=r"double/1/model\.py has changed"):
        other({"IN": ROWS[:2]})


def test_models_in_processes_stay_in_processes(repo: bls.ModelRepository) -> None:
    repo.load("double", isolation="process")
    function = bls.batch_function("double", repo)
    assert dict(function.snapshot.models) == {"double": "process"}
    assert function({"IN": ROWS})["OUT"].ravel().tolist() == (ROWS * 2).tolist()


def test_a_remote_model_is_connected_and_its_token_is_read_on_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc")
    with bls.ModelRepository() as far, bls.ModelRepository() as repo:
        far.define("far_double", ECHO, config())
        repo.define("reader", READER, config(outputs="OUT:FP32:1 NAME:STRING:1"))
        with bls.endpoint(repo=far, token="secret") as endpoint:
            headers = {"authorization": "Bearer secret"}
            bls.connect(endpoint.url, "far_double", repo=repo, names={"far_double": "double"}, headers=headers)
            repo.infer("reader", {"IN": [[1]]})  # which shows that it calls `double`
            function = bls.batch_function("reader", repo)
            assert b"secret" not in pickle.dumps(function)
            with pytest.raises(bls.BLSError, match="set the environment variable BLS_NOTEBOOK_127_0_0_1_") as told:
                function({"IN": ROWS[:2]})
            variable = next(word for word in str(told.value).split() if word.startswith("BLS_NOTEBOOK_"))
            monkeypatch.setenv(variable, headers["authorization"])
            assert function({"IN": ROWS[:2]})["OUT"].ravel().tolist() == ROWS[:2].tolist()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda repo: bls.batch_function("nobody", repo), "model 'nobody' is not loaded"),
        (lambda repo: bls.batch_function("double", repo, outputs=["NO"]), "outputs: got 'NO', expected some of OUT"),
        (lambda repo: bls.batch_function("double", repo, concurrency=0), "concurrency: got 0"),
        (lambda repo: bls.batch_function("double", repo, errors="skip"), "errors: got 'skip', expected one of 'raise'"),
        (lambda repo: bls.batch_function("double", repo)({"INN": ROWS}), "the column 'INN', expected inputs: IN"),
        (lambda repo: bls.batch_function("double", repo)({}), "got no columns"),
        (lambda repo: bls.batch_function("double", repo)({"IN": 1.0}), "column 'IN': got one value"),
        (lambda repo: bls.batch_function("double", repo, keep=["OUT"]), "keep: 'OUT' is an input or a column"),
        (
            lambda repo: bls.batch_function("double", repo)({"IN": np.arange(3)}),
            "is int64, expected float32 .FP32.; convert it",
        ),
    ],
)
def test_wrong_arguments(repo: bls.ModelRepository, call: Callable[[Any], object], words: str) -> None:
    with pytest.raises(bls.BLSError, match=words):
        call(repo)


def test_other_columns_are_kept_beside_the_answers(repo: bls.ModelRepository) -> None:
    out = bls.batch_function("double", repo, keep=["id"])({"IN": ROWS, "id": np.arange(30)})
    assert list(out) == ["id", "OUT"]
    assert out["id"].tolist() == list(range(30))
