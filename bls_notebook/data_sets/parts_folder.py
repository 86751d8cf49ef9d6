"""`PartsFolder`: the answers to a data set as Parquet files, one per part.

Guarantees: a file is written completely or not at all. A part is finished only if its file was made by the same models
from the same rows with the same options. Files that were not written by `map` are never touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bls_notebook.engine import BLSError, ModelSpec
from bls_notebook.repository.source import shown_path

from .arrow_columns import any_arrow, arrow_of, numpy_of
from .rows import ERROR, AnsweredRows, Array, RowAnswers, RowFailure, object_rows
from .sources import DataPart

_KEY = b"bls_notebook.part"
_FILE = re.compile(r"part-(\d{5,})\.parquet")


class PartsFolder:
    """A folder with the parts of one data set's answers.

    Parameters
    ----------
    folder : Path
        It is made if it does not exist. BLSError if it has parts that `map` did not write.
    spec : ModelSpec
        Of the model that answers.
    outputs : sequence of str
    errors : str
        With ``"column"``, the files have a column of messages.
    digest : str
        The models' hash.
    """

    def __init__(self, folder: Path, spec: ModelSpec, outputs: Sequence[str], errors: str, digest: str) -> None:
        self.folder, self._spec, self._outputs, self._errors = folder.expanduser(), spec, tuple(outputs), errors
        self._digest = digest
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for file in self.folder.glob(".part-*.tmp"):  # of a process that was killed
                file.unlink()
        except OSError as error:
            raise BLSError(
                f"into: {shown_path(folder)}: {error.strerror}; expected a folder for Parquet files"
            ) from error
        for file in self._files().values():
            if not _metadata(file):
                raise BLSError(f"into: {shown_path(file)} was not written by map; choose another folder, or move it")

    def _files(self) -> dict[int, Path]:
        found = ((_FILE.fullmatch(file.name), file) for file in sorted(self.folder.iterdir()))
        return {int(match[1]): file for match, file in found if match}

    def _file(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}.parquet"

    def key(self, part: DataPart) -> str:
        """Return the hash of all that a part's answers depend on."""
        told = json.dumps([self._digest, self._spec.name, self._outputs, self._errors, list(part.kept), part.number])
        digest = hashlib.blake2b(told.encode(), digest_size=16)
        for name, values in sorted({**part.inputs, **part.kept}.items()):
            digest.update(f"|{name} {values.dtype.str} {values.shape}".encode())
            _hash(digest, values)
        return digest.hexdigest()

    def is_finished(self, number: int, key: str) -> bool:
        return _metadata(self._file(number)).get(_KEY) == key.encode()

    def write(self, part: DataPart, key: str, answers: RowAnswers) -> None:
        """Write the answers to a part, and its kept columns."""
        failed = {failure.row: failure.message for failure in answers.failures}
        columns = {name: any_arrow(values) for name, values in part.kept.items()}
        for name in self._outputs:
            spec = self._spec.outputs[name]
            rows = [None if row in failed else value for row, value in enumerate(answers.column(name))]
            columns[name] = arrow_of(name, rows, spec.dtype, spec.dims, self._spec.decoupled)
        if self._errors == "column":
            columns[ERROR] = pa.array([failed.get(row) for row in range(part.rows)], pa.string())
        table = pa.table(columns).replace_schema_metadata({_KEY: key})
        new = self.folder / f".part-{part.number:05d}.{os.getpid()}.tmp"
        pq.write_table(table, new)
        os.replace(new, self._file(part.number))

    def read(self, number: int) -> RowAnswers:
        """Return the answers of a finished part."""
        table = pq.read_table(self._file(number), partitioning=None)
        messages = table.column(ERROR).to_pylist() if self._errors == "column" else [None] * len(table)
        columns = {name: self._rows(name, numpy_of(table.column(name))) for name in self._outputs}
        pieces, start = [], 0
        failures = tuple(RowFailure(row, text) for row, text in enumerate(messages) if text is not None)
        for end in (*(failure.row for failure in failures), len(messages)):
            if end > start:
                arrays = {name: _compact(values[start:end]) for name, values in columns.items()}
                pieces.append(AnsweredRows(start, end - start, arrays))
            start = end + 1
        return RowAnswers(len(messages), tuple(pieces), failures)

    def _rows(self, name: str, values: Array) -> Array:
        if self._spec.decoupled:
            return object_rows([None if responses is None else list(responses) for responses in values])
        if self._spec.outputs[name].dims != (1,):
            return values
        if values.dtype == object and self._spec.outputs[name].dtype != object:  # with null
            dtype = self._spec.outputs[name].dtype
            return object_rows([None if value is None else np.array([value], dtype) for value in values])
        return values.reshape(-1, 1)

    def remove_from(self, count: int) -> None:
        """Remove parts of an earlier run with more of them."""
        for number, file in self._files().items():
            if number >= count:
                file.unlink(missing_ok=True)


def _compact(rows: Array) -> Array:
    """Return rows of equal shapes as one array."""
    same = rows.dtype == object and rows.ndim == 1 and all(isinstance(row, np.ndarray) for row in rows)
    return np.stack(list(rows)) if same and len({(row.shape, row.dtype) for row in rows}) == 1 else rows


def _hash(digest: hashlib.blake2b, values: Array) -> None:
    if values.dtype != object:
        digest.update(np.ascontiguousarray(values).data.cast("B") if values.size else b"")
        return
    for value in values.reshape(-1):
        if isinstance(value, np.ndarray):
            digest.update(f"[{value.dtype.str} {value.shape}".encode())
            _hash(digest, value)
        else:
            data = value if isinstance(value, bytes) else repr(value).encode()
            digest.update(f"{type(value).__name__} {len(data)} ".encode() + data)


def _metadata(file: Path) -> dict[bytes, bytes]:
    try:
        found = pq.read_schema(file).metadata or {}
    except (OSError, pa.ArrowException):
        return {}
    return found if _KEY in found else {}
