"""`record`: keep requests and responses with their tensors while models serve them as usual."""

from __future__ import annotations

import warnings
from pathlib import Path

from bls_notebook.engine import BLSError
from bls_notebook.extending import Scope
from bls_notebook.pb_utils.dtypes import Array
from bls_notebook.profiling.profiler import DEFAULT_LIMIT, Profile
from bls_notebook.records import Printable, bytes_in, count, size
from bls_notebook.testing.recording.payload_tape import Tape
from bls_notebook.testing.records import Recorded, TensorKept

from . import recording_file
from .recording import Recording
from .recording_file import digest, shown

LIMIT = 1 << 28


class Recorder(Scope, Printable):
    """A running or finished recording; see `record`."""

    to_servers = 0
    """Number of requests that went to a tritonserver, where they cannot be recorded."""

    def __init__(self, path: Path | None, tensors: str, limit: int, requests: int) -> None:
        self._path = path
        self._tape = Tape(tensors == "all", limit)
        self._profile = Profile(requests, "" if path is None else path.name, tape=self._tape, lines=False)
        self._made: Recording | None = None
        self._sent = 0

    def _check(self) -> None:
        if self._profile._start:
            raise BLSError("record: this recorder was used before; make a new one: with bls.record(...)")

    def _enter(self) -> None:
        self._profile.__enter__()
        self._sent = Recorder.to_servers

    def _leave(self) -> None:
        if not self._profile.running:
            return
        self._profile.__exit__(None, None, None)
        if Recorder.to_servers > self._sent:
            warnings.warn(
                f"record: {count(Recorder.to_servers - self._sent, 'request')} went to a tritonserver (--triton) and "
                "cannot be recorded: only models in this process can",
                stacklevel=2,
            )
        if self._path is not None:
            self.recording.save(self._path)
            if cut := self.record.cut:
                warnings.warn(
                    f"record: {self._path.name} lacks the values of {count(cut, 'tensor')} "
                    f"({size(self.record.cut_bytes)}): over limit={self._tape.limit}; "
                    "record with a larger limit",
                    stacklevel=2,
                )

    @property
    def recording(self) -> Recording:
        """The recording; while it runs, the requests so far."""
        if self._made is not None:
            return self._made
        if not (self._profile.running or self._profile._end):
            raise BLSError("record: the recording has not begun; use bls.record(...) in a `with` statement")
        session = self._profile.record
        tape, store = self._tape, Store()
        requests = tape.requests(self._profile._base, self._profile._start, store.kept)
        name = "" if self._path is None else self._path.name
        record = Recorded(
            name, session.began, "all" if tape.every else "outside", tape.limit, session.dropped,
            tuple(requests), session,
        )  # fmt: skip
        made = Recording(record, store.arrays)
        if not self._profile.running:
            self._made = made
            tape.clear()
        return made

    @property
    def record(self) -> Recorded:
        """The record of the recording, without values."""
        return self.recording.record


def record(
    path: str | Path | None = None, *, tensors: str = "outside", limit: int | str = LIMIT, requests: int = DEFAULT_LIMIT
) -> Recorder:
    """Record requests and responses, with their tensors, while the body of a ``with`` runs.

    A recording has a profile, and for every request: inputs, parameters, correlation ID, flags, timeout; for every
    response: outputs or error, parameters, in order. Recordings may nest.

    Parameters
    ----------
    path : str or Path, optional
        The file to write at the end, also if the body fails; an existing file is replaced. By default, the recording
        stays in memory.
    tensors : {'outside', 'all'}
        Which values to record: of requests from outside any model, or at every hop (BLS calls, steps of
        ensembles). Other tensors have only names, data types and shapes.
    limit : int or str
        Most bytes of tensors, or text such as ``"20 MB"``. Tensors over the limit have no values; the recorder warns
        of them when it writes a file.
    requests : int
        Most requests.

    Returns
    -------
    Recorder
        Its ``recording`` is a `Recording`.

    Raises
    ------
    BLSError
        An argument is invalid, or the path cannot be written.

    Examples
    --------
    >>> with bls.record("run.blsrec", tensors="all") as recorder:
    ...     repo.infer("page", {"IMAGE": image})
    >>> bls.replay("run.blsrec")
    """
    if tensors not in ("outside", "all"):
        raise BLSError(f"record: tensors: got {tensors!r}, expected 'outside' or 'all'")
    room = bytes_in(limit)
    if room is None or room < 1:
        raise BLSError(f"record: limit: got {limit!r}, expected bytes from 1 on, or a size such as '20 MB'")
    if isinstance(requests, bool) or not isinstance(requests, int) or requests < 1:
        raise BLSError(f"record: requests: got {requests!r}, expected a whole number from 1 on")
    if path is not None and not isinstance(path, (str, Path)):
        raise BLSError(f"record: expected the path of a file such as 'run.blsrec', got {type(path).__name__}")
    if path is not None:
        recording_file.check_writable(Path(path))
    return Recorder(None if path is None else Path(path), tensors, room, requests)


class Store:
    """Values of tensors by member of the file; equal values share a member."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def kept(
        self, name: str, datatype: str, shape: tuple[int, ...], size: int, array: Array | None, cut: bool
    ) -> TensorKept:
        """Store the values of a tensor, if any, and return its record."""
        if array is None:
            return TensorKept(name, datatype, shape, size, cut=cut)
        key = (datatype, shape, digest(array, datatype))
        values = self._known.setdefault(key, recording_file.member(len(self._known) + 1))
        if values not in self.arrays:
            array.flags.writeable = False
            self.arrays[values] = array
        return TensorKept(name, datatype, shape, size, values, preview=shown(array, datatype))
