"""Sources of a data set: arrays, frames, Parquet files and iterators, cut into parts of equal size.

Guarantees: the same source gives the same parts. Only the columns that are needed are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bls_notebook.engine import BLSError

from .rows import Array, InputRows, as_column, joined, row_count

_EXPECTED = (
    "expected a dict of names to arrays, a pandas or Polars frame, the path of Parquet files, or an iterable of these"
)
EXTRA = "pip install 'bls_notebook[cluster]'"


@dataclass(frozen=True)
class DataPart:
    """A part of a data set: its rows, and the columns that are kept."""

    number: int
    rows: InputRows
    kept: dict[str, Array]


@dataclass(frozen=True)
class DataSource:
    """A data set: `batches` iterates it, `count` is its rows (None if unknown), `again` whether it can be repeated."""

    batches: Callable[[], Iterator[dict[str, Array]]]
    count: int | None
    again: bool

    def parts(self, name: str, size: int, keep: Sequence[str]) -> Iterator[DataPart]:
        for number, rows in enumerate(_cut(self.batches(), name, size)):
            if missing := [column for column in keep if column not in rows.inputs]:
                raise BLSError(f"keep: the data has no column {missing[0]!r}; it has {', '.join(rows.inputs)}")
            yield DataPart(number, rows, {column: rows.inputs.pop(column) for column in keep})


def source_of(name: str, data: Any, wanted: Sequence[str]) -> DataSource:
    """Return the source in `data` for a model; of frames and files it reads the `wanted` columns only.

    Raises BLSError: the data is no source, or pyarrow is missing.
    """
    if isinstance(data, (str, Path)):
        files = _parquet(Path(data).expanduser())
        columns = [column for column in wanted if column in files.schema.names]
        return DataSource(lambda: _read(files, columns), files.count_rows(), True)
    if (batch := _batch(data, wanted)) is not None:
        return DataSource(lambda: iter([batch]), row_count(name, batch), True)
    if isinstance(data, Iterable):
        return DataSource(lambda: _batches(data, wanted), None, not isinstance(data, Iterator))
    raise BLSError(f"map: data: got {type(data).__name__}, {_EXPECTED}")


def _batch(data: Any, wanted: Sequence[str]) -> dict[str, Array] | None:
    """Return the columns of a mapping, or of a frame (pandas, Polars) or table (pyarrow); None for other values."""
    if isinstance(data, Mapping):
        return {str(name): as_column(name, values) for name, values in data.items()}
    names = getattr(data, "column_names", None) or getattr(data, "columns", None)
    if names is None or not hasattr(data, "__getitem__"):
        return None
    return {name: as_column(name, data[name]) for name in names if name in wanted}


def _batches(data: Iterable[Any], wanted: Sequence[str]) -> Iterator[dict[str, Array]]:
    for number, item in enumerate(data):
        if (batch := _batch(item, wanted)) is None:
            raise BLSError(f"map: data: item {number} is {type(item).__name__}, {_EXPECTED}")
        yield batch


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


def _cut(batches: Iterator[dict[str, Array]], name: str, size: int) -> Iterator[InputRows]:
    """Yield the same rows in runs of `size`; the last one may be smaller."""
    first = waiting = 0
    pending: list[dict[str, Array]] = []

    def whole() -> InputRows:
        return InputRows(first, waiting, {column: joined([each[column] for each in pending]) for column in pending[0]})

    for batch in batches:
        if pending and batch.keys() != pending[0].keys():
            raise BLSError(f"map: data: batches have different columns: {list(pending[0])} and {list(batch)}")
        if count := row_count(name, batch):
            waiting += count
            pending.append(batch)
        if waiting >= size:
            for rows in whole().cut(size):
                pending, waiting = [rows.inputs], rows.count
                if waiting == size:
                    first, waiting, pending = first + size, 0, []
                    yield rows
    if waiting:
        yield whole()
