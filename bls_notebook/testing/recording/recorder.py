"""`record`: keep requests and responses with their tensors while models serve them as usual."""

from __future__ import annotations

import warnings
from pathlib import Path

from bls_notebook.engine.errors import BLSError
from bls_notebook.profiling.profiler import DEFAULT_LIMIT, Profile
from bls_notebook.records.units import bytes_in, count, size
from bls_notebook.testing.recording.payload_tape import Tape
from bls_notebook.testing.records import Recorded, TensorKept

from . import recording_file
from .recording import Recording
from .recording_file import Array, digest, shown

LIMIT = 1 << 28


class Recorder:
    """A recording that is on, or has been; see `record`.

    Parameters
    ----------
    path : Path or None
    tensors : str
    limit : int
    requests : int
    """

    def __init__(self, path: Path | None, tensors: str, limit: int, requests: int) -> None:
        self._path = path
        self._tape = Tape(tensors == "all", limit)
        self._profile = Profile(requests, "" if path is None else path.name, tape=self._tape, lines=False)
        self._made: Recording | None = None
        self._base = 0

    def __enter__(self) -> Recorder:
        if self._profile._start:
            raise BLSError("record: it has been used already; make a new one: with bls.record(...)")
        log = self._profile.__enter__()._log
        self._base = 0 if log is None else log.base  # of the ids
        return self

    def __exit__(self, *error: object) -> None:
        self._profile.__exit__(*error)
        if self._path is not None:
            self.recording.save(self._path)
            if cut := self.record.cut:
                warnings.warn(
                    f"record: {self._path.name} is without the values of {count(cut, 'tensor')} "
                    f"({size(self.record.cut_bytes)}): over limit={self._tape.limit}; "
                    "record with a larger one",
                    stacklevel=2,
                )

    @property
    def recording(self) -> Recording:
        """What was recorded; so far, while it is on."""
        if self._made is not None:
            return self._made
        made = self._recording()
        if not self._profile.running:
            self._made = made
            self._tape.clear()
        return made

    @property
    def record(self) -> Recorded:
        """What was recorded, without values."""
        return self.recording.record

    def _recording(self) -> Recording:
        if not (self._profile.running or self._profile._end):
            raise BLSError("record: it has not begun; use it with `with`")
        session = self._profile.record
        tape, store = self._tape, _Store()
        requests = tape.requests(self._base, self._profile._start, store.kept)
        name = "" if self._path is None else self._path.name
        record = Recorded(
            name, session.began, "all" if tape.every else "outside", tape.limit, session.dropped,
            tuple(requests), session,
        )  # fmt: skip
        return Recording(record, store.arrays)


def record(
    path: str | Path | None = None, *, tensors: str = "outside", limit: int | str = LIMIT, requests: int = DEFAULT_LIMIT
) -> Recorder:
    """Keep requests and responses, with their tensors, while the body of a ``with`` runs.

    What is kept is what `profile` records and, of every request: inputs, parameters, correlation ID, flags,
    timeout; of every response: outputs or error, parameters, in order. Recordings may nest.

    Parameters
    ----------
    path : str or Path, optional
        The file to write at the end, also of a body that fails; replaced where there is one. Without one,
        what was recorded is in memory alone.
    tensors : {'outside', 'all'}
        Whose values to keep: of requests from outside any model, or at every hop (BLS calls, steps of
        ensembles). Of others, names, data types and shapes are kept.
    limit : int or str
        Bytes of tensors that are kept at most, or text such as ``"20 MB"``; what does not fit is kept without
        its values, and is told of by a warning where a file is written.
    requests : int
        How many requests are kept at most.

    Returns
    -------
    Recorder
        ``recording`` is what was recorded, a `Recording`.

    Raises
    ------
    BLSError
        An argument makes no sense, or nothing could be written to that path.

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


class _Store:
    """The values of tensors by member: equal ones are one."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def kept(
        self, name: str, datatype: str, shape: tuple[int, ...], size: int, array: Array | None, cut: bool
    ) -> TensorKept:
        """Return the record of a tensor, whose values are here from now on if there are any."""
        if array is None:
            return TensorKept(name, datatype, shape, size, cut=cut)
        key = (datatype, shape, digest(array, datatype))
        values = self._known.setdefault(key, recording_file.member(len(self._known) + 1))
        if values not in self.arrays:
            array.flags.writeable = False
            self.arrays[values] = array
        return TensorKept(name, datatype, shape, size, values, preview=shown(array, datatype))
