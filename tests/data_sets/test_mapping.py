"""`map` in the kernel: sources, parts, files that continue, failed rows, comparison, Ctrl-C, the magic, the display."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.data_sets import MapResult, RowError
from bls_notebook.display import render
from tests.data_sets.conftest import DOUBLE, HEAD, config, define_pipeline
from tests.engine.harness import press_ctrl_c
from tests.magics.conftest import Cells, cells, shell  # noqa: F401 - fixtures

ROWS = np.arange(100, 400, dtype=np.float32)


def table(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("pyarrow").table(columns)


def parquet_folder(folder: Path, *sizes: int) -> Path:
    """Write files with these numbers of rows of the columns `IN`, `id` and `other`."""
    parquet = pytest.importorskip("pyarrow.parquet")
    folder.mkdir()
    first = 0
    for number, size in enumerate(sizes):
        rows = ROWS[first : first + size]
        columns = {"IN": rows, "id": [f"row {int(row)}" for row in rows], "other": rows}
        parquet.write_table(table(columns), folder / f"{number}.parquet")
        first += size
    return folder


SOURCES: dict[str, Callable[[Path], Any]] = {
    "arrays": lambda folder: {"IN": ROWS},
    "a memory map": lambda folder: {"IN": memory_map(folder / "rows.npy")},
    "batches of other sizes": lambda folder: [{"IN": ROWS[:7]}, {"IN": ROWS[7:150]}, {"IN": ROWS[150:]}],
    "a generator": lambda folder: ({"IN": ROWS[at : at + 50]} for at in range(0, 300, 50)),
    "a table": lambda folder: table({"IN": ROWS, "other": ROWS}),
    "Parquet files": lambda folder: parquet_folder(folder / "files", 130, 1, 169),
    "a Parquet file": lambda folder: str(parquet_folder(folder / "files", 300) / "0.parquet"),
}


def memory_map(file: Path) -> Any:
    np.save(file, ROWS)
    return np.load(file, mmap_mode="r")


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_answers(repo: bls.ModelRepository, tmp_path: Path, source: str) -> None:
    data = SOURCES[source](tmp_path)
    result = bls.map("double", data, batch=64, repo=repo)
    assert result["OUT"].tolist() == (ROWS * 2).reshape(-1, 1).tolist()
    assert [part.rows for part in result.record.parts] == [64, 64, 64, 64, 44]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(repo: bls.ModelRepository, library: str) -> None:
    frame = pytest.importorskip(library).DataFrame({"IN": ROWS, "other": ROWS})
    assert bls.map("double", frame, repo=repo)["OUT"].ravel().tolist() == (ROWS * 2).tolist()


def test_failed_rows_have_messages_in_their_places(repo: bls.ModelRepository, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = np.where(np.arange(1000) % 80 == 5, 13, 1).astype(np.float32)
    rows[[100, 900]] = 77
    expected = [row for row, value in enumerate(rows) if value != 1]
    for into in (None, tmp_path / "answers", tmp_path / "answers"):
        result = bls.map("reader", {"IN": rows}, batch=90, errors="column", into=into, check=5, repo=repo)
        assert [failure.row for failure in result.failures] == expected
        assert [row for row, message in enumerate(result["error"]) if message] == expected
        assert result["OUT"].count() == result["NAME"].count() == 1000 - len(expected)
        assert set(result["NAME"].compressed()) == {b"n2"}
        assert (result.record.failures, result.record.checked, result.record.differences) == (len(expected), 5, ())
    with pytest.raises(RowError, match="row 5: model 'reader'"):
        bls.map("reader", {"IN": rows}, repo=repo)


def test_a_run_continues_and_computes_again_what_has_changed(repo: bls.ModelRepository, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")

    def run(rows: Any = ROWS) -> list[int]:
        """Return the parts that are computed."""
        result = bls.map("double", {"IN": rows}, batch=100, into=tmp_path, repo=repo)
        assert result["OUT"].ravel().tolist() == (rows * 2).tolist()
        return [part.number for part in result.record.computed]

    assert run() == [0, 1, 2]
    assert run() == []
    (tmp_path / "part-00001.parquet").unlink()
    (tmp_path / ".part-00002.123.tmp").write_bytes(b"half")
    assert run() == [1]
    changed = ROWS.copy()
    changed[250] = 1
    assert run(changed) == [2]
    repo.define("double", DOUBLE + "\n# another model", config())
    assert run(changed) == [0, 1, 2]
    assert run(changed[:150]) == [1]
    assert sorted(os.listdir(tmp_path)) == ["part-00000.parquet", "part-00001.parquet"]


def test_files_of_others_are_never_replaced(repo: bls.ModelRepository, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "part-00000.parquet").write_text("mine")
    with pytest.raises(bls.BLSError, match=r"part-00000\.parquet was not written by map"):
        bls.map("double", {"IN": ROWS}, into=tmp_path, repo=repo)
    assert (tmp_path / "part-00000.parquet").read_text() == "mine"


SHAPES = (
    HEAD
    + """
    def execute(self, requests):
        out = []
        for request in requests:
            n = int(array(request).ravel()[0])
            grid = np.arange(2 * n, dtype=np.float16).reshape(1, n, 2)
            words = np.array([[b"w"] * n], object)
            flags = np.array([[n > 1, False]])
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("GRID", grid), pb_utils.Tensor("WORDS", words),
                pb_utils.Tensor("FLAGS", flags)]))
        return out
