"""`BatchFunction`: a model as a function of rows that engines such as Ray Data, Spark and Dask distribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bls_notebook.engine import BLSError
from bls_notebook.extending import host_of
from bls_notebook.repository import ModelRepository

from .rows import ERROR, Array, InputRows, RowAnswers, RowSender, as_column, row_count
from .snapshot import LIMIT, Snapshot, opened, take

ERRORS = ("raise", "column")


@dataclass(frozen=True, eq=False)
class BatchFunction:
    """A picklable function of a batch, made by `batch_function`.

    Calling it with a mapping of input names to arrays, whose first axis is the row, returns a dict of the outputs with
    the same rows in the same order. Its pickle contains the models' files, and it runs where bls_notebook and the
    models' packages are installed, also with another version of Python. Calls from several threads are safe.
    """

    name: str
    outputs: tuple[str, ...]
    concurrency: int
    errors: str
    keep: tuple[str, ...]
    snapshot: Snapshot

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Array]:
        columns = {name: as_column(name, values) for name, values in batch.items()}
        kept = {name: columns.pop(name) for name in self.keep if name in columns}
        answers = self.answers(InputRows(0, row_count(self.name, columns), columns))
        return {**kept, **answers.columns(self.outputs, self.errors)}

    def answers(self, rows: InputRows) -> RowAnswers:
        """Return the answers to rows."""
        sender = RowSender(opened(self.snapshot), self.name, self.outputs, self.concurrency)
        return sender.send(rows, self.errors == "raise")


def batch_function(
    name: str,
    repo: ModelRepository | None = None,
    outputs: Sequence[str] | None = None,
    concurrency: int = 1,
    errors: str = "raise",
    keep: Sequence[str] = (),
    folder: str | Path | None = None,
    limit: int = LIMIT,
) -> BatchFunction:
    """Return a model, with everything that it calls, as a picklable function of rows.

    Parameters
    ----------
    name : str
        A loaded model. It may be decoupled: each row then gets a list. A model that batches sequences is refused.
    repo : ModelRepository, optional
        Default: `current_repository`.
    outputs : sequence of str, optional
        By default all.
    concurrency : int
        Requests in flight at a time.
    errors : str
        ``"raise"``: a row without an answer raises a `RowError` that names the row, the model and the reason.
        ``"column"``: such rows are masked (`numpy.ma`), and the column ``error`` has the message, or None. If a request
        of several rows fails, its rows are sent again one by one.
    keep : sequence of str
        Columns of the batch that are no inputs and are returned beside the outputs.
    folder : str or Path, optional
        A folder that all workers share, for models with large files: only paths and hashes travel.
    limit : int
        Most bytes of files that travel with the function.

    Returns
    -------
    BatchFunction
        ``function(batch)`` takes and returns a dict of arrays whose first axis is the row. Its `snapshot.warnings` name
        needs of the models that a worker may lack.

    Raises
    ------
    BLSError
        The model is not loaded, cannot run elsewhere (as for `export`), or its files are larger than `limit`.

    Examples
    --------
    >>> double = bls.batch_function("double")  # doctest: +SKIP
    >>> double({"IN": np.ones((1000, 3), np.float32)})["OUT"].shape  # doctest: +SKIP
    (1000, 3)
    """
    sender = checked_sender(name, repo, outputs, concurrency, errors, keep)
    snapshot = take(name, sender.repository, folder, limit)
    return BatchFunction(name, sender.outputs, concurrency, errors, tuple(keep), snapshot)


def checked_sender(
    name: str, repo: ModelRepository | None, outputs: Sequence[str] | None, concurrency: int, errors: str,
    keep: Sequence[str],
) -> RowSender:  # fmt: skip
    """Return the sender of a loaded model; a BLSError names an option that is wrong."""
    if errors not in ERRORS:
        raise BLSError(f"errors: got {errors!r}, expected one of {', '.join(map(repr, ERRORS))}")
    check_number("concurrency", concurrency, 1)
    for option, value in (("outputs", outputs), ("keep", keep)):
        if isinstance(value, (str, bytes)):
            raise BLSError(f"{option}: got the text {value!r}, expected a list of names, such as [{value!r}]")
    sender = RowSender(host_of(repo).repository, name, outputs, concurrency)
    taken = {*sender.outputs, *([ERROR] if errors == "column" else [])}
    if clash := [column for column in keep if column in taken or column in sender.spec.inputs]:
        raise BLSError(f"keep: {clash[0]!r} is an input or a column of the result; expected other columns")
    if errors == "column" and ERROR in sender.outputs:
        raise BLSError(f"errors='column': model {name!r} has an output {ERROR!r}; choose other outputs, or 'raise'")
    return sender


def check_number(option: str, value: object, least: int) -> None:
    """Raise a BLSError unless the value of an option is a whole number from `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BLSError(f"{option}: got {value!r}, expected a whole number from {least}")
