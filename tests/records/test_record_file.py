from __future__ import annotations

import gzip
import json
import math
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.lifetimes.records import Life, Lifetimes, load_lifetimes
from bls_notebook.profiling.records.comparison import load_comparison
from bls_notebook.profiling.session import SCHEMA, Session, load_session
from bls_notebook.records import record_file

LOADERS: dict[str, Callable[[Any], Any]] = {
    "session": load_session,
    "lifetimes": load_lifetimes,
    "comparison": load_comparison,
}
BOMB = gzip.compress(b" " * (1 << 20), 9) * 40  # 40 kB, of 40 MB


def content(value: str) -> bytes:
    return f'{{"kind": "bls_notebook.lifetimes", "schema": 1, "wall": {value}}}'.encode()


CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "a bomb": BOMB,
    "half a bomb": BOMB[:-30],
    "a bomb of lists": gzip.compress(b"[" * (1 << 20), 9),
    "cut": gzip.compress(b"{}")[:-6],
    "a wrong sum": gzip.compress(b"{}")[:-8] + b"12345678",
    "no gzip": b"\x1f\x8b" + zlib.compress(b"{}"),
    "NaN": content("NaN"),
    "infinity": content("-Infinity"),
    "beyond infinity": content("1e999"),
    "many digits": content("1" * 10_000),
    "deep": content("[" * 100_000 + "]" * 100_000),
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "half a character": content('"\\ud800"'),
    "a long text": content(json.dumps("x" * 100_000)),
    "a long key": b'{"kind": "bls_notebook.session", "schema": 2, "' + b"x" * 100_000 + b'": 1}',
    "a long schema": content("1").replace(b'"schema": 1', b'"schema": "' + b"9" * 100_000 + b'"'),
    "lines in a key": b'{"kind": "bls_notebook.session", "schema": 2, "a\\nb": 1}',
    "a list": b"[]",
    "null": b"null",
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("case", CONTENTS)
def test_any_contents_of_a_record_file(tmp_path: Path, case: str, loader: str) -> None:
    file = tmp_path / "it.json"
    file.write_bytes(CONTENTS[case])
    with pytest.raises(bls.BLSError) as info:
        LOADERS[loader](file)
    told = str(info.value)
    assert "it.json" in told
    assert "\n" not in told
    assert len(told) < 700


def as_folder(file: Path) -> Path:
    file.mkdir()
    return file


def as_pipe(file: Path) -> Path:
    os.mkfifo(file)
    return file


def as_loop(file: Path) -> Path:
    file.symlink_to(file)
    return file


PLACES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda file: file, "cannot be read.*No such file"),
    "missing folder": (lambda file: file / "x.json", "cannot be read.*No such file"),
    "a folder": (as_folder, "it is not a file"),
    "a pipe": (as_pipe, "it is not a file"),
    "a link to itself": (as_loop, "Too many levels"),
    "a device": (lambda file: Path("/dev/zero"), "it is not a file"),
    "an odd name": (lambda file: f"{file}\0", "embedded null"),
    "a long name": (lambda file: f"{file}{'x' * 5000}", "File name too long"),
    "half a character": (lambda file: f"{file}\udce9", r"\\udce9.*No such file"),
    "a surrogate": (lambda file: f"{file}\ud800", "surrogates not allowed"),
    "no path": (lambda file: None, "expected the path of a file, got NoneType"),
    "a number": (lambda file: 5, "expected the path of a file, got int"),
}


@pytest.mark.skipif(os.name != "posix", reason="links, pipes and devices of POSIX")
@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("case", PLACES)
def test_links_pipes_and_devices_are_no_record_file(tmp_path: Path, case: str, loader: str) -> None:
    place, words = PLACES[case]
    with pytest.raises(bls.BLSError, match=words) as info:
        LOADERS[loader](place(tmp_path / "it.json"))
    assert len(str(info.value)) < 700
    str(info.value).encode()


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "it.json.gz"
    file.write_bytes(BOMB)
    read: list[int] = []
    read1 = gzip.GzipFile.read1

    def watched(self: gzip.GzipFile, size: int = -1) -> bytes:
        found = read1(self, size)
        read.append(len(found))
        return found

    monkeypatch.setattr(gzip.GzipFile, "read1", watched)
    with pytest.raises(bls.BLSError, match="it unpacks to more than 33,554,432 bytes"):
        load_session(file)
    assert record_file.ALWAYS < sum(read) <= record_file.ALWAYS + (1 << 20)


def test_records_that_json_cannot_hold_are_not_written(tmp_path: Path) -> None:
    lifetimes = Lifetimes((Life(1, "cpu", 4, math.nan),))  # type: ignore[arg-type]
    with pytest.raises(bls.BLSError, match=r"lifetimes: cannot save to 'it\.json': .*JSON compliant"):
        lifetimes.save(tmp_path / "it.json")
    with pytest.raises(bls.BLSError, match=r"session: cannot save to 'it\.json': .*JSON compliant"):
        replace(Session(), wall=math.inf).save(tmp_path / "it.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", [".json", ".json.gz"])
@pytest.mark.parametrize("record", [Session(schema=SCHEMA), Lifetimes()], ids=["session", "lifetimes"])
def test_unwritable_places_of_a_record_file(tmp_path: Path, record: Any, ending: str) -> None:
    (tmp_path / f"folder{ending}").mkdir()
    for name in (f"folder{ending}", f"none/x{ending}", f"x\0{ending}", f"{'x' * 300}{ending}"):
        with pytest.raises(bls.BLSError, match="cannot save to"):
            record.save(tmp_path / name)
