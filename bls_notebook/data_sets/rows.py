"""Rows of a data set: sent to a model in requests that its configuration allows, and their answers as columns.

Guarantees: row i of a column is the answer to row i, whatever the requests were and in which order they were answered.
A row without an answer has exactly one `RowFailure`. `RowSender` may be used by several threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from operator import itemgetter
from queue import SimpleQueue
from typing import Any

import numpy as np

from bls_notebook.engine import BLSError
from bls_notebook.extending import SentRequest, host_of
from bls_notebook.records import first_line
from bls_notebook.repository import ModelRepository, Response

Array = np.ndarray[Any, Any]
Columns = Mapping[str, Array]

ERROR = "error"
"""The column of messages, with ``errors="column"``."""


class RowError(BLSError):
    """A row has no answer; the message names the row, the model and the reason."""


@dataclass(frozen=True)
class RowFailure:
    """A row without an answer."""

    row: int
    message: str


@dataclass(frozen=True)
class AnsweredRows:
    """Answers to consecutive rows from `first`: arrays by output whose first axis is the row."""

    first: int
    rows: int
    arrays: dict[str, Array]


@dataclass(frozen=True)
class RowAnswers:
    """The answers to rows from 0 to `rows`."""

    rows: int
    pieces: tuple[AnsweredRows, ...] = ()
    failures: tuple[RowFailure, ...] = ()

    def shifted(self, first: int) -> RowAnswers:
        """Return the same answers to rows from `first`."""
        pieces = (replace(piece, first=piece.first + first) for piece in self.pieces)
        failures = (replace(failure, row=failure.row + first) for failure in self.failures)
        return RowAnswers(self.rows, tuple(pieces), tuple(failures))

    def merged(self) -> RowAnswers:
        """Return the same answers in few pieces."""
        ordered = sorted(self.pieces, key=lambda piece: piece.first)
        pieces: list[list[AnsweredRows]] = []
        for piece in ordered:
            if pieces and pieces[-1][-1].first + pieces[-1][-1].rows == piece.first and _alike(pieces[-1][-1], piece):
                pieces[-1].append(piece)
            else:
                pieces.append([piece])
        return replace(self, pieces=tuple(map(_joined, pieces)))

    def column(self, output: str) -> Array:
        """Return an output of all rows; an object array where the rows' shapes differ. Failed rows are 0 or None."""
        present = [piece for piece in self.pieces if output in piece.arrays]
        arrays = [piece.arrays[output] for piece in present]
        complete = sum(piece.rows for piece in present) + len(self.failures) == self.rows
        if arrays and complete and len({(array.shape[1:], array.dtype) for array in arrays}) == 1:
            if len(arrays) == 1 and not self.failures:
                return arrays[0]
            out = np.zeros((self.rows, *arrays[0].shape[1:]), arrays[0].dtype)
            if arrays[0].dtype == object:
                out.fill(None)
        else:
            out = np.full(self.rows, None, object)
        for piece, array in zip(present, arrays, strict=True):
            if out.dtype == object and out.ndim == 1 and (array.ndim > 1 or array.dtype != object):
                for row in range(piece.rows):
                    out[piece.first + row] = array[row]
            else:
                out[piece.first : piece.first + piece.rows] = array
        return out

    def columns(self, outputs: Sequence[str], errors: str) -> dict[str, Array]:
        """Return the outputs by name; with ``errors="column"``, failed rows are masked and have a message."""
        columns = {output: self.column(output) for output in outputs}
        if errors == "raise":
            return columns
        failed = [failure.row for failure in self.failures]
        for name, column in columns.items():
            mask = np.zeros(column.shape, bool)
            mask[failed] = True
            columns[name] = np.ma.MaskedArray(column, mask)
        messages = np.full(self.rows, None, object)
        for failure in self.failures:
            messages[failure.row] = failure.message
        return {**columns, ERROR: messages}


def together(rows: int, answers: Sequence[RowAnswers]) -> RowAnswers:
    """Return answers to parts of the same rows as one."""
    pieces = tuple(piece for each in answers for piece in each.pieces)
    failures = sorted((failure for each in answers for failure in each.failures), key=lambda failure: failure.row)
    return RowAnswers(rows, pieces, tuple(failures)).merged()


def _alike(one: AnsweredRows, other: AnsweredRows) -> bool:
    return {n: (a.shape[1:], a.dtype) for n, a in one.arrays.items()} == {
        n: (a.shape[1:], a.dtype) for n, a in other.arrays.items()
    }


def _joined(pieces: Sequence[AnsweredRows]) -> AnsweredRows:
    if len(pieces) == 1:
        return pieces[0]
    arrays = {name: np.concatenate([piece.arrays[name] for piece in pieces]) for name in pieces[0].arrays}
    return AnsweredRows(pieces[0].first, sum(piece.rows for piece in pieces), arrays)


