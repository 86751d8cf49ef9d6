"""The file of a recording: a zip of a JSON manifest and one .npy member for each tensor.

Members have NumPy's data types, except BYTES (in Triton's wire format) and BF16 (its bits as uint16). The manifest has
the data types; each member must have the shape and type from the manifest.

Guarantees: a file is written whole or not at all. Reading any file gives a recording or raises a `FileError` of one
line, in memory proportional to the file's size. Reading unpickles and writes nothing, and uses no name as a path.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.engine import bytes_array
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, Array, from_bits, serialize_byte_tensor
from bls_notebook.records import FileError, json_of, open_regular_file, plain, preview, told
from bls_notebook.testing.records import Recorded, RequestKept

DATATYPES = frozenset({*DTYPE_OF_DATATYPE, "BF16"})
_STORED = {"BYTES": np.dtype(np.uint8), "BF16": np.dtype(np.uint16)}
_MOST_DIMS = 64
_LONGEST = 1 << 62


def packed(array: Array, datatype: str) -> bytes:
    """Return a tensor as the bytes of an .npy file."""
    if datatype == "BYTES":
        array = np.frombuffer(serialize_byte_tensor(array) or b"", np.uint8)
    out = io.BytesIO()
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    np.lib.format.write_array(out, little, version=(1, 0), allow_pickle=False)
    return out.getvalue()


def unpacked(data: bytes, datatype: str, shape: tuple[int, ...]) -> Array:
    """Return the read-only tensor in an .npy file, BYTES as bytes; ValueError if it has another type or shape."""
    if len(shape) > _MOST_DIMS or not all(0 <= n < _LONGEST for n in shape):
        raise ValueError(f"no tensor has the shape {str(list(shape))[:80]}")
    elements = prod(shape)
    dtype: Any = _STORED[datatype] if datatype in _STORED else DTYPE_OF_DATATYPE[datatype].newbyteorder("<")
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not an .npy file of version 1.0")
    header = np.lib.format.read_array_header_1_0(file)
    start = file.tell()
    expected = ((len(data) - start,) if datatype == "BYTES" else shape, False, dtype)
    if header != expected:
        raise ValueError(f"its header is {str(header)[:100]}, expected {str(expected)[:100]}")
    if datatype == "BYTES":
        flat = bytes_array(memoryview(data)[start:], shape, "a tensor")
    else:
        if len(data) - start != elements * dtype.itemsize:
            raise ValueError(f"it has {len(data) - start:,} bytes, expected {elements * dtype.itemsize:,}")
        flat = np.frombuffer(data, dtype, offset=start)
        if datatype == "BOOL" and flat.view(np.uint8).max(initial=0) > 1:
            raise ValueError("it has a BOOL that is neither 0 nor 1")
    array: Array = flat.reshape(shape)
    array.flags.writeable = False
    return array


def digest(array: Any, datatype: str) -> bytes:
    """Return a digest of a tensor's values: equal for equal bits."""
    data = packed(array, datatype) if datatype == "BYTES" or not array.flags.c_contiguous else array.data
    return hashlib.blake2b(data if array.size else b"", digest_size=16).digest()


def shown(array: Array, datatype: str) -> str:
    """Return the first elements of a tensor as text; BF16 as numbers."""
    return preview(from_bits(array), "FP32") if datatype == "BF16" else preview(array, datatype)


KIND = "bls_notebook.recording"
SCHEMA = 1
MANIFEST = "manifest.json"
_TENSOR = re.compile(r"tensors/\d{1,9}\.npy", re.ASCII)
_MOST_MANIFEST = 1 << 27
_RATIO = 64  # a manifest may unpack to so many times its stored size
_ALWAYS = 1 << 24  # or to so many bytes


def member(number: int) -> str:
    """Return the name of a tensor in the file."""
    return f"tensors/{number}.npy"


def check_writable(path: Path) -> None:
    """Raise a FileError, before anything is recorded, if a recording cannot be written there."""
    name = told(path.name)
    if path.is_dir():
        raise FileError(f"record: {name!r} is a folder, expected the path of a file such as 'run.blsrec'")
    if not path.parent.is_dir():
        raise FileError(f"record: there is no folder {told(path.parent)!r} to write {name!r} to; make it first")
    if not os.access(path.parent, os.W_OK):
        raise FileError(f"record: cannot write to the folder {told(path.parent)!r}")


