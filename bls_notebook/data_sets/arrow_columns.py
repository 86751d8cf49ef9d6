"""Columns of rows as Arrow arrays, for Parquet files, and back.

A row of rank r is a list of lists; a model's output with the dims ``[1]`` is a plain column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from bls_notebook.engine import BLSError, TensorSpec

from .rows import Array, object_rows


def numpy_of(column: Any) -> Array:
    """Return an Arrow array as a column: an object array of rows, None for null, where the rows' shapes differ."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType) and not column.null_count:
        return column.to_numpy_ndarray()  # type: ignore[no-any-return]
    if isinstance(kind, pa.BaseExtensionType):
        return numpy_of(column.storage)
    if pa.types.is_dictionary(kind):
        return numpy_of(column.dictionary_decode())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column)
    values = column.to_numpy(zero_copy_only=False)
    return object_rows(column.to_pylist()) if values.dtype == object or column.null_count else np.array(values)


def _lists(column: Any) -> Array:
    lengths = column.value_lengths().to_pylist()
    inner = numpy_of(column.flatten())  # without null
    if len(set(lengths)) == 1 and None not in lengths and not _has_arrays(inner):
        return inner.reshape(len(lengths), lengths[0], *inner.shape[1:])
    ends = np.cumsum([length or 0 for length in lengths])
    slices = zip(ends, lengths, strict=True)
    return object_rows([None if length is None else _stacked(inner[end - length : end]) for end, length in slices])


def _has_arrays(rows: Array) -> bool:
    return rows.dtype == object and any(isinstance(row, np.ndarray) for row in rows)


def _stacked(rows: Array) -> Array:
    same = _has_arrays(rows) and len({getattr(row, "shape", None) for row in rows}) == 1
    return np.stack(list(rows)) if same else rows


def arrow_of(output: TensorSpec, rows: Array, lists: bool) -> Any:
    """Return an output's column as an Arrow array whose type depends on the configuration only.

    With `lists`, a row is the list of a decoupled model's responses. None is null.
    """
    dtype = output.dtype or np.dtype(np.float32)  # of BF16
    kind = pa.large_binary() if dtype.kind == "O" else pa.from_numpy_dtype(dtype)
    for _ in output.dims if lists or output.dims != (1,) else ():
        kind = pa.large_list(kind)
    if not lists:
        return _typed(output, rows, kind)
    responses = [_typed(output, object_rows(row), kind) for row in rows]
    values = pa.concat_arrays([pa.nulls(0, kind), *responses])
    return pa.LargeListArray.from_arrays(np.cumsum([0, *map(len, responses)]), values)


def _typed(output: TensorSpec, rows: Array, kind: Any) -> Any:
    if rows.dtype == object and rows.ndim == 1:  # of different shapes, or None
        each = [pa.nulls(1, kind) if row is None else _typed(output, row[None], kind) for row in rows]
        return pa.concat_arrays([pa.nulls(0, kind), *each])
    plain = not pa.types.is_large_list(kind)
    if rows.ndim - 1 != len(output.dims) or (plain and rows.shape[1] != 1):
        raise BLSError(
            f"output {output.name!r} has rows of shape {list(rows.shape[1:])}, expected dims {list(output.dims)}, as "
            "in config.pbtxt; correct the configuration, or leave into= out"
        )
    values = rows.reshape(-1).tolist() if rows.dtype == object else rows.reshape(-1)
    array = pa.array(values, pa.large_binary() if rows.dtype == object else None)
    for axis in () if plain else range(rows.ndim - 1, 0, -1):
        offsets = np.arange(np.prod(rows.shape[:axis], dtype=int) + 1) * rows.shape[axis]
        array = pa.LargeListArray.from_arrays(offsets, array)
    return array
