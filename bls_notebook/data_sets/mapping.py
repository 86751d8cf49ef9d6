"""`map`: a model's answers to a whole data set, in this kernel or on a Dask cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.engine import BLSError
from bls_notebook.progress import Progress
from bls_notebook.records import duration
from bls_notebook.repository import ModelRepository
from bls_notebook.repository.source import shown_path
from bls_notebook.shipping.proof.comparison import Output, ProofAnswer, differences

from .batch_function import BatchFunction, check_number, checked_sender
from .records import FailedRow, MapRecord, PartRecord
from .result import MapResult, Read
from .rows import InputRows, RowAnswers, RowSender
from .snapshot import LIMIT, take
from .sources import EXTRA, DataPart, DataSource, source_of
from .workers import Answered, clients, in_kernel, on_client

_FAILED = 20  # failed rows of a record
_SIDES = ("here", "in the kernel")


class RowProgress(Progress):
    """Progress in rows, with the rate and the remaining time."""

    __slots__ = ()

    def __str__(self) -> str:
        seconds = time.monotonic() - self._began
        rate = self.done / seconds if seconds else 0.0
        of = f" of {self.total:,}" if self.total else ""
        left = f", {duration((self.total - self.done) / rate)} left" if self.total and rate else ""
        return f"{self.what}: {self.done:,}{of} rows, {rate:,.0f} rows/s{left}"


def map(
    name: str,
    data: Any,
    batch: int = 256,
    on: Any = None,
    into: str | Path | None = None,
    errors: str = "raise",
    outputs: Sequence[str] | None = None,
    concurrency: int = 1,
    keep: Sequence[str] = (),
    check: int = 0,
    folder: str | Path | None = None,
    limit: int = LIMIT,
    repo: ModelRepository | None = None,
) -> MapResult:
    """Return a model's answers to all rows of a data set.

    Ctrl-C cancels the unfinished parts and returns the finished ones.

    Parameters
    ----------
    name : str
        A loaded model.
    data : mapping of str to array, frame, path, or iterable of batches
        Arrays or memory maps whose first axis is the row; a pandas or Polars frame; a Parquet file or a folder of them;
        or an iterable of such mappings or frames. Of frames and files, the columns named as inputs are read.
    batch : int
        Rows of a part: the unit that is sent to a worker, written and repeated.
    on : None, int or dask.distributed.Client
        Where the models run: in this kernel; in so many new local worker processes; or on the workers of a cluster.
    into : str or Path, optional
        A folder for the answers: one Parquet file per part. Running again with the same rows and models continues after
        the last finished part, and computes parts again whose rows or models have changed.
    errors, outputs, concurrency, keep, folder, limit, repo
        As for `batch_function`. `keep` needs `into`: these columns are written beside the answers.
    check : int
        Number of random rows that the kernel's models answer, too; the record names differences.

    Returns
    -------
    MapResult
        ``result["OUT"]`` is an output of all rows.

    Raises
    ------
    BLSError
        An option or the data is wrong, or with ``errors="raise"``, a row has no answer (`RowError`).

    Examples
    --------
    >>> bls.map("reader", {"IMAGE": images}, on=4, into="answers/")  # doctest: +SKIP
    """
    check_number("map: batch", batch, 1)
    check_number("map: check", check, 0)
    sender = checked_sender(name, repo, outputs, concurrency, errors, keep)
    if keep and into is None:
        raise BLSError(f"map: keep={list(keep)} needs into=, a folder in which these columns are beside the answers")
    source = source_of(name, data, [*sender.spec.inputs, *keep])
    parts_folder = None
    answer: Callable[[Iterator[DataPart]], Iterator[Answered]] = partial(in_kernel, sender, stop=errors == "raise")
    with nullcontext() if on is None else clients(on) as client:
        if client is not None or into is not None:
            snapshot = take(name, sender.repository, folder if client else None, limit if client else 1 << 62)
        if into is not None:
            try:
                from .parts_folder import PartsFolder
            except ImportError as error:
                raise BLSError(f"map: into= needs pyarrow, which is not installed; {EXTRA}") from error
            parts_folder = PartsFolder(Path(into), sender.spec, sender.outputs, errors, snapshot.digest)
        if client is not None:
            function = BatchFunction(name, sender.outputs, concurrency, errors, tuple(keep), snapshot)
            answer = partial(on_client, client, function)
        return _Run(sender, source, batch, tuple(keep), errors, check, parts_folder).result(answer)


@dataclass
class _Run:
    """One call of `map`."""

    sender: RowSender
    source: DataSource
    batch: int
    keep: tuple[str, ...]
    errors: str
    check: int
    folder: Any  # PartsFolder, or None
    parts: list[PartRecord] = field(default_factory=list)
    read: dict[int, Read] = field(default_factory=dict)
    failed: list[FailedRow] = field(default_factory=list)
    keys: dict[int, str] = field(default_factory=dict)  # of the parts in work
    samples: list[tuple[float, int, int, InputRows]] = field(default_factory=list)  # random, part, row of it, this row
    random: Any = field(default_factory=partial(np.random.default_rng, 0))

    def result(self, answer: Callable[[Iterator[DataPart]], Iterator[Answered]]) -> MapResult:
        """Run the data set; `answer` yields the answers to parts."""
        name, interrupted = self.sender.name, False
        started, wall = time.perf_counter(), time.time()
        with RowProgress(name, self.source.count or 0) as self.bar:
            try:
                with closing(answer(self._unfinished())) as done:  # type: ignore[type-var]
                    for each in done:
                        self._take(each, wall)
                if self.folder is not None:
                    self.folder.remove_from(len(self.read))
            except KeyboardInterrupt:
                interrupted = True
        seconds = time.perf_counter() - started
        parts = sorted(self.parts, key=lambda part: part.number)
        record = MapRecord(
            name, self.sender.outputs, sum(part.rows for part in parts), self.source.count or 0, seconds, tuple(parts),
            tuple(sorted(self.failed, key=lambda each: each.row)[:_FAILED]), sum(part.failed for part in parts),
            "" if self.folder is None else shown_path(self.folder.folder), interrupted, again=self.source.again,
        )  # fmt: skip
        if self.check and not interrupted:
            record = replace(record, checked=len(self.samples), differences=tuple(self._differences()))
        return MapResult(record, self.read, self.errors, self._profile)

    def _parts(self) -> Iterator[DataPart]:
        return self.source.parts(self.sender.name, self.batch, self.keep)

    def _unfinished(self) -> Iterator[DataPart]:
        """Yield the parts that an earlier run has not finished."""
        for part in self._parts():
            self._sample(part)
            if self.folder is not None:
                key = self.keys[part.number] = self.folder.key(part)
                if self.folder.is_finished(part.number, key):
                    finished = PartRecord(part.number, part.rows.first, part.rows.count)
                    self._record(finished, self.folder.read(part.number))
                    continue
            yield part

    def _take(self, done: Answered, wall: float) -> None:
        part, rows = done.part, done.part.rows
        if self.folder is not None:
            self.folder.write(part, self.keys.pop(part.number), done.answers)
        began = max(0.0, done.began - wall)
        self._record(PartRecord(part.number, rows.first, rows.count, done.worker, began, done.seconds), done.answers)

    def _record(self, part: PartRecord, answers: RowAnswers) -> None:
        failed = [FailedRow(part.first + row, message) for row, message in answers.failures.items()]
        self.failed += failed[:_FAILED]
        self.parts.append(replace(part, failed=len(failed)))
        self.read[part.number] = (lambda: answers) if self.folder is None else partial(self.folder.read, part.number)
        self.bar.step(part.rows)

    def _sample(self, part: DataPart) -> None:
        """Keep `check` of all rows: those with the smallest random numbers."""
        numbers = self.random.random(part.rows.count if self.check else 0)
        for row in numbers.argsort()[: self.check].tolist():
            inputs = {name: values[row : row + 1].copy() for name, values in part.rows.inputs.items()}
            self.samples.append((numbers[row], part.number, row, InputRows(part.rows.first + row, 1, inputs)))
        self.samples = sorted(self.samples, key=itemgetter(0))[: self.check]

    def _differences(self) -> Iterator[str]:
        """Yield how the kernel's answers to the sampled rows differ."""
        for number, samples in groupby(sorted(self.samples, key=itemgetter(1, 2)), key=itemgetter(1)):
            answers = self.read[number]()
            for _, _, row, rows in samples:
                here = _proof_answers(answers, row, self.sender)
                there = _proof_answers(self.sender.send(rows, stop=False), 0, self.sender)
                for line in differences(here, there, sides=_SIDES).lines:
                    yield f"row {rows.first:,}: {line}"

    def _profile(self, part: int) -> Any:
        import bls_notebook as bls

        if not self.source.again:
            raise BLSError("profile: the data was an iterator, which cannot be read again; pass a list or arrays")
        rows = next(islice(self._parts(), part, None)).rows
        with bls.profile() as session:
            self.sender.send(rows, stop=False)
        return session


def _proof_answers(answers: RowAnswers, row: int, sender: RowSender) -> list[ProofAnswer]:
    """Return the answer to a row as `prove` compares it."""
    if row in answers.failures:
        return [ProofAnswer(error=answers.failures[row])]
    outputs = answers.row(row)
    each = zip_longest(*outputs.values()) if sender.spec.decoupled else [outputs.values()]
    return [
        ProofAnswer(
            {
                name: Output(sender.spec.outputs[name].datatype, np.asarray(value))
                for name, value in zip(outputs, values, strict=True) if value is not None
            }
        )
        for values in each
    ]  # fmt: skip