def row_count(name: str, columns: Columns) -> int:
    """Return the number of rows, or raise a BLSError if the columns differ in it."""
    lengths = {column: len(values) for column, values in columns.items()}
    if not lengths:
        raise BLSError(f"model {name!r}: got no columns, expected a dict of input names to arrays of rows")
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{column!r}: {length:,}" for column, length in lengths.items())
        raise BLSError(f"model {name!r}: the columns have different numbers of rows ({told}); expected one number")
    return next(iter(lengths.values()))


def object_rows(rows: Sequence[Any]) -> Array:
    """Return an array of one object per row, also if the rows are arrays of one shape."""
    out = np.empty(len(rows), object)
    for row, value in enumerate(rows):
        out[row] = value
    return out


def as_column(name: str, values: Any) -> Array:
    """Return values of rows as an array whose first axis is the row: lists, Series and arrays of text too."""
    if not isinstance(values, np.ndarray):
        values = values.to_numpy() if hasattr(values, "to_numpy") else _array(values)
    if values.dtype.kind in "UST":
        values = values.astype(object)
    if not values.ndim:
        raise BLSError(f"column {name!r}: got one value, expected an array whose first axis is the row")
    return values  # type: ignore[no-any-return]


def _array(values: Any) -> Array:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = object_rows([np.asarray(value) for value in values])
    return array.astype(object) if array.dtype.kind in "US" else array


@dataclass(frozen=True)
class _Chunk:
    """Consecutive rows that make one request."""

    first: int
    rows: int
    inputs: dict[str, Array] = field(repr=False)


