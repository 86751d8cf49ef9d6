"""Snapshots: answers as files that are reviewed, and held against later ones.

A JSON file has all of small tensors, a number a line, so that a change shows where it is; of larger ones it
has the data type, the shape, a hash and some figures, and their values are in a ``.npz`` of the same name.
Both are the same bytes for the same answers, wherever they are written.

Guarantees: what is no snapshot, or a damaged one, is one clear line; nothing in it is run; one is replaced
whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.records.quantities import count
from bls_notebook.records.visible_text import first_line, without_traceback

from .failure_text import differences_text, error_text, unlike

FORMAT = "bls_notebook snapshot"
VERSION = 1
SMALL = 64  # elements that are written out
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in archives, so that equal ones are equal bytes
_MOST = 1 << 30  # bytes of a file that is read

_Array = np.ndarray[Any, Any]


def check_snapshot(file: Path, responses: Sequence[Any], update: bool, rtol: float, atol: float) -> tuple[str, ...]:
    """Return what differs from a snapshot, empty where nothing does; write it where it is to be written.

    A BLSError where the file is no snapshot, or cannot be read or written.
    """
    if file.suffix != ".json":
        raise BLSError(f"snapshot {file.name!r}: expected a name that ends with .json")
    if not responses:
        raise BLSError(f"snapshot {file.name!r}: no responses were given")
    if update or not file.exists():
        if not update and os.environ.get("CI"):
            return (f"snapshot {file.name!r} is not there; run with --bls-update-snapshots here, and commit it",)
        _write(file, responses)
        return ()
    answers, arrays = _read(file)
    told: list[str] = []
    if len(answers) != len(responses):
        told.append(f"{count(len(responses), 'response')}, the snapshot has {len(answers)}")
    for number, (was, response) in enumerate(zip(answers, responses, strict=False)):
        at = f"response {number + 1} of {len(responses)}: " if len(responses) > 1 else ""
        told += [at + words for words in _differences(number, was, response, arrays, rtol, atol)]
    if not told:
        return ()
    return (
        f"not the same answers as in {file.name}",
        *told,
        "If they are meant to differ: pytest --bls-update-snapshots (or BLS_UPDATE_SNAPSHOTS=1)",
    )


def _differences(
    number: int, was: Mapping[str, Any], response: Any, arrays: Mapping[str, _Array], rtol: float, atol: float
) -> list[str]:
    error = _error(response)
    if error is not None or "error" in was:
        if error == was.get("error"):
            return []
        if error is None:
            return [f"an answer, and the snapshot has an error: {first_line(str(was['error']))}"]
        shown = error_text(response.record.error)
        had = f"another: {first_line(str(was['error']))}" if "error" in was else "none"
        return [f"an error, and the snapshot has {had}\n{shown}"]
    found, kinds = response.as_numpy(), _datatypes(response)
    outputs = was.get("outputs", {})
    told: list[str] = []
    if list(found) != list(outputs):
        told.append(f"outputs {', '.join(found) or 'none'}; the snapshot has {', '.join(outputs) or 'none'}")
    expected = {}
    for name, kept in outputs.items():
        if name not in found:
            continue
        if kinds[name] != kept["datatype"]:
            told.append(f"output {name}: {kinds[name]}, the snapshot has {kept['datatype']}")
            continue
        expected[name] = arrays[f"{number}/{name}"]
    differ = unlike(found, expected, rtol, atol)
    if differ:
        told.append(
            f"{', '.join(each.name for each in differ)} differ\n" + differences_text(differ, ("snapshot", "now"))
        )
    return told


def _dtype(datatype: str) -> np.dtype[Any]:
    return np.dtype(np.float32) if datatype == "BF16" else DTYPE_OF_DATATYPE[datatype]


# -- files ---------------------------------------------------------------------------------------------


def _write(file: Path, responses: Sequence[Any]) -> None:
    arrays: dict[str, _Array] = {}
    answers = [_answer(number, response, arrays) for number, response in enumerate(responses)]
    text = json.dumps({"format": FORMAT, "version": VERSION, "answers": answers}, indent=1) + "\n"
    beside = file.with_suffix(".npz")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if arrays:
            _replace(beside, _archive(arrays))
        elif beside.exists():
            beside.unlink()
        _replace(file, text.encode())
    except OSError as error:
        raise BLSError(f"snapshot {file.name!r} cannot be written: {error.strerror or error}") from error


def _replace(file: Path, data: bytes) -> None:
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        new.write_bytes(data)
        os.replace(new, file)
    finally:
        new.unlink(missing_ok=True)


def _answer(number: int, response: Any, arrays: dict[str, _Array]) -> dict[str, Any]:
    answer: dict[str, Any] = {"model": response.model}
    if response.error is not None:
        return {**answer, "error": _error(response)}
    kinds = _datatypes(response)
    outputs = {}
    for name, array in response.as_numpy().items():
        kept: dict[str, Any] = {"datatype": kinds[name], "shape": list(array.shape)}
        if array.size <= SMALL:
            kept["values"] = [_spelled(each, array.dtype) for each in array.ravel().tolist()]
        else:
            kept |= _figures(array) | {"sha256": _hash(array)}
            arrays[f"{number}/{name}"] = array
        outputs[name] = kept
    return {**answer, "outputs": outputs}


def _error(response: Any) -> str | None:
    """What is the same on every machine: without lines of code."""
    return None if response.error is None else without_traceback(response.error.message())


def _spelled(value: Any, dtype: np.dtype[Any]) -> Any:
    """An element as JSON has it: texts as their bytes, floats with as few digits as tell them apart."""
    if dtype.kind == "O":
        return value.decode("latin-1")
    if dtype.kind != "f":
        return value
    number = float(str(dtype.type(value)))
    return number if np.isfinite(number) else str(number)


def _figures(array: _Array) -> dict[str, Any]:
    if array.dtype.kind not in "iuf":
        return {}
    finite = array[np.isfinite(array)].astype(np.float64)
    if not finite.size:
        return {}
    return {"min": _short(finite.min()), "max": _short(finite.max()), "mean": _short(finite.mean())}


def _short(value: Any) -> float:
    return float(f"{value:.6g}")


def _hash(array: _Array) -> str:
    if array.dtype.kind == "O":
        data = b"".join(len(each).to_bytes(8, "little") + each for each in array.ravel().tolist())
    else:
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    return hashlib.sha256(data).hexdigest()


def _archive(arrays: Mapping[str, _Array]) -> bytes:
    """A ``.npz`` that depends on the arrays alone; texts are bytes of a fixed length in it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            if array.dtype.kind == "O":
                lengths = np.array([len(each) for each in array.ravel().tolist()], np.int64)
                joined = np.frombuffer(b"".join(array.ravel().tolist()), np.uint8)
                array = np.concatenate([lengths.view(np.uint8), joined])
            np.lib.format.write_array(member, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _EPOCH), member.getvalue())
    return out.getvalue()


