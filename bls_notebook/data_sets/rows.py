"""Rows of a data set: sent to a model in requests that its configuration allows, and their answers as columns.

Guarantees: row i of a column is the answer to row i, whatever the requests were and in which order they were answered.
A row without an answer has exactly one message. `RowSender` may be used by several threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
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
class InputRows:
    """Consecutive rows of inputs, numbered from `first`: arrays by input whose first axis is the row."""

    first: int
    count: int
    inputs: dict[str, Array] = field(repr=False)

    def cut(self, size: int) -> Iterator[InputRows]:
        """Yield the same rows in runs of `size`; the last one may be smaller."""
        for at in range(0, self.count, size):
            some = {name: values[at : at + size] for name, values in self.inputs.items()}
            yield InputRows(self.first + at, min(size, self.count - at), some)


@dataclass(frozen=True)
class RowAnswers:
    """The answers to `count` rows: outputs of the answered rows, and messages of the others by row."""

    count: int
    outputs: dict[str, Array]
    failures: dict[int, str]

    def columns(self, outputs: Sequence[str], errors: str) -> dict[str, Array]:
        """Return outputs of all rows; with ``errors="column"``, failed rows are masked and have a message."""
        columns = {name: self.outputs[name] for name in outputs}
        if errors == "raise":
            return columns
        failed, messages = np.zeros(self.count, bool), object_rows([None] * self.count)
        for row, message in self.failures.items():
            failed[row], messages[row] = True, message
        for name, values in columns.items():
            column = np.full((self.count, *values.shape[1:]), None if values.dtype == object else 0, values.dtype)
            column[~failed] = values
            columns[name] = np.ma.MaskedArray(column, np.zeros(column.shape, bool))
            columns[name][failed] = np.ma.masked
        return {**columns, ERROR: messages}

    def row(self, row: int) -> dict[str, Any]:
        """Return the outputs of an answered row."""
        place = row - sum(failed < row for failed in self.failures)
        return {name: values[place] for name, values in self.outputs.items()}


def unanswered(outputs: Sequence[str], failures: dict[int, str]) -> RowAnswers:
    """Return answers to rows of which all failed."""
    return RowAnswers(len(failures), dict.fromkeys(outputs, object_rows([])), failures)


def together(answers: Sequence[RowAnswers]) -> RowAnswers:
    """Return the answers to consecutive rows as one."""
    count, failures = 0, dict[int, str]()
    for each in answers:
        failures |= {count + row: message for row, message in each.failures.items()}
        count += each.count
    answered = [each for each in answers if each.count > len(each.failures)] or answers[:1]
    outputs = {name: joined([each.outputs[name] for each in answered]) for name in answered[0].outputs}
    return RowAnswers(count, outputs, failures)


def joined(columns: Sequence[Array]) -> Array:
    """Return columns of consecutive rows as one; an object array of rows where their shapes differ."""
    if len(columns) == 1:
        return columns[0]
    if len({(column.shape[1:], column.dtype) for column in columns}) == 1:
        return np.concatenate(columns)
    return object_rows([row for column in columns for row in column])


def object_rows(rows: Sequence[Any]) -> Array:
    """Return an array of one object per row, also if the rows are arrays of one shape."""
    out = np.empty(len(rows), object)
    for row, value in enumerate(rows):
        out[row] = value
    return out


def row_count(name: str, columns: Columns) -> int:
    """Return the number of rows, or raise a BLSError if the columns differ in it."""
    lengths = {column: len(values) for column, values in columns.items()}
    if not lengths:
        raise BLSError(f"model {name!r}: got no columns, expected a dict of input names to arrays of rows")
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{column!r}: {length:,}" for column, length in lengths.items())
        raise BLSError(f"model {name!r}: the columns have different numbers of rows ({told}); expected one number")
    return next(iter(lengths.values()))


def as_column(name: str, values: Any) -> Array:
    """Return values of rows as an array whose first axis is the row: lists, Series and arrays of text too."""
    if not isinstance(values, np.ndarray):
        try:
            values = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
        except ValueError:  # rows of different lengths
            values = object_rows([np.asarray(value) for value in values])
    if not values.ndim:
        raise BLSError(f"column {name!r}: got one value, expected an array whose first axis is the row")
    return values.astype(object) if values.dtype.kind in "UST" else values  # type: ignore[no-any-return]


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
        if unknown := [output for output in outputs or () if output not in self.spec.outputs]:
            known = ", ".join(self.spec.outputs)
            raise BLSError(f"model {name!r}: outputs: got {unknown[0]!r}, expected some of {known}")
        self.outputs = tuple(outputs or self.spec.outputs)
        self._options: Any = {"outputs": self.outputs, "preferred_memory": "cpu"}
        self._batches = self.spec.max_batch_size > 0
        self._most = max(1, self.spec.max_batch_size) if not self.spec.decoupled else 1

    def send(self, rows: InputRows, stop: bool = True) -> RowAnswers:
        """Return the answers to rows; with `stop`, a row without an answer raises a `RowError` instead."""
        self._check_names(rows.inputs)
        pieces: dict[int, dict[str, Array]] = {}
        failures: dict[int, str] = {}
        for request, result in self._answered(self._requests(rows)):
            # One bad row fails a request of many; the others still have answers.
            alone = isinstance(result, dict) or request.count == 1
            for each, answer in [(request, result)] if alone else ((one, self._ask(one)) for one in request.cut(1)):
                if isinstance(answer, dict):
                    pieces[each.first] = answer
                elif stop:
                    raise RowError(f"row {each.first:,}: model {self.name!r}: {first_line(answer)}")
                else:
                    failures[each.first - rows.first] = answer
        if not pieces:
            return unanswered(self.outputs, dict(sorted(failures.items())))
        outputs = {name: joined([pieces[first][name] for first in sorted(pieces)]) for name in self.outputs}
        return RowAnswers(rows.count, outputs, dict(sorted(failures.items())))

    def _check_names(self, columns: Columns) -> None:
        known = ", ".join(self.spec.inputs)
        if unknown := [name for name in columns if name not in self.spec.inputs]:
            raise BLSError(
                f"model {self.name!r}: got the column {unknown[0]!r}, expected inputs: {known}; leave it out, or name "
                "it in keep= to have it beside the answers"
            )
        if missing := [name for name in self.spec.required if name not in columns]:
            raise BLSError(f"model {self.name!r}: no column for the input {missing[0]!r}, expected inputs: {known}")

    def _requests(self, rows: InputRows) -> Iterator[InputRows]:
        """Yield the rows of each request: as many of equal shapes as the model batches."""
        inputs = {name: self._column(name, values) for name, values in rows.inputs.items()}
        varying = [values for values in inputs.values() if values.dtype == object]

        def shapes(row: int) -> list[Any]:
            return [None if values[row] is None else values[row].shape for values in varying]

        for _, group in groupby(range(rows.count), shapes):
            start, *others = group
            count = 1 + len(others)
            same = InputRows(
                rows.first + start, count, {n: values[start : start + count] for n, values in inputs.items()}
            )
            for some in same.cut(self._most):
                yield InputRows(some.first, some.count, dict(self._stacked(some.inputs)))

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

    def _stacked(self, columns: Columns) -> Iterator[tuple[str, Array]]:
        for name, values in columns.items():
            if values.dtype != object:
                yield name, values
            elif values[0] is not None or not self.spec.inputs[name].optional:
                yield name, np.stack([np.full(1, None, object) if value is None else value for value in values])

    def _answered(self, requests: Iterator[InputRows]) -> Iterator[tuple[InputRows, dict[str, Array] | str]]:
        """Yield each request's rows with their answers or the error, as they arrive."""
        if self.concurrency == 1:
            yield from ((rows, self._ask(rows)) for rows in requests)
            return
        answered: SimpleQueue[SentRequest] = SimpleQueue()
        in_flight: dict[SentRequest, InputRows] = {}
        try:
            while True:
                for rows in islice(requests, self.concurrency - len(in_flight)):
                    try:
                        request = self._host.request(self.name, self._sent(rows), **self._options)
                    except BLSError as error:
                        yield rows, first_line(str(error))
                        continue
                    sent = self._host.send(request, stream=self.spec.decoupled)
                    in_flight[sent] = rows
                    sent.add_done_callback(answered.put)  # type: ignore[arg-type]
                if not in_flight:
                    return
                sent = answered.get()
                result = sent.result()
                yield (rows := in_flight.pop(sent)), self._answer(rows, result if self.spec.decoupled else [result])
        finally:
            for sent in in_flight:
                sent.cancel()

    def _ask(self, rows: InputRows) -> dict[str, Array] | str:
        """Return the answers to the rows of one request, or the message of its error."""
        repository, inputs = self.repository, self._sent(rows)
        try:
            if self.spec.decoupled:
                return self._answer(rows, list(repository.stream(self.name, inputs, **self._options)))
            return self._answer(rows, [repository.infer(self.name, inputs, **self._options)])
        except BLSError as error:  # a value cannot become a tensor
            return first_line(str(error))

    def _sent(self, rows: InputRows) -> dict[str, Array]:
        return rows.inputs if self._batches else {name: values[0] for name, values in rows.inputs.items()}

    def _answer(self, rows: InputRows, responses: Sequence[Response]) -> dict[str, Array] | str:
        """Return the answers to the rows of a request, or why it has none. A row of a decoupled model has lists."""
        if error := next((response.error for response in responses if response.error is not None), None):
            return str(error.message())
        arrays = [response.as_numpy() for response in responses]
        answer = {}
        for name in self.outputs:
            values = [array[name] for array in arrays if name in array]
            if self.spec.decoupled:
                values = [value[0] if self._batches and len(value) == 1 else value for value in values]
                answer[name] = object_rows([values])
            elif not values:
                answer[name] = object_rows([None] * rows.count)
            elif not self._batches:
                answer[name] = values[0][None]
            elif len(values[0]) != rows.count:
                return f"output {name!r} has {len(values[0]):,} rows, expected {rows.count:,}, as the request"
            else:
                answer[name] = values[0]
        return answer
