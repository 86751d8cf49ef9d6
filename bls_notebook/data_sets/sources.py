"""Sources of a data set: arrays, frames, Parquet files and iterators, cut into parts of equal size.

Guarantees: the same source gives the same parts. Only the columns that are needed are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.engine import BLSError

from .rows import Array, as_column, object_rows, row_count

_EXPECTED = (
    "expected a dict of names to arrays, a pandas or Polars frame, the path of Parquet files, or an iterable of these"
)
EXTRA = "pip install 'bls_notebook[cluster]'"


@dataclass(frozen=True)
class DataPart:
    """Consecutive rows of a data set: the inputs, and the columns that are kept."""

    number: int
    first: int
    rows: int
    inputs: dict[str, Array]
    kept: dict[str, Array]


@dataclass(frozen=True)
class DataSource:
    """A data set: `batches` iterates it; `rows` is None if unknown, `again` says whether it can be iterated again."""

    batches: Callable[[], Iterator[dict[str, Array]]]
    rows: int | None
    again: bool

    def parts(self, name: str, size: int, keep: Sequence[str]) -> Iterator[DataPart]:
        first = 0
        for number, batch in enumerate(_cut(self.batches(), name, size)):
            if missing := [column for column in keep if column not in batch]:
                raise BLSError(f"keep: the data has no column {missing[0]!r}; it has {', '.join(batch)}")
            kept = {column: batch.pop(column) for column in keep}
            rows = row_count(name, batch)
            yield DataPart(number, first, rows, batch, kept)
            first += rows


def source_of(name: str, data: Any, wanted: Sequence[str]) -> DataSource:
    """Return the source in `data` for a model; of frames and files it reads the `wanted` columns only.

    Raises BLSError: the data is no source, or pyarrow is missing.
    """
    if isinstance(data, (str, Path)):
        files = _parquet(Path(data).expanduser())
        columns = [column for column in wanted if column in files.schema.names]
        return DataSource(lambda: _read(files, columns), files.count_rows(), True)
    if _is_batch(data):
        batch = _batch(data, wanted)
        return DataSource(lambda: iter([batch]), row_count(name, batch), True)
    if isinstance(data, Iterable):
        again = not isinstance(data, Iterator)
        return DataSource(lambda: _batches(name, data, wanted), None, again)
    raise BLSError(f"map: data: got {type(data).__name__}, {_EXPECTED}")


def _is_batch(data: Any) -> bool:
    return isinstance(data, Mapping) or _names(data) is not None


def _names(data: Any) -> list[str] | None:
    """Return the columns of a frame (pandas, Polars) or table (pyarrow); None for other values."""
    if not (hasattr(data, "__getitem__") and hasattr(data, "shape")):
        return None
    names = getattr(data, "column_names", None) or getattr(data, "columns", None)
    return None if names is None else list(names)


def _batch(data: Any, wanted: Sequence[str]) -> dict[str, Array]:
    if isinstance(data, Mapping):
        return {str(name): as_column(name, values) for name, values in data.items()}
    return {name: as_column(name, data[name]) for name in _names(data) or () if name in wanted}


def _batches(name: str, data: Iterable[Any], wanted: Sequence[str]) -> Iterator[dict[str, Array]]:
    for number, batch in enumerate(data):
        if not _is_batch(batch):
            raise BLSError(f"map: data: item {number} is {type(batch).__name__}, {_EXPECTED}")
        yield _batch(batch, wanted)


def _parquet(path: Path) -> Any:
    try:
        from pyarrow import ArrowException, dataset
    except ImportError as error:
        raise BLSError(f"map: Parquet files need pyarrow, which is not installed; {EXTRA}") from error
    if not path.exists():
        raise BLSError(f"map: data: {path} does not exist; expected Parquet files or a folder of them")
    try:
        return dataset.dataset(path, format="parquet")
    except (ArrowException, OSError, ValueError) as error:
        raise BLSError(f"map: data: {path} is no folder of Parquet files: {str(error).splitlines()[0]}") from error


def _read(files: Any, columns: Sequence[str]) -> Iterator[dict[str, Array]]:
    from .arrow_columns import numpy_of

    for batch in files.to_batches(columns=list(columns)):
        if len(batch):
            yield {column: numpy_of(batch.column(column)) for column in columns}


def _cut(batches: Iterator[dict[str, Array]], name: str, size: int) -> Iterator[dict[str, Array]]:
    """Yield the same rows in batches of `size` rows; the last one may be smaller."""
    pending: list[dict[str, Array]] = []
    have = 0
    for batch in batches:
        rows, at = row_count(name, batch), 0
        if pending and batch.keys() != pending[0].keys():
            raise BLSError(f"map: data: batches have different columns: {list(pending[0])} and {list(batch)}")
        while have + rows - at >= size:
            end = at + size - have
            yield _joined([*pending, {column: values[at:end] for column, values in batch.items()}])
            pending, have, at = [], 0, end
        if at < rows:
            pending.append({column: values[at:] for column, values in batch.items()})
            have += rows - at
    if pending:
        yield _joined(pending)


def _joined(batches: Sequence[dict[str, Array]]) -> dict[str, Array]:
    if len(batches) == 1:
        return batches[0]
    return {column: _concatenated([batch[column] for batch in batches]) for column in batches[0]}


def _concatenated(arrays: Sequence[Array]) -> Array:
    if len({(array.shape[1:], array.dtype) for array in arrays}) == 1:
        return np.concatenate(arrays)
    return object_rows([row for array in arrays for row in array])