def save(path: Path, record: Recorded, arrays: Mapping[str, Array]) -> Path:
    """Write a recording; an existing file is replaced only by a complete one."""
    text = json.dumps({"kind": KIND, "schema": SCHEMA, **plain(record, defaults=False)}, separators=(",", ":"))
    types = {t.values: t.datatype for request in record.requests for t in request.tensors if t.values}
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "xb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as zipped:
            zipped.writestr(_info(MANIFEST, zipfile.ZIP_DEFLATED), text)
            for name, datatype in types.items():
                zipped.writestr(_info(name, zipfile.ZIP_STORED), packed(arrays[name], datatype))
        os.replace(beside, path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileError(f"recording: cannot save to {told(path.name)!r}: {told(why)}") from error
    finally:
        with contextlib.suppress(OSError, ValueError):
            beside.unlink()
    return path


def _info(name: str, how: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same recording makes the same file
    info.compress_type = how
    info.external_attr = 0o644 << 16
    return info


def load(path: Path) -> tuple[Recorded, dict[str, Array]]:
    """Read a recording, with read-only tensors; raise a FileError of one line for any other file."""
    name = told(path.name)
    try:
        with open_regular_file(path) as file, zipfile.ZipFile(file) as zipped:
            return _read(zipped, os.fstat(file.fileno()).st_size)
    except (OSError, MemoryError) as error:
        why = told(getattr(error, "strerror", None) or error) or "it needs more memory than is available"
        raise FileError(f"{name}: the recording cannot be read: {why}") from None
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FileError(f"{name}: not a recording: {told(error)}") from None


def _read(zipped: zipfile.ZipFile, size: int) -> tuple[Recorded, dict[str, Array]]:
    members = _members(zipped, size)
    with zipped.open(members.pop(MANIFEST)) as manifest:
        record = _record(manifest.read(_MOST_MANIFEST + 1))
    arrays: dict[str, Array] = {}
    kept: dict[tuple[str, str, tuple[int, ...]], str] = {}  # the first tensor that names each member
    for request in record.requests:
        for tensor in request.tensors:
            if tensor.values:
                where = f"request {request.id}, tensor {told(repr(tensor.name))}"
                kept.setdefault((tensor.values, tensor.datatype, tensor.shape), where)
    for (name, datatype, shape), where in kept.items():
        if name not in members:
            raise ValueError(f"{where}: there is no member {told(repr(name))}")
        try:
            arrays[name] = unpacked(zipped.read(members[name]), datatype, shape)
        except ValueError as error:
            raise ValueError(f"{where}, {name}: {error}") from None
    return record, arrays


def _members(zipped: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name; refuse members that would need much more memory than the file's size."""
    out: dict[str, zipfile.ZipInfo] = {}
    for info in zipped.infolist():
        name = info.filename
        if name in out:
            raise ValueError(f"it has two members named {told(repr(name))}")
        if name == MANIFEST:
            most = min(_MOST_MANIFEST, max(_ALWAYS, _RATIO * info.compress_size))
            if info.file_size > most:
                raise ValueError(f"its manifest unpacks to {info.file_size:,} bytes, more than {most:,}")
        elif not _TENSOR.fullmatch(name):
            raise ValueError(f"a recording has no member {told(repr(name))}")
        elif info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise ValueError(f"its member {name!r} is compressed; tensors of a recording are not")
        out[name] = info
    if MANIFEST not in out:
        raise ValueError(f"it has no {MANIFEST}")
    if sum(info.compress_size for info in out.values()) > size:
        raise ValueError("its members overlap")
    return out


def _record(data: bytes) -> Recorded:
    plain_data: Any = json_of(data)
    kind = plain_data.pop("kind", None) if isinstance(plain_data, dict) else None
    if kind != KIND:
        raise ValueError(f"its manifest has kind {told(repr(kind))}, expected {KIND!r}")
    if plain_data.get("schema") != SCHEMA:
        raise ValueError(
            f"it has schema {told(repr(plain_data.get('schema')))}, expected {SCHEMA}: read it with the "
            "version of bls_notebook that wrote it"
        )
    record = Recorded.from_dict(plain_data)
    last = 0
    for request in record.requests:
        if not last < request.id < 1 << 62 or not -1 <= request.parent < request.id:
            raise ValueError(f"request {told(request.id)} of {told(request.parent)} is out of order")
        last = request.id
        _check_request(request)
    return record


def _check_request(request: RequestKept) -> None:
    at = f"request {request.id}"
    for text in (request.parameters, *(response.parameters for response in request.responses)):
        if not _is_parameters(text):
            raise ValueError(f"{at}: its parameters are {told(repr(text))}, expected a JSON object of text and numbers")
    numbers = (request.flags, request.timeout, request.priority, request.correlation_id)
    if any(isinstance(n, int) and not 0 <= n < 1 << 64 for n in numbers):
        raise ValueError(f"{at}: one of its numbers is out of range")
    for tensor in request.tensors:
        if tensor.datatype not in DATATYPES:
            raise ValueError(f"{at}: {told(repr(tensor.datatype))} is no data type")
        if not tensor.name:
            raise ValueError(f"{at}: a tensor has no name")


def _is_parameters(text: str) -> bool:
    try:
        values = json_of(text.encode("utf-8", "surrogatepass"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and all(isinstance(value, (bool, int, float, str)) for value in values.values())
