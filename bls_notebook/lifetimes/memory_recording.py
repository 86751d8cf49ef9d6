"""`track_memory` records the memory of every tensor that passes through a request while a block of code runs.

Guarantees: one recording at a time in the process. Reading a recording does not change what it records.
When it ends, nothing of it remains in the engine or in the tensors. It ends with its `with` block or its object.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from time import monotonic, perf_counter_ns
from typing import Any
from weakref import ref

from bls_notebook.devices import allocation_log, cupy_memory_hook, devices, gpus
from bls_notebook.engine import BLSError, Execution, LoadedModel, caller_var, in_every_loop, observer
from bls_notebook.engine.observer import Observed, Observer
from bls_notebook.extending import Scope
from bls_notebook.lifetimes.records import Holder, Maker
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.profiling.code_lines import NOWHERE, CodeLine, place_finder
from bls_notebook.profiling.request_log import span_id
from bls_notebook.profiling.resource_time import workers

from .allocation_table import AllocatedBlock, AllocationTable, TrackedRequest, lines_of
from .kept_memory import MemorySnapshot, private_bytes, process_bytes
from .owner_search import SearchRoot
from .owners import find_holders, frame_roots, providers
from .records import DeviceSeen, KeptGrowth, Life, Lifetimes, LifetimesAnalysis, Stay, WorkerMemory

DEFAULT_LIMIT = 50_000
MOST_LOG = 40_000  # items of the log; a longer log is read into the allocation table
_POLL = 0.005  # seconds
HELD = 200  # the search for holders covers only that many blocks, the largest
_SAME = ("id", "device", "bytes", "kind", "tensor", "datatype", "source", "how", "transfer_ns")  # of blocks and lives
_starting = threading.RLock()


def track_memory(
    limit: int = DEFAULT_LIMIT, name: str = "", *, lines: bool = True, holders: bool = True
) -> MemoryTrack:
    """Record where tensors are allocated, moved and freed while a block of code runs.

    Parameters
    ----------
    limit : int
        The number of lifetimes to keep. Beyond it the oldest dead ones are dropped, then the smallest; the
        bytes in use are right, whatever is dropped.
    name : str
        Shown with the result.
    lines : bool
        Whether to record the line of code that made each tensor, which is a fifth of the cost.
    holders : bool
        Whether to search for the holders of blocks that are still alive at the end, and for other memory that models
        keep.

    Returns
    -------
    MemoryTrack
        A context manager.

    Raises
    ------
    BLSError
        The limit is invalid; or, when the block is entered, another recording is on.

    Examples
    --------
    >>> with bls.track_memory() as lifetimes:
    ...     r = repo.infer("add_sub", {"INPUT0": [1, 2], "INPUT1": [3, 4]})
    >>> [life.tensor for life in lifetimes.left_behind()]
    ['OUTPUT0', 'OUTPUT1']
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise BLSError(f"track_memory: limit: got {limit!r}, expected a number of lives from 1 on")
    return MemoryTrack(limit, name, lines, holders)


def await_release(track: MemoryTrack, seconds: float = 1.0) -> None:
    """Wait until no memory of a recording is left, at most so long: the thread that sent a response may still run."""
    until, pause = monotonic() + seconds, threading.Event()
    while gc.collect() >= 0 and (alive := track.bytes()) and track.record.left_behind():
        while track.bytes() >= alive:  # reading the record again would take long, and show the same
            if monotonic() > until:
                return
            pause.wait(_POLL)


