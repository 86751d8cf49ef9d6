"""`map`: a model's answers to a whole data set, in this kernel or on a Dask cluster."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
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

from .batch_function import BatchFunction, checked_sender
from .records import FailedRow, MapRecord, PartRecord
from .result import MapResult, Read
from .rows import Array, RowAnswers, RowSender
from .snapshot import LIMIT, take
from .sources import EXTRA, DataPart, DataSource, source_of
from .workers import PartDone, clients, in_kernel, on_client

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
    for option, value, least in (("batch", batch, 1), ("check", check, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise BLSError(f"map: {option}: got {value!r}, expected a number of rows from {least}")
    sender = checked_sender(name, repo, outputs, concurrency, errors, keep)
    source = source_of(name, data, [*sender.spec.inputs, *keep])
    with ExitStack() as stack:
        client = None if on is None else stack.enter_context(clients(on))
        function = None
        if on is not None or into is not None:
            most = limit if on is not None else 1 << 62
            snapshot = take(name, sender.repository, folder if on is not None else None, most)
            function = BatchFunction(name, sender.outputs, concurrency, errors, tuple(keep), snapshot)
        run = _Run(sender, source, batch, errors, keep, into, function, check)
        return run.result(client)


class _Run:
    """One call of `map`."""

    def __init__(
        self, sender: RowSender, source: DataSource, batch: int, errors: str, keep: Sequence[str],
        into: str | Path | None, function: BatchFunction | None, check: int,
    ) -> None:  # fmt: skip
        self.sender, self.source, self.batch, self.errors, self.keep = sender, source, batch, errors, tuple(keep)
        self.function, self.check = function, check
        self.parts: list[PartRecord] = []
        self.read: dict[int, Read] = {}
        self.failed: list[FailedRow] = []
        self.failures = 0
        self.count = 0  # parts of the data set
        self.keys: dict[int, str] = {}
        self._samples: list[tuple[int, int, dict[str, Array]]] = []  # part, row in it, its inputs
        self._random, self._seen = random.Random(0), 0
        self.folder: Any = None
        if into is not None:
            try:
                from .parts_folder import PartsFolder
            except ImportError as error:
                raise BLSError(f"map: into= needs pyarrow, which is not installed; {EXTRA}") from error
            assert function is not None
            self.folder = PartsFolder(Path(into), sender.spec, sender.outputs, errors, function.snapshot.digest)

    def result(self, client: Any) -> MapResult:
        name, interrupted = self.sender.name, False
        started, wall = time.perf_counter(), time.time()
        with RowProgress(name, self.source.rows or 0) as self.bar:
            waiting = self._unfinished()
            done: Iterator[PartDone] = (
                in_kernel(self.sender, waiting, self.errors == "raise")
                if client is None
                else on_client(client, self._function(), waiting)
            )
            try:
                for each in done:
                    self._take(each, wall)
                if self.folder is not None:
                    self.folder.remove_from(self.count)
            except KeyboardInterrupt:
                interrupted = True
            finally:
                done.close()  # type: ignore[attr-defined]
        seconds = time.perf_counter() - started
        self.parts.sort(key=lambda part: part.number)
        record = MapRecord(
            name, self.sender.outputs, sum(part.rows for part in self.parts), self.source.rows or 0, seconds,
            tuple(self.parts), tuple(sorted(self.failed, key=lambda each: each.row)[:_FAILED]), self.failures,
            "" if self.folder is None else shown_path(self.folder.folder), interrupted, again=self.source.again,
        )  # fmt: skip
        if self.check and not interrupted:
            record = replace(record, checked=len(self._samples), differences=tuple(self._differences()))
        return MapResult(record, self.read, self.errors, self._profile)

    def _function(self) -> BatchFunction:
        assert self.function is not None
        return self.function

    def _unfinished(self) -> Iterator[DataPart]:
        """Yield the parts that an earlier run has not finished."""
        for part in self.source.parts(self.sender.name, self.batch, self.keep):
            self.count = part.number + 1
            self._sample(part)
            if self.folder is not None:
                key = self.keys[part.number] = self.folder.key(part)
                if self.folder.is_finished(part.number, key):
                    self._record(PartRecord(part.number, part.first, part.rows), self.folder.read(part.number))
                    continue
            yield part

    def _take(self, done: PartDone, wall: float) -> None:
        part = done.part
        if self.folder is not None:
            self.folder.write(part, self.keys.pop(part.number), done.answers)
        began, failed = max(0.0, done.began - wall), len(done.answers.failures)
        row = PartRecord(part.number, part.first, part.rows, done.worker, began, done.seconds, failed)
        self._record(row, done.answers)

    def _record(self, part: PartRecord, answers: RowAnswers) -> None:
        failed = [FailedRow(part.first + each.row, each.message) for each in answers.failures]
        self.failures += len(failed)
        self.failed += failed[:_FAILED]
        self.parts.append(replace(part, failed=len(failed)))
        self.read[part.number] = (lambda: answers) if self.folder is None else partial(self.folder.read, part.number)
        self.bar.step(part.rows)

    def _sample(self, part: DataPart) -> None:
        """Keep `check` random rows of those seen so far, each equally likely."""
        for row in range(part.rows if self.check else 0):
            self._seen += 1
            place = len(self._samples) if len(self._samples) < self.check else self._random.randrange(self._seen)
            if place < self.check:
                inputs = {name: values[row : row + 1].copy() for name, values in part.inputs.items()}
                self._samples[place : place + 1] = [(part.number, row, inputs)]

    def _differences(self) -> Iterator[str]:
        """Yield how the kernel's answers to the sampled rows differ."""
        first = {part.number: part.first for part in self.parts}
        ordered = sorted(self._samples, key=lambda sample: sample[:2])
        for number, samples in groupby(ordered, key=itemgetter(0)):
            answers = self.read[number]()
            for _, row, inputs in samples:
                here = _proof_answers(answers, row, self.sender)
                there = _proof_answers(self.sender.send(inputs, stop=False), 0, self.sender)
                for line in differences(here, there, sides=_SIDES).lines:
                    yield f"row {first[number] + row:,}: {line}"

    def _profile(self, part: int) -> Any:
        import bls_notebook as bls

        if not self.source.again:
            raise BLSError("profile: the data was an iterator, which cannot be read again; pass a list or arrays")
        parts = self.source.parts(self.sender.name, self.batch, self.keep)
        inputs = next(islice(parts, part, None)).inputs
        with bls.profile() as session:
            self.sender.send(inputs, stop=False)
        return session


def _proof_answers(answers: RowAnswers, row: int, sender: RowSender) -> list[ProofAnswer]:
    """Return the answer to a row as `prove` compares it."""
    failure = next((each for each in answers.failures if each.row == row), None)
    if failure is not None:
        return [ProofAnswer(error=failure.message)]
    values = {name: answers.column(name)[row] for name in sender.outputs}
    values = {name: value for name, value in values.items() if value is not None}
    if sender.spec.decoupled:
        count = max((len(value) for value in values.values()), default=0)
        each = [{name: value[i] for name, value in values.items() if i < len(value)} for i in range(count)]
    else:
        each = [values]
    types = {name: spec.datatype for name, spec in sender.spec.outputs.items()}
    return [ProofAnswer({name: Output(types[name], np.asarray(v)) for name, v in one.items()}) for one in each]
