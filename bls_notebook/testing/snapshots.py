"""Snapshots: responses in files that people review and tests compare with later responses.

A JSON file has the values of small tensors, one per line, so that a diff shows which one changed. For a larger tensor
it has data type, shape, digest and statistics; the values are in a ``.npz`` file of the same name. Equal responses give
the same bytes on any machine.

Guarantees: a file that is damaged or no snapshot gives an error of one line; reading it runs no code; a file is
replaced as a whole.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.engine import BLSError
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.records import count, first_line, replace_file, without_traceback

from .failure_text import differences_text, error_text, unlike
from .recording.recording_file import digest, packed, unpacked

FORMAT = "bls_notebook snapshot"
VERSION = 1
SMALL = 64  # tensors of at most so many elements are in the JSON file
_MOST = 1 << 30  # largest file (bytes) to read

_Array = np.ndarray[Any, Any]


def check_snapshot(file: Path, responses: Sequence[Any], update: bool, rtol: float, atol: float) -> tuple[str, ...]:
    """Compare responses with a snapshot; return the differences as text. Write the snapshot if missing, or to `update`.

    Raises a BLSError if the file is no snapshot, or cannot be read or written.
    """
    if file.suffix != ".json":
        raise BLSError(f"snapshot {file.name!r}: expected a name that ends with .json")
    if not responses:
        raise BLSError(f"snapshot {file.name!r}: no responses were given")
    if update or not file.exists():
        if not update and os.environ.get("CI"):
            return (f"snapshot {file.name!r} is missing; write it with --bls-update-snapshots, and commit it",)
        _write(file, responses)
        return ()
    answers, arrays = _read(file)
    lines: list[str] = []
    if len(answers) != len(responses):
        lines.append(f"{count(len(responses), 'response')}, the snapshot has {len(answers)}")
    for number, (was, response) in enumerate(zip(answers, responses, strict=False)):
        at = f"response {number + 1} of {len(responses)}: " if len(responses) > 1 else ""
        lines += [at + line for line in _differences(number, was, response, arrays, rtol, atol)]
    if not lines:
        return ()
    return (
        f"the responses differ from {file.name}",
        *lines,
        "If the new ones are right: pytest --bls-update-snapshots (or BLS_UPDATE_SNAPSHOTS=1)",
    )


def _differences(
    number: int, was: Mapping[str, Any], response: Any, arrays: Mapping[str, _Array], rtol: float, atol: float
) -> list[str]:
    error = _error(response)
    if error is not None or "error" in was:
        if error == was.get("error"):
            return []
        if error is None:
            return [f"no error, but the snapshot has an error: {first_line(str(was['error']))}"]
        shown = error_text(response.record.error)
        had = f"another: {first_line(str(was['error']))}" if "error" in was else "none"
        return [f"an error, but the snapshot has {had}\n{shown}"]
    arrays_now, kinds = response.as_numpy(), _datatypes(response)
    outputs = was.get("outputs", {})
    lines: list[str] = []
    if list(arrays_now) != list(outputs):
        lines.append(f"outputs {', '.join(arrays_now) or 'none'}; the snapshot has {', '.join(outputs) or 'none'}")
    expected = {}
    for name, kept in outputs.items():
        if name not in arrays_now:
            continue
        if kinds[name] != kept["datatype"]:
            lines.append(f"output {name}: {kinds[name]}, the snapshot has {kept['datatype']}")
            continue
        expected[name] = arrays[f"{number}/{name}"]
    differ = unlike(arrays_now, expected, rtol, atol)
    if differ:
        lines.append(
            f"{', '.join(tensor.name for tensor in differ)} differ\n" + differences_text(differ, ("snapshot", "now"))
        )
    return lines


def _write(file: Path, responses: Sequence[Any]) -> None:
    members: dict[str, bytes] = {}
    answers = [_answer(number, response, members) for number, response in enumerate(responses)]
    text = json.dumps({"format": FORMAT, "version": VERSION, "answers": answers}, indent=1) + "\n"
    beside = file.with_suffix(".npz")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if members:
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w") as zipped:
                for name, data in members.items():
                    zipped.writestr(zipfile.ZipInfo(f"{name}.npy"), data)  # without a date: equal answers, equal bytes
            replace_file(beside, archive.getvalue())
        else:
            beside.unlink(missing_ok=True)
        replace_file(file, text.encode())
    except OSError as error:
        raise BLSError(f"snapshot {file.name!r} cannot be written: {error.strerror or error}") from error


def _answer(number: int, response: Any, members: dict[str, bytes]) -> dict[str, Any]:
    """Return the JSON value of a response, and add its larger tensors to `members`."""
    answer: dict[str, Any] = {"model": response.model}
    if response.error is not None:
        return {**answer, "error": _error(response)}
    kinds = _datatypes(response)
    outputs = {}
    for name, array in response.as_numpy().items():
        kept: dict[str, Any] = {"datatype": kinds[name], "shape": list(array.shape)}
        if array.size <= SMALL:
            kept["values"] = [_json_value(each, array.dtype) for each in array.ravel().tolist()]
        else:
            stored = _stored_as(kinds[name])
            kept |= _figures(array) | {"digest": digest(array, stored).hex()}
            members[f"{number}/{name}"] = packed(array, stored)
        outputs[name] = kept
    return {**answer, "outputs": outputs}


def _stored_as(datatype: str) -> str:
    return "FP32" if datatype == "BF16" else datatype  # NumPy lacks BF16


def _error(response: Any) -> str | None:
    """Return an error message without its traceback, so that it is the same on every machine."""
    return None if response.error is None else without_traceback(response.error.message())


def _json_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the JSON value of an element: bytes as Latin-1 text, floats with the fewest exact digits."""
    if dtype.kind == "O":
        return value.decode("latin-1")
    if dtype.kind != "f":
        return value
    number = float(str(dtype.type(value)))
    return number if np.isfinite(number) else str(number)