"""
)


def test_files_keep_shapes_and_types(repo: bls.ModelRepository, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    repo.define("shapes", SHAPES, config(outputs="GRID:FP16:-1,2 WORDS:STRING:-1 FLAGS:BOOL:2", batch=1))
    rows = np.array([0, 3, 3, 1], np.float32)
    memory = bls.map("shapes", {"IN": rows}, batch=3, repo=repo)
    files = bls.map("shapes", {"IN": rows}, batch=3, into=tmp_path, repo=repo)
    for name in ("GRID", "WORDS", "FLAGS"):
        assert [(v.dtype, v.shape, v.tolist()) for v in memory[name]] == [
            (v.dtype, v.shape, v.tolist()) for v in files[name]
        ]
    assert parquet.read_table(tmp_path).column("GRID").to_pylist()[3] == [[0.0, 1.0]]


def test_kept_columns_are_written_beside_the_answers(repo: bls.ModelRepository, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    bls.map("double", parquet_folder(tmp_path / "in", 300), keep=["id"], into=tmp_path / "out", repo=repo)
    written = parquet.read_table(tmp_path / "out")
    assert written.column("id").to_pylist() == [f"row {int(row)}" for row in ROWS]
    assert written.column("OUT").to_pylist() == (ROWS * 2).tolist()


KILLED = """
import sys
import numpy as np
import bls_notebook as bls
from tests.data_sets.conftest import config
from tests.data_sets.test_mapping import ROWS, STOPS
with bls.ModelRepository() as repo:
    repo.define("double", STOPS.replace("STOP", sys.argv[2]), config())
    print(bls.map("double", {"IN": ROWS}, batch=50, into=sys.argv[1], repo=repo).record.computed[0].number)
"""
STOPS = (
    HEAD
    + """
    def execute(self, requests):
        import os

        if (array(requests[0]) == 310).any() and not os.path.exists(STOP):
            ctypes.string_at(0)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array(r) * 2)]) for r in requests]
"""
)


def test_a_killed_kernel_loses_only_the_part_in_work(repo: bls.ModelRepository, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "answers"), repr(str(tmp_path / "stop"))]
    assert subprocess.run(command, capture_output=True, check=False).returncode < 0
    finished = {file.name: file.stat().st_ino for file in (tmp_path / "answers").glob("part-*")}
    assert len(finished) == 4
    (tmp_path / "stop").touch()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4"]
    for name, number in finished.items():
        assert (tmp_path / "answers" / name).stat().st_ino == number
    assert parquet.read_table(tmp_path / "answers").column("OUT").to_pylist() == (ROWS * 2).tolist()


def test_ctrl_c_returns_what_is_finished(repo: bls.ModelRepository) -> None:
    def batches() -> Iterator[dict[str, Any]]:
        yield {"IN": ROWS[:100]}
        press_ctrl_c()
        yield {"IN": ROWS[100:]}

    result = bls.map("double", batches(), batch=50, repo=repo)
    assert result.record.interrupted
    assert result.rows == 100
    assert result["OUT"].ravel().tolist() == (ROWS[:100] * 2).tolist()
    assert "interrupted: only the finished parts are here" in str(result)


def test_a_part_is_profiled(repo: bls.ModelRepository) -> None:
    result = bls.map("double", {"IN": ROWS}, batch=100, repo=repo)
    with pytest.raises(bls.BLSError, match="from 0 to 2"):
        result.profile(3)
    session = result.profile(result.slowest[0].number).record
    assert len(session.spans) == 13
    once = bls.map("double", iter([{"IN": ROWS}]), repo=repo)
    with pytest.raises(bls.BLSError, match="iterator, which cannot be read again"):
        once.profile(0)


def test_a_model_that_answers_differently_is_named(repo: bls.ModelRepository) -> None:
    repo.define("double", DOUBLE.replace("x * 2", "x + np.float32(np.random.rand())"), config())
    result = bls.map("double", {"IN": ROWS}, check=2, repo=repo)
    assert len(result.record.differences) == 2
    assert "elements differ" in result.record.differences[0]


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        ({"IN": ROWS}, {"batch": 0}, "batch: got 0"),
        ({"IN": ROWS}, {"check": -1}, "check: got -1"),
        (3, {}, "data: got int, expected a dict"),
        ([3], {}, "data: item 0 is int"),
        ("/nowhere", {}, "/nowhere does not exist"),
        ({"IN": ROWS, "OTHER": ROWS}, {}, "the column 'OTHER', expected inputs: IN"),
        ({"IN": ROWS, "x": ROWS[:1]}, {}, "different numbers of rows"),
        ({"IN": ROWS}, {"keep": ["id"]}, r"keep=\['id'\] needs into="),
        ({"IN": ROWS}, {"on": "cluster"}, "on: got 'cluster', expected None, a number of worker processes"),
    ],
)
def test_wrong_arguments(repo: bls.ModelRepository, data: Any, options: dict[str, Any], words: str) -> None:
    if "on" in options:
        pytest.importorskip("distributed")
    if data == "/nowhere":
        pytest.importorskip("pyarrow")
    with pytest.raises(bls.BLSError, match=words):
        bls.map("double", data, repo=repo, **options)


def test_the_magic_and_its_display(cells: Cells) -> None:  # noqa: F811
    define_pipeline(bls.current_repository())
    cells.shell.user_ns["rows"] = np.append(ROWS, np.float32(13))
    assert cells("found = %blsmap double IN=rows --batch 100 --errors column --compare 3").success
    result = cells.shell.user_ns["found"]
    assert isinstance(result, MapResult)
    text = str(result)
    assert "301 rows · 1 failed" in text
    assert "thirteen" in text
    assert "the kernel gives the same answers to 3 random rows" in text
    assert render(result.record)._repr_mimebundle_()["text/html"].count("<img") == 1
