"""Columns of rows as Arrow arrays, for Parquet files, and back.

A row of rank r is a list of lists; a model's output with the dims ``[1]`` is a plain column.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from bls_notebook.engine import BLSError

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
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    if is_text or is_bytes or column.null_count:
        return object_rows(column.to_pylist())
    return np.array(column.to_numpy(zero_copy_only=False))


def _lists(column: Any) -> Array:
    present = [length is not None for length in column.value_lengths().to_pylist()]
    lengths = [length for length in column.value_lengths().to_pylist() if length is not None]
    inner = numpy_of(column.drop_null().flatten())
    if len(set(lengths)) <= 1 and all(present) and (inner.dtype != object or not _is_ragged(inner)):
        return inner.reshape(len(lengths), lengths[0] if lengths else 0, *inner.shape[1:])
    ends = np.cumsum(lengths)
    slices = iter(_stacked(inner[end - length : end]) for end, length in zip(ends, lengths, strict=True))
    return object_rows([next(slices) if there else None for there in present])


def _is_ragged(values: Array) -> bool:
    return any(isinstance(value, np.ndarray) for value in values)


def _stacked(rows: Array) -> Array:
    same = rows.dtype == object and _is_ragged(rows) and len({getattr(row, "shape", None) for row in rows}) == 1
    return np.stack(list(rows)) if same else rows


def arrow_of(name: str, rows: Sequence[Any], dtype: np.dtype[Any] | None, dims: Sequence[int], lists: bool) -> Any:
    """Return an output's column as an Arrow array whose type depends on the configuration only.

    Parameters
    ----------
    name : str
        Of the output, for errors.
    rows : sequence
        None is null.
    dtype : dtype or None
        Of the elements: object for bytes, None for BF16, which arrives as float32.
    dims : sequence of int
        Of the output in config.pbtxt.
    lists : bool
        Whether a row is the list of a decoupled model's responses.
    """
    is_bytes = dtype is not None and dtype.kind == "O"
    kind = pa.large_binary() if is_bytes else pa.from_numpy_dtype(dtype or np.dtype(np.float32))
    if not lists:
        return _nested(name, rows, len(dims), kind, plain=tuple(dims) == (1,))
    inner = _nested(name, list(chain.from_iterable(row or () for row in rows)), len(dims), kind)
    return _listed([None if row is None else len(row) for row in rows], inner)


def _nested(name: str, rows: Sequence[Array | None], rank: int, kind: Any, plain: bool = False) -> Any:
    present = [row for row in rows if row is not None]
    wrong = next((row for row in present if row.ndim != rank or (plain and row.shape != (1,))), None)
    if wrong is not None:
        expected = "[1]" if plain else f"{rank} dimensions"
        raise BLSError(
            f"output {name!r} has rows of shape {list(wrong.shape)}, expected {expected}, as in config.pbtxt; correct "
            "the configuration, or leave into= out"
        )
    flat = np.concatenate([row.reshape(-1) for row in present]) if present else np.empty(0, object)
    array = pa.array(flat.tolist() if flat.dtype == object else flat, kind)
    if plain:
        values = iter(array)
        return (
            array if len(present) == len(rows) else pa.array([None if r is None else next(values) for r in rows], kind)
        )
    for level in range(rank - 1, 0, -1):
        lengths = [row.shape[level] for row in present for _ in range(int(np.prod(row.shape[:level])))]
        array = _listed(lengths, array)
    return _listed([None if row is None else row.shape[0] for row in rows], array)


def _listed(lengths: Sequence[int | None], values: Any) -> Any:
    """Return lists of consecutive values; None is a null list."""
    offsets = np.cumsum([0, *(length or 0 for length in lengths)])
    mask = pa.array([length is None for length in lengths], pa.bool_())
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values, mask=mask)


def any_arrow(column: Array) -> Any:
    """Return a column that is not an output as an Arrow array, with the type of its values."""
    return pa.array(column.tolist() if column.dtype == object or column.ndim > 1 else column)