def _figures(array: _Array) -> dict[str, float]:
    finite = array[np.isfinite(array)].astype(np.float64) if array.dtype.kind in "iuf" else np.empty(0)
    if not finite.size:
        return {}
    return {name: float(f"{getattr(finite, name)():.6g}") for name in ("min", "max", "mean")}


def _read(file: Path) -> tuple[list[dict[str, Any]], dict[str, _Array]]:
    try:
        if file.stat().st_size > _MOST:
            raise ValueError(f"it is larger than {_MOST >> 30} GiB")
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError("it is no snapshot of bls_notebook")
        if data.get("version") != VERSION:
            raise ValueError(f"it has version {data.get('version')!r}, expected {VERSION}")
        answers: list[dict[str, Any]] = data["answers"]
        kept = {
            f"{number}/{name}": tensor
            for number, answer in enumerate(answers)
            for name, tensor in answer.get("outputs", {}).items()
        }
        larger = {name: tensor for name, tensor in kept.items() if "values" not in tensor}
        arrays = {name: _array_of(tensor) for name, tensor in kept.items() if name not in larger}
        if larger:
            beside = file.with_suffix(".npz")
            if not beside.exists():
                raise ValueError(f"{beside.name} with its larger tensors is missing")
            with zipfile.ZipFile(beside) as archive:
                if sum(member.file_size for member in archive.infolist()) > _MOST:
                    raise ValueError(f"{beside.name} is larger than {_MOST >> 30} GiB")
                for name, tensor in larger.items():
                    stored, shape = _stored_as(tensor["datatype"]), tuple(map(int, tensor["shape"]))
                    arrays[name] = unpacked(archive.read(f"{name}.npy"), stored, shape)
    except Exception as error:  # readers of damaged files raise many kinds
        raise BLSError(
            f"snapshot {file.name!r} cannot be read: {first_line(str(error))}; write it again with "
            "pytest --bls-update-snapshots"
        ) from error
    return answers, arrays


def _array_of(kept: Mapping[str, Any]) -> _Array:
    """Return the array of a tensor whose values are in the JSON file."""
    dtype, values = DTYPE_OF_DATATYPE[_stored_as(kept["datatype"])], kept["values"]
    flat = np.empty(len(values), dtype)
    if dtype.kind == "O":
        flat[:] = [each.encode("latin-1") for each in values]
    else:
        flat[:] = [float(each) for each in values] if dtype.kind == "f" else values
    return flat.reshape([int(size) for size in kept["shape"]])


def _datatypes(response: Any) -> dict[str, str]:
    return {tensor._name: tensor._datatype for tensor in response.output_tensors()}
