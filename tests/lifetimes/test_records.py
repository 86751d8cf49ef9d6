from __future__ import annotations

from pathlib import Path

import pytest

from bls_notebook.lifetimes.records import DeviceSeen, Holder, Life, Lifetimes, Maker, Stay, load_lifetimes

MODEL, NOTEBOOK = Maker("model", 1, "model_0", 2, cell="In [3]"), Maker(cell="In [3]")
RECORD = Lifetimes(
    lives=(
        Life(1, "cpu", 100, born=10, maker=NOTEBOOK, tensor="X"),
        Life(2, "cpu", 100, born=10, died=40, maker=MODEL, source=1, how="copy", stays=(Stay(10, "input", "X"),)),
        Life(3, "gpu:0", 512, born=20, died=30, maker=MODEL, kind="allocation"),
        Life(4, "gpu:0", 300, born=30, maker=MODEL, holders=(Holder("variable", "r", "del r"),)),
        Life(5, "cpu", 0, born=35, maker=MODEL),
        Life(6, "cpu", 7, born=50, died=50, maker=MODEL),
    ),
    devices=(DeviceSeen("cpu"), DeviceSeen("gpu:0", True, 1024, 8)),
    wall=60,
    name="test",
)


def ids(lives: tuple[Life, ...]) -> list[int]:
    return [life.id for life in lives]


def test_alive_blocks_at_a_time() -> None:
    assert ids(RECORD.alive()) == [4, 1, 5]
    assert ids(RECORD.alive(15)) == [1, 2]
    assert ids(RECORD.left_behind()) == [4]  # what requests made
    assert ids(RECORD.alive(30)) == [4, 1, 2]  # what dies in a moment is gone, what is born in it is there
    assert (RECORD.bytes(), RECORD.bytes("cpu"), RECORD.bytes("gpu:0", 25)) == (400, 100, 512)


@pytest.mark.parametrize("name", ["track.json", "track.json.gz"])
def test_saved_and_loaded(tmp_path: Path, name: str) -> None:
    file = RECORD.save(tmp_path / name)
    assert file == tmp_path / name
    assert load_lifetimes(file) == RECORD
    assert (file.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x1f\x8bxx", "it is not JSON"),
        (b"[1, 2]", "it has no kind"),
        (b'{"a": 1}', "it has no kind"),
        (b'{"kind": "bls_notebook.session"}', "its kind is 'bls_notebook.session'"),
        (b'{"kind": "bls_notebook.lifetimes", "schema": 99}', "lifetimes of schema 99, expected 1"),
        (b'{"kind": "bls_notebook.lifetimes", "schema": 1, "more": 2}', "no field 'more'"),
        (b'{"kind": "bls_notebook.lifetimes", "schema": 1, "lives": [{"id": "x"}]}', "lives"),
    ],
)
def test_a_file_of_something_else(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "other.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"^other\.json: ") as caught:
        load_lifetimes(file)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