class MemoryObserver(Observer):
    """Records the tensors of requests."""

    order = 1  # after the log of profiles, which numbers the requests

    def __init__(self, recorder: allocation_log.AllocationRecorder) -> None:
        self._recorder = recorder

    def received(
        self,
        model: LoadedModel,
        request: InferenceRequest,
        inputs: Sequence[Tensor],
        copy: InferenceRequest,
        sender: Execution,
    ) -> None:
        if cupy_memory_hook.used:
            cupy_memory_hook.follow()
        observed, parent = copy._observed, sender.observed
        observed.track = number = self._recorder.number()
        span = observed.span and span_id(observed.span)
        other = 0 if parent is None else parent.track
        self._recorder.crossed(
            inputs, copy._inputs, allocation_log.IN, copy._arrived, number, other, model.who, copy._options, span
        )

    def returned(
        self, observed: Observed | None, before: Sequence[Tensor], after: Sequence[Tensor], maker: str
    ) -> None:
        number = 0 if observed is None else observed.track
        self._recorder.crossed(before, after, allocation_log.OUT, perf_counter_ns(), number, maker)

    def repeated(self, observed: Observed | None, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        number = 0 if observed is None else observed.track
        self._recorder.crossed(before, after, allocation_log.AGAIN, perf_counter_ns(), number)

    def copied(self, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        self._recorder.paired(before, after)


class MemoryTrack(Scope, LifetimesAnalysis):
    """A memory recording, which can be read while its block runs and afterwards.

    `record` is a `Lifetimes`: a snapshot while the block runs, the final one afterwards.
    """

    def __init__(self, limit: int, name: str = "", lines: bool = True, holders: bool = True) -> None:
        self.name = name
        self._lines = lines
        self._look_for_holders = holders
        self._limit = limit
        self._table = AllocationTable(limit)
        self._lock = threading.Lock()  # guards the table
        self._recording: allocation_log.AllocationRecorder | None = None
        self._record: Lifetimes | None = None
        self._start = self._end = 0
        self._began = ""
        self._used: dict[str, int] = {}
        self._kept_before: MemorySnapshot | None = None
        self._process_before = 0
        self._workers_before: dict[int, int] = {}  # private bytes, by the number of the process

    def _check(self) -> None:
        if self._record is not None or self._recording is not None:
            raise BLSError("track_memory: this track has been used; make a new one for each block")

    def _enter(self) -> None:
        with _starting:
            if allocation_log.recording is not None:
                raise BLSError(
                    "track_memory: memory is being tracked already, and one track can be on at a time: leave "
                    "the block (or the cell) that tracks it first"
                )
            me = ref(self)  # weak, so that an abandoned recording ends
            place = place_finder() if self._lines else None
            self._begin(allocation_log.AllocationRecorder(MOST_LOG, lambda: _shorten(me()), place))

    def _begin(self, recording: allocation_log.AllocationRecorder) -> None:
        global _on
        self._recording = recording
        self._table = AllocationTable(self._limit, recording.base)
        self._began = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        backend = gpus()
        if backend is not None:
            self._used = {d.name: backend.usage(d.index).ours for d in devices() if d.kind == "gpu"}
        self._kept_before = MemorySnapshot() if self._look_for_holders else None
        self._process_before = process_bytes()
        self._workers_before = {pid: private_bytes(pid) for pid in workers()}
        self._start = perf_counter_ns()
        _on = ref(self, _abandoned)
        allocation_log.recording = recording
        allocation_log.place = recording.place
        observer.add(MemoryObserver(recording))
        if backend is not None and not backend.simulated:
            cupy_memory_hook.begin(backend.array_module(), recording)
            in_every_loop(cupy_memory_hook.follow)

    def _leave(self) -> None:
        global _on
        recording = self._recording
        if recording is None:
            return
        self._end = perf_counter_ns()
        gc.collect()  # so that garbage is not reported as a leak
        _quiet(recording)
        try:
            self._record = self._now()
        finally:
            self._recording = _on = None
            recording.stop()
            self._table = AllocationTable(1)

    @property
    def record(self) -> Lifetimes:
        """The lifetimes so far, or all of them after the block; BLSError before it."""
        if self._record is not None:
            return self._record
        if self._recording is None:
            raise BLSError("track_memory: nothing is tracked yet: use it as `with bls.track_memory() as ...:`")
        return self._now()

    def bytes(self, device: str = "", ns: int = -1) -> int:
        """Return the bytes alive; see `Lifetimes.bytes`."""
        if self._record is not None or ns >= 0 or self._recording is None:
            return super().bytes(device, ns)
        with self._lock:
            in_use = self._fold().in_use
            return in_use[device] if device else sum(in_use.values())

    def __repr__(self) -> str:
        if self._recording is not None:
            return f"<MemoryTrack, on: {self.bytes():,} bytes alive>"
        if self._record is None:
            return "<MemoryTrack, not begun>"
        lives, alive = len(self._record.lives), len(self._record.alive())
        return f"<MemoryTrack: {lives:,} lives, {alive:,} alive at the end>"

    def _fold(self) -> AllocationTable:
        """Read the log into the table, under its lock."""
        recording = self._recording
        if recording is not None:
            # Deaths first: the log already has the rows of the blocks that have died by now.
            log, deaths = recording.log, recording.deaths
            ended = deaths[: len(deaths)]
            del deaths[: len(ended)]
            new = log[: len(log)]
            del log[: len(new)]
            self._table.read(new, ended)
        return self._table

    def _now(self) -> Lifetimes:
        with self._lock:
            table = self._fold()
            wall = (self._end or perf_counter_ns()) - self._start
            blocks, older, dropped = table.blocks(), dict(table.older), table.dropped
        rest = sorted(blocks, key=lambda block: -block.bytes)[self._limit :]  # only living blocks exceed the limit
        if rest:
            without = {block.id for block in rest}
            blocks = [block for block in blocks if block.id not in without]
        holders = self._holders(blocks) if self._look_for_holders else {}
        lines = lines_of(blocks)
        grown = process_bytes() - self._process_before if self._process_before else 0
        return Lifetimes(
            tuple(self._life(block, wall, holders.get(block.id, ()), lines.get(block.id, NOWHERE)) for block in blocks),
            tuple(_devices(self._used, older)),
            wall,
            self._began,
            self.name,
            dropped + len(rest),
            sum(block.bytes for block in rest),
            kept=self._kept(blocks),
            process_growth=max(0, grown),
            workers=tuple(self._workers()),
        )

    def _workers(self) -> Iterator[WorkerMemory]:
        unknown = () if self._kept_before is None else self._kept_before.unknown()
        for pid, name in workers().items():
            now = private_bytes(pid)
            growth = max(0, now - self._workers_before.get(pid, now))
            yield WorkerMemory(name, process_bytes(pid), growth, name not in unknown)

    def _kept(self, blocks: list[AllocatedBlock]) -> tuple[KeptGrowth, ...]:
        """Return what models keep more, except blocks of tensors."""
        return () if self._kept_before is None else self._kept_before.growth(_owners(blocks))

    def owners(self) -> list[Any]:
        """Return the objects that own the blocks of host memory that are alive now."""
        with self._lock:
            return _owners(self._fold().blocks())

    def _life(self, block: AllocatedBlock, wall: int, holders: tuple[Holder, ...], line: CodeLine) -> Life:
        def at(ns: int) -> int:
            return min(max(0, ns - self._start), wall)

        stays = (
            Stay(at(ns), role, tensor, datatype, tuple(shape), _maker(taker, cell))
            for ns, role, tensor, datatype, shape, taker, cell in block.stays
        )
        return Life(
            **{name: getattr(block, name) for name in _SAME}, born=at(block.born),
            died=-1 if block.died < 0 else at(block.died), shape=tuple(block.shape), holders=holders, line=line,
            maker=_maker(block.maker, block.cell), stays=tuple(stays),
        )  # fmt: skip

    def _holders(self, blocks: list[AllocatedBlock]) -> dict[int, tuple[Holder, ...]]:
        living = sorted((b for b in blocks if b.died < 0), key=lambda b: -b.bytes)[:HELD]
        on_host = ((b.id, b.key()) for b in living if not isinstance(b.key, tuple))
        owners = {number: owner for number, owner in on_host if owner is not None}
        gpu = {b.id: b.key for b in living if isinstance(b.key, tuple)}
        return find_holders(owners, gpu, _roots()) if owners or gpu else {}


def _owners(blocks: list[AllocatedBlock]) -> list[Any]:
    on_host = (block.key() for block in blocks if block.died < 0 and not isinstance(block.key, tuple))
    return [owner for owner in on_host if owner is not None]


def _quiet(recording: allocation_log.AllocationRecorder) -> None:
    with _starting:
        if allocation_log.recording is recording:
            allocation_log.recording = allocation_log.place = None
            for one in observer.observers():
                if isinstance(one, MemoryObserver):
                    observer.remove(one)
            if cupy_memory_hook.used:
                cupy_memory_hook.end()
                in_every_loop(cupy_memory_hook.follow)


def _abandoned(_: object) -> None:
    """Switch off the recording of a `MemoryTrack` that was freed before its end."""
    if allocation_log.recording is not None:
        _quiet(allocation_log.recording)


_on: ref[MemoryTrack] | None = None  # the recording that began last


def _shorten(track: MemoryTrack | None) -> None:
    """Read a long log into the table, unless another thread does."""
    if track is not None and track._lock.acquire(False):
        try:
            track._fold()
        finally:
            track._lock.release()


def _maker(request: TrackedRequest | None, cell: str) -> Maker:
    return Maker(cell=cell) if request is None else request.maker


def _roots() -> Iterator[SearchRoot]:
    for provider in providers:
        yield from provider()
    main = sys.modules.get("__main__")
    variables = {} if main is None else dict(vars(main))
    for name, value in variables.items():
        if not name.startswith("_") and "get_ipython" not in variables:  # a notebook provides its own
            yield SearchRoot("variable", name, value)
    yield from frame_roots(__name__)


def _devices(used: dict[str, int], older: dict[str, int]) -> Iterator[DeviceSeen]:
    backend = gpus()
    for device in devices():
        total = backend.usage(device.index).total if backend is not None and device.kind == "gpu" else 0
        left = used.get(device.name, 0) + older.get(device.name, 0)
        yield DeviceSeen(device.name, device.simulated, total, max(0, left))


allocation_log.current_request = lambda: getattr(getattr(caller_var.get(), "observed", None), "track", 0)