def _read(file: Path) -> tuple[list[dict[str, Any]], dict[str, _Array]]:
    try:
        if file.stat().st_size > _MOST:
            raise ValueError(f"it is larger than {_MOST >> 30} GiB")
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError("it is no snapshot of bls_notebook")
        if data.get("version") != VERSION:
            raise ValueError(f"it is of version {data.get('version')!r}, this one reads {VERSION}")
        answers: list[dict[str, Any]] = data["answers"]
        kept = {
            f"{number}/{name}": tensor
            for number, answer in enumerate(answers)
            for name, tensor in answer.get("outputs", {}).items()
        }
        larger = {name: tensor for name, tensor in kept.items() if "values" not in tensor}
        arrays = {name: _spelled_out(tensor) for name, tensor in kept.items() if name not in larger}
        if larger:
            beside = file.with_suffix(".npz")
            if not beside.exists():
                raise ValueError(f"{beside.name}, which has its larger tensors, is not beside it")
            with np.load(io.BytesIO(beside.read_bytes()), allow_pickle=False) as members:
                if sum(each.file_size for each in members.zip.infolist()) > _MOST:
                    raise ValueError(f"{beside.name} is larger than {_MOST >> 30} GiB")
                arrays |= {name: _restored(members[name], tensor) for name, tensor in larger.items()}
    except Exception as error:  # readers of damaged files raise many kinds
        raise BLSError(
            f"snapshot {file.name!r} cannot be read: {first_line(str(error))}; take it again: "
            "pytest --bls-update-snapshots"
        ) from error
    return answers, arrays


def _spelled_out(kept: Mapping[str, Any]) -> _Array:
    """An array of the values that are in the JSON."""
    dtype, values = _dtype(kept["datatype"]), kept["values"]
    flat = np.empty(len(values), dtype)
    if dtype.kind == "O":
        flat[:] = [each.encode("latin-1") for each in values]
    else:
        flat[:] = [float(each) for each in values] if dtype.kind == "f" else values
    return flat.reshape(_shape(kept))


def _shape(kept: Mapping[str, Any]) -> tuple[int, ...]:
    shape = tuple(int(size) for size in kept["shape"])
    if any(size < 0 for size in shape):
        raise ValueError(f"a shape of {list(shape)}")
    return shape


def _restored(array: _Array, kept: Mapping[str, Any]) -> _Array:
    dtype, shape = _dtype(kept["datatype"]), _shape(kept)
    if dtype.kind != "O":
        if array.dtype != dtype or array.shape != shape:
            raise ValueError(f"{array.dtype}{list(array.shape)} in the .npz, expected {dtype}{list(shape)}")
        return array
    size = int(np.prod(shape, dtype=object))
    lengths = array[: size * 8].view(np.int64).tolist()
    joined = array[size * 8 :].tobytes()
    if array.dtype != np.uint8 or sum(lengths) != len(joined) or any(each < 0 for each in lengths):
        raise ValueError("texts in the .npz are damaged")
    texts, at = np.empty(size, object), 0
    for number, length in enumerate(lengths):
        texts[number], at = joined[at : at + length], at + length
    return texts.reshape(shape)


def _datatypes(response: Any) -> dict[str, str]:
    return {tensor._name: tensor._datatype for tensor in response.output_tensors()}
