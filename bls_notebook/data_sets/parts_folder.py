"""`PartsFolder`: the answers to a data set as Parquet files, one per part.

Guarantees: a file is written completely or not at all. A part is finished only if its file was made by the same models
from the same rows with the same options. Files that were not written by `map` are never touched.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bls_notebook.engine import BLSError, ModelSpec
from bls_notebook.repository.source import shown_path

from .arrow_columns import arrow_of, numpy_of
from .rows import ERROR, Array, RowAnswers, object_rows
from .sources import DataPart

_KEY = b"bls_notebook.part"
_FILE = re.compile(r"part-(\d{5,})\.parquet")


class PartsFolder:
    """A folder with the parts of one data set's answers; it is made if it does not exist.

    `digest` is the models' hash. With ``errors="column"``, the files have a column of messages. BLSError if the folder
    has parts that `map` did not write.
    """

    def __init__(self, folder: Path, spec: ModelSpec, outputs: Sequence[str], errors: str, digest: str) -> None:
        self.folder, self._spec, self._outputs, self._errors = folder.expanduser(), spec, tuple(outputs), errors
        self._digest = digest
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for file in self.folder.glob(".part-*.tmp"):  # of a process that was killed
                file.unlink()
        except OSError as error:
            problem = f"into: {shown_path(folder)}: {error.strerror}"
            raise BLSError(f"{problem}; expected a folder for Parquet files") from error
        for file in self._files().values():
            if not _key(file):
                raise BLSError(f"into: {shown_path(file)} was not written by map; choose another folder, or move it")

    def _files(self) -> dict[int, Path]:
        found = ((_FILE.fullmatch(file.name), file) for file in sorted(self.folder.iterdir()))
        return {int(match[1]): file for match, file in found if match}

    def _file(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}.parquet"

    def key(self, part: DataPart) -> str:
        """Return the hash of all that a part's answers depend on."""
        digest = hashlib.blake2b(digest_size=16)
        told = [self._digest, self._spec.name, self._outputs, self._errors, list(part.kept), part.number]
        _hash(digest, object_rows([*told, *sorted({**part.rows.inputs, **part.kept}.items())]))
        return digest.hexdigest()

    def is_finished(self, number: int, key: str) -> bool:
        return _key(self._file(number)) == key.encode()

    def write(self, part: DataPart, key: str, answers: RowAnswers) -> None:
        """Write the answers to a part, and its kept columns."""
        columns = {n: pa.array(v.tolist() if v.dtype == object or v.ndim > 1 else v) for n, v in part.kept.items()}
        rows, answered = range(answers.count), iter(range(answers.count))
        places = pa.array([None if row in answers.failures else next(answered) for row in rows], pa.int64())
        for name in self._outputs:
            array = arrow_of(self._spec.outputs[name], answers.outputs[name], self._spec.decoupled)
            columns[name] = array.take(places) if answers.failures else array
        if self._errors == "column":
            columns[ERROR] = pa.array([*map(answers.failures.get, rows)], pa.string())
        new = self.folder / f".part-{part.number:05d}.{os.getpid()}.tmp"
        pq.write_table(pa.table(columns).replace_schema_metadata({_KEY: key}), new)
        os.replace(new, self._file(part.number))

    def read(self, number: int) -> RowAnswers:
        """Return the answers of a finished part."""
        table = pq.read_table(self._file(number), partitioning=None)
        messages = table[ERROR].to_pylist() if self._errors == "column" else []
        failures = {row: message for row, message in enumerate(messages) if message is not None}
        answered = table.filter(table[ERROR].is_null()) if failures else table
        outputs = {name: self._rows(name, answered[name].combine_chunks()) for name in self._outputs}
        return RowAnswers(len(table), outputs, failures)

    def _rows(self, name: str, column: Any) -> Array:
        if self._spec.decoupled:
            return object_rows([list(responses) for responses in numpy_of(column)])
        if self._spec.outputs[name].dims == (1,):
            column = pa.FixedSizeListArray.from_arrays(column, 1, mask=column.is_null())
        return numpy_of(column)

    def remove_from(self, count: int) -> None:
        """Remove parts of an earlier run with more of them."""
        for number, file in self._files().items():
            if number >= count:
                file.unlink(missing_ok=True)


def _hash(digest: Any, values: Array) -> None:
    """Hash an array, and the objects in it."""
    digest.update(f"{values.dtype.str} {values.shape}\n".encode())
    if values.dtype != object:
        digest.update(values.tobytes())
        return
    for value in values.flat:
        if isinstance(value, np.ndarray):
            _hash(digest, value)
        elif isinstance(value, tuple):
            _hash(digest, object_rows(value))
        else:
            data = value if isinstance(value, bytes) else repr(value).encode()
            digest.update(f"{type(value).__name__} {len(data)}\n".encode() + data)


def _key(file: Path) -> bytes:
    """Return the key with which a part was written; empty if `map` did not write the file."""
    try:
        return bytes((pq.read_schema(file).metadata or {}).get(_KEY, b""))
    except (OSError, pa.ArrowException):
        return b""