class RowSender:
    """Sends rows to one model of a repository.

    A model with a `max_batch_size` gets requests of up to this many rows, other models one row per request.
    """

    def __init__(
        self, repository: ModelRepository, name: str, outputs: Sequence[str] | None = None, concurrency: int = 1
    ) -> None:
        self.name, self.repository, self.concurrency = name, repository, concurrency
        self._host = host_of(repository)
        self.spec = self._host.ready(name).spec
        if self.spec.scheduler == "sequence":
            raise BLSError(
                f"model {name!r} batches sequences, whose requests depend on each other, and rows do not; "
                "send them with infer(..., correlation_id=, flags=)"
            )
        unknown = [output for output in outputs or () if output not in self.spec.outputs]
        if unknown:
            known = ", ".join(self.spec.outputs)
            raise BLSError(f"model {name!r}: outputs: got {unknown[0]!r}, expected some of {known}")
        self.outputs = tuple(outputs or self.spec.outputs)
        self._options: Any = {"outputs": self.outputs, "preferred_memory": "cpu"}
        self._most = max(1, self.spec.max_batch_size) if not self.spec.decoupled else 1

    def send(self, columns: Columns, stop: bool = True, first: int = 0) -> RowAnswers:
        """Return the answers to all rows.

        Parameters
        ----------
        columns : mapping of str to ndarray
            Inputs by name; the first axis is the row.
        stop : bool
            Whether a row without an answer ends the call with a `RowError`.
        first : int
            Number of the first row in messages.
        """
        rows = row_count(self.name, columns)
        self._refuse_unknown(columns)
        pieces: list[AnsweredRows] = []
        failures: list[RowFailure] = []
        for chunk, result in self._answered(self._chunks(columns, rows)):
            if isinstance(result, AnsweredRows):
                pieces.append(result)
                continue
            # One bad row fails a request of many; the others still have answers.
            for one in self._single(chunk) if chunk.rows > 1 else ():
                again = self._ask(one)
                if isinstance(again, AnsweredRows):
                    pieces.append(again)
                else:
                    failures.append(RowFailure(one.first, again))
                    if stop:
                        break
            if chunk.rows == 1:
                failures.append(RowFailure(chunk.first, result))
            if failures and stop:
                failure = failures[0]
                raise RowError(f"row {first + failure.row:,}: model {self.name!r}: {first_line(failure.message)}")
        failures.sort(key=lambda failure: failure.row)
        return RowAnswers(rows, tuple(pieces), tuple(failures)).merged()

    def _refuse_unknown(self, columns: Columns) -> None:
        known = ", ".join(self.spec.inputs)
        if unknown := [name for name in columns if name not in self.spec.inputs]:
            raise BLSError(
                f"model {self.name!r}: got the column {unknown[0]!r}, expected inputs: {known}; leave it out, or name "
                "it in keep= to have it beside the answers"
            )
        if missing := [name for name in self.spec.required if name not in columns]:
            raise BLSError(f"model {self.name!r}: no column for the input {missing[0]!r}, expected inputs: {known}")

    def _chunks(self, columns: Columns, rows: int) -> Iterator[_Chunk]:
        columns = {name: self._column(name, values) for name, values in columns.items()}
        varying = [values for values in columns.values() if values.dtype == object]
        if not varying:
            groups: Iterator[Any] = iter([range(rows)])
        else:  # rows of one request have equal shapes
            shapes = (tuple(None if v[row] is None else v[row].shape for v in varying) for row in range(rows))
            groups = (range(some[0][0], some[-1][0] + 1) for some in _runs(enumerate(shapes)))
        for group in groups:
            for start in group[:: self._most]:
                count = min(self._most, group.stop - start)
                yield _Chunk(start, count, self._inputs(columns, start, count))

    def _column(self, name: str, values: Array) -> Array:
        """Return a column whose rows have the input's rank: a number or text per row becomes one element.

        A column of objects becomes one of arrays, or None where the row lacks the input.
        """
        spec = self.spec.inputs[name]
        if values.dtype != object:
            if spec.dtype is not None and values.dtype != spec.dtype:
                raise BLSError(
                    f"model {self.name!r}: the column {name!r} is {values.dtype}, expected {spec.dtype} "
                    f"({spec.datatype}); convert it with .astype({str(spec.dtype)!r})"
                )
            return values.reshape(-1, 1) if values.ndim == 1 and len(spec.dims) == 1 else values
        rows: list[Any] = []
        for value in values:
            if isinstance(value, (list, tuple)):
                value = np.asarray(value, spec.dtype)
            elif not isinstance(value, np.ndarray) and value is not None:
                dtype = object if isinstance(value, (str, bytes)) else spec.dtype
                value = np.full((1,) * len(spec.dims), value, dtype)
            rows.append(value)
        return object_rows(rows)

    def _inputs(self, columns: Columns, start: int, count: int) -> dict[str, Array]:
        inputs = {}
        for name, values in columns.items():
            some = values[start : start + count]
            if some.dtype == object:
                if some[0] is None and self.spec.inputs[name].optional:
                    continue
                some = np.stack([np.full(1, None, object) if value is None else value for value in some])
            inputs[name] = some
        return inputs

    def _single(self, chunk: _Chunk) -> Iterator[_Chunk]:
        for row in range(chunk.rows):
            yield _Chunk(chunk.first + row, 1, {n: values[row : row + 1] for n, values in chunk.inputs.items()})

    def _answered(self, chunks: Iterator[_Chunk]) -> Iterator[tuple[_Chunk, AnsweredRows | str]]:
        """Yield each request's rows with their answers or the error, as they arrive."""
        if self.concurrency == 1:
            yield from ((chunk, self._ask(chunk)) for chunk in chunks)
            return
        answered: SimpleQueue[SentRequest] = SimpleQueue()
        in_flight: dict[SentRequest, _Chunk] = {}
        try:
            while True:
                for chunk in islice(chunks, self.concurrency - len(in_flight)):
                    try:
                        request = self._host.request(self.name, self._sent(chunk), **self._options)
                    except BLSError as error:
                        yield chunk, first_line(str(error))
                        continue
                    sent = self._host.send(request, stream=self.spec.decoupled)
                    in_flight[sent] = chunk
                    sent.add_done_callback(answered.put)  # type: ignore[arg-type]
                if not in_flight:
                    return
                sent = answered.get()
                chunk = in_flight.pop(sent)
                result = sent.result()
                yield chunk, self._piece(chunk, result if self.spec.decoupled else [result])
        finally:
            for sent in in_flight:
                sent.cancel()

    def _ask(self, chunk: _Chunk) -> AnsweredRows | str:
        """Return the answers to the rows of one request, or the message of its error."""
        repository, inputs = self.repository, self._sent(chunk)
        try:
            if self.spec.decoupled:
                return self._piece(chunk, list(repository.stream(self.name, inputs, **self._options)))
            return self._piece(chunk, [repository.infer(self.name, inputs, **self._options)])
        except BLSError as error:  # a value cannot become a tensor
            return first_line(str(error))

    def _sent(self, chunk: _Chunk) -> dict[str, Array]:
        batches = self.spec.max_batch_size > 0
        return chunk.inputs if batches else {name: values[0] for name, values in chunk.inputs.items()}

    def _piece(self, chunk: _Chunk, responses: Sequence[Response]) -> AnsweredRows | str:
        """Return the answers to the rows of a request, or why it has none."""
        failed = next((response.error for response in responses if response.error is not None), None)
        if failed is not None:
            return str(failed.message())
        if self.spec.decoupled:
            return self._lists(chunk, responses)
        arrays = responses[0].as_numpy()
        if not self.spec.max_batch_size:
            return AnsweredRows(chunk.first, 1, {name: array[None] for name, array in arrays.items()})
        for name, array in arrays.items():
            if len(array) != chunk.rows:
                return f"output {name!r} has {len(array):,} rows, expected {chunk.rows:,}, as the request"
        return AnsweredRows(chunk.first, chunk.rows, arrays)

    def _lists(self, chunk: _Chunk, responses: Sequence[Response]) -> AnsweredRows:
        """Return a decoupled model's answers to one row: for each output a list with the arrays of all responses."""
        lists: dict[str, list[Array]] = {name: [] for name in self.outputs}
        for response in responses:
            for name, array in response.as_numpy().items():
                lists[name].append(array[0] if self.spec.max_batch_size and len(array) == 1 else array)
        return AnsweredRows(chunk.first, 1, {name: object_rows([values]) for name, values in lists.items()})


def _runs(values: Iterable[tuple[int, Any]]) -> Iterator[list[tuple[int, Any]]]:
    """Yield runs of consecutive equal values."""
    return (list(run) for _, run in groupby(values, key=itemgetter(1)))
