"""Recordings that are damaged or mean harm: one clear line each, in little memory."""

from __future__ import annotations

import contextlib
import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.records.errors import FileError
from bls_notebook.testing import Recording
from bls_notebook.testing.recording.recording import load_recording

SOURCE = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        outputs = [pb_utils.Tensor("Y", r.inputs()[0].as_numpy()) for r in requests]
        return [pb_utils.InferenceResponse([output]) for output in outputs]
"""
CONFIG = (
    'input { name: "X" data_type: TYPE_INT32 dims: [2, -1] } '
    'input { name: "T" data_type: TYPE_STRING dims: [-1] optional: true } '
    'output { name: "Y" data_type: TYPE_INT32 dims: [2, -1] }'
)
VALUES = np.arange(6, dtype=np.int32).reshape(2, 3)


@pytest.fixture(scope="module")
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repo:
        repo.define("same", SOURCE, config=CONFIG)
        yield repo


@pytest.fixture(scope="module")
def good(repo: bls.ModelRepository, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "run.blsrec"
    with bls.record(path):
        repo.infer("same", {"X": VALUES, "T": ["one", "two"]})
    return path.read_bytes()


def parts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def zipped(members: dict[str, bytes] | list[tuple[str, bytes]], how: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as file:
        for name, data in members.items() if isinstance(members, dict) else members:
            file.writestr(name, data)
    return out.getvalue()


def changed(data: bytes, change: Callable[[Any], None]) -> bytes:
    members = parts(data)
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    return zipped({**members, "manifest.json": json.dumps(manifest).encode()})


def npy(array: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def tensor(manifest: Any, number: int = 0) -> Any:
    return manifest["requests"][0]["inputs"][number]


def with_tensor(data: bytes, content: bytes) -> bytes:
    return zipped({**parts(data), "tensors/1.npy": content})


HARM: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut off": (lambda d: d[:-30], "not a zip file"),
    "no manifest": (lambda d: zipped({"tensors/1.npy": b""}), "it has no manifest.json"),
    "a path": (lambda d: zipped({**parts(d), "../../etc/passwd": b"x"}), "member '../../etc/passwd'"),
    "another path": (lambda d: zipped({**parts(d), "/tensors/9.npy": b"x"}), "has no member"),
    "a packed tensor": (lambda d: zipped(parts(d), zipfile.ZIP_DEFLATED), "is compressed; tensors"),
    "a bomb": (
        lambda d: zipped({"manifest.json": b" " * (1 << 25)}, zipfile.ZIP_DEFLATED),
        r"manifest unpacks to 33,554,432 bytes, more than",
    ),
    "many members": (lambda d: many_members(d), "not a recording"),
    "deep": (lambda d: zipped({"manifest.json": b"[" * 100_000}), "nested too deeply"),
    "a list": (lambda d: zipped({"manifest.json": b"[]"}), "its manifest has kind None"),
    "another kind": (lambda d: changed(d, lambda m: m.update(kind="x")), "has kind 'x'"),
    "of the future": (lambda d: changed(d, lambda m: m.update(schema=9)), "it has schema 9, expected 1"),
    "an unknown field": (lambda d: changed(d, lambda m: m.update(more=1)), "no field 'more'"),
    "another type": (lambda d: changed(d, lambda m: m["requests"][0].update(flags="1")), "flags: expected int"),
    "no such member": (lambda d: changed(d, lambda m: tensor(m).update(values="tensors/7.npy")), "no member"),
    "the manifest": (lambda d: changed(d, lambda m: tensor(m).update(values="manifest.json")), "no member"),
    "two types": (lambda d: changed(d, lambda m: tensor(m).update(datatype="UINT32")), "tensors/1.npy"),
    "no type": (lambda d: changed(d, lambda m: tensor(m).update(datatype="FP1")), "'FP1' is no data type"),
    "no name": (lambda d: changed(d, lambda m: tensor(m).update(name="")), "has no name"),
    "a larger shape": (lambda d: changed(d, lambda m: tensor(m).update(shape=[2, 1 << 40])), "its header is"),
    "a shape beyond all": (lambda d: changed(d, lambda m: tensor(m).update(shape=[0, 1 << 70])), "no tensor has"),
    "a negative shape": (lambda d: changed(d, lambda m: tensor(m).update(shape=[-2, -3])), "no tensor has"),
    "more elements": (lambda d: changed(d, lambda m: tensor(m, 1).update(shape=[3])), "for a tensor, got 2"),
    "parameters": (lambda d: changed(d, lambda m: m["requests"][0].update(parameters="[]")), "its parameters are"),
    "deep parameters": (
        lambda d: changed(d, lambda m: m["requests"][0].update(parameters="[" * 100_000)),
        "its parameters are",
    ),
    "an id": (lambda d: changed(d, lambda m: m["requests"][0].update(id=0)), "request 0 of 0 is out of order"),
    "its own parent": (lambda d: changed(d, lambda m: m["requests"][0].update(parent=1)), "is out of order"),
    "a number": (lambda d: changed(d, lambda m: m["requests"][0].update(timeout=-1)), "out of range"),
    "a pickle": (lambda d: with_tensor(d, npy(np.array([{}], object), allow_pickle=True)), "dtype..O"),
    "a lying header": (lambda d: with_tensor(d, npy(VALUES).replace(b"(2, 3)", b"(9, 9)")), "its header is"),
    "code in a header": (lambda d: with_tensor(d, npy(VALUES).replace(b"(2, 3)", b"exit()")), "malformed node"),
    "fewer values": (lambda d: with_tensor(d, npy(VALUES)[:-4]), "it has 20 bytes, expected 24"),
    "a short header": (lambda d: with_tensor(d, npy(VALUES)[:60]), "array header"),
    "no npy": (lambda d: with_tensor(d, b"\x80\x04K\x01."), "magic string"),
    "Fortran's order": (lambda d: with_tensor(d, npy(np.asfortranarray(VALUES))), "its header is"),
    "nothing": (lambda d: b"PK\x03\x04", "not a zip file"),
}


def many_members(data: bytes) -> bytes:
    out = bytearray(data)
    out[-12:-10] = b"\xff\xff"  # of the members, and of the bytes of their list
    out[-10:-6] = b"\xff\xff\xff\xff"
    return bytes(out)


def twice(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("manifest.json", b"{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("manifest.json", b"{}")
    return out.getvalue()


HARM["two of a name"] = twice, "two members named 'manifest.json'"


@pytest.mark.parametrize("name", HARM)
def test_harm_is_one_line(name: str, good: bytes, tmp_path: Path) -> None:
    make, said = HARM[name]
    path = tmp_path / "harm.blsrec"
    path.write_bytes(make(good))
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=said) as caught:
            load_recording(path)
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("harm.blsrec: ")


def loaded(path: Path) -> tuple[Recording | None, str]:
    try:
        return load_recording(path), ""
    except FileError as error:
        return None, str(error)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_one_line_or_none(data: st.DataObject, good: bytes, tmp_path: Path) -> None:
    """Where it loads, it says what the undamaged one does: every byte that matters has a checksum."""
    damaged = bytearray(good)
    for at in data.draw(st.lists(st.integers(0, len(good) - 1), min_size=1, max_size=4)):
        damaged[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.blsrec"
    path.write_bytes(damaged)
    found, said = loaded(path)
    assert "\n" not in said
    if found is not None:
        assert found.requests()[0].inputs["X"].tolist() == VALUES.tolist()


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, each in items for place in [(*at, key), *_places(each, (*at, key))]]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_manifest_may_say_anything(data: st.DataObject, good: bytes, tmp_path: Path) -> None:
    def change(manifest: Any) -> None:
        *way, last = data.draw(st.sampled_from(_places(manifest)))
        for key in way:
            manifest = manifest[key]
        manifest[last] = data.draw(_json)

    path = tmp_path / "changed.blsrec"
    path.write_bytes(changed(good, change))
    found, said = loaded(path)
    assert "\n" not in said
    if found is not None:
        with contextlib.suppress(bls.BLSError):  # some values are not there
            found.requests(hops=True)
        assert render(found.record).text


def test_numpy_reads_the_tensors(good: bytes) -> None:
    members = parts(good)
    assert np.load(io.BytesIO(members["tensors/1.npy"]), allow_pickle=False).tolist() == VALUES.tolist()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"none.blsrec: the recording cannot be read: No such file"):
        load_recording(tmp_path / "none.blsrec")
    with pytest.raises(FileError, match="the recording cannot be read: it is not a file"):
        load_recording(tmp_path)
