"""`Watch`: sample the state of a repository at an interval while it has followers.

Guarantees: a sample only reads statistics and does not disturb models; without followers nothing is sampled
or kept; a watch keeps no repository alive, and ends when its repository is closed. The watch calls followers on
its own thread, so they also get samples while a cell runs.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from itertools import count
from operator import attrgetter
from typing import Any

from bls_notebook.devices import device_records
from bls_notebook.engine import BLSError, LoadedModel
from bls_notebook.extending import Host, host_of, operation, undo
from bls_notebook.records import ModelRecord, Printable
from bls_notebook.repository import ModelRepository
from bls_notebook.repository.source import shown_path

from .records import ModelNow, WatchRecord

_FOLDERS_EVERY = 5.0  # seconds between reads of the folders, which change less often than models
_LATELY = 2.0  # seconds over which a rate is computed
_VERBS = ("load", "unload", "reload")

log = logging.getLogger("bls_notebook")


def watch(seconds: float = 0.5, *, repo: ModelRepository | None = None) -> Watch:
    """Watch the models of a repository: their state, queues, rates and latencies; in a notebook, a live panel.

    Parameters
    ----------
    seconds : float
        The time between samples, at least 0.1.
    repo : ModelRepository, optional
        By default the current repository.

    Returns
    -------
    Watch
        Its `follow` calls a function with each sample; its `record` takes one sample.

    Raises
    ------
    BLSError
        `seconds` is less than 0.1.
    """
    return Watch(host_of(repo).repository, seconds)


class Watch(Printable):
    """Samples the state of a repository every few `seconds`; see `watch`.

    In a notebook with the extension it is a live panel. Sampling costs little, and stops without followers.
    """

    def __init__(self, repository: Any, seconds: float) -> None:
        if not isinstance(seconds, (int, float)) or not seconds >= 0.1:
            raise BLSError(f"watch: seconds: got {seconds!r}, expected a number from 0.1 on")
        self.seconds = seconds
        self._repository = weakref.ref(repository)
        self._place = ", ".join(map(shown_path, repository.paths)) or "memory"
        self._lock = threading.Lock()
        self._followers: dict[int, Callable[[WatchRecord], None]] = {}
        self._numbers = count()
        self._stop: threading.Event | None = None
        self._kept: weakref.WeakSet[Any] = weakref.WeakSet()  # statistics that keep latencies for this watch
        self._since = 0  # `perf_counter_ns` of the last sample
        self._counts: weakref.WeakKeyDictionary[LoadedModel, deque[tuple[float, int, int]]]
        self._counts = weakref.WeakKeyDictionary()
        self._folders: list[ModelRecord] = []
        self._looked_at_folders = float("-inf")

    @property
    def record(self) -> WatchRecord:
        """A new sample."""
        with self._lock:
            return self._sample(0)

    @operation
    def follow(self, follower: Callable[[WatchRecord], None]) -> Callable[[], None]:
        """Call a function with each sample, on the watch's thread; return a function that stops this."""
        number = next(self._numbers)

        def end() -> None:
            with self._lock:
                self._followers.pop(number, None)
                if not self._followers and self._stop is not None:
                    self._stop.set()
                    self._stop = None

        undo(end)
        with self._lock:
            self._followers[number] = follower
            if self._stop is None:
                self._stop = threading.Event()
                threading.Thread(target=self._run, args=(self._stop,), name="bls-watch", daemon=True).start()
        return end

    def _run(self, stop: threading.Event) -> None:
        try:
            while True:
                with self._lock:
                    if stop.is_set():
                        return
                    since, self._since = self._since, time.perf_counter_ns()
                    record, followers = self._sample(since), list(self._followers.values())
                for follower in followers:
                    follower(record)
                if record.closed:
                    return
                stop.wait(self.seconds)
        except Exception:
            log.exception("the watch of the model repository ended because of an error")
        finally:
            with self._lock:
                if self._stop in (stop, None):
                    self._stop = None
                    for statistics in self._kept:
                        statistics.keep_latencies(False)
                    self._kept.clear()

    def _sample(self, since: int) -> WatchRecord:
        repository = self._repository()
        if repository is None or repository.closed:
            return WatchRecord(time.time(), self._place, closed=True)
        host, now = Host(repository), time.monotonic()
        if now - self._looked_at_folders > _FOLDERS_EVERY:
            self._folders, self._looked_at_folders = repository.index(), now
        known = repository.index(folders=False)
        names = {record.name for record in known}
        others = [record for record in self._folders if record.name not in names]
        records = sorted([*known, *others], key=attrgetter("name", "version"))
        serving = {name: host.versions(name) for name in host.names()}
        models = [self._now(each, serving.get(each.name, {}).get(each.version), since, now) for each in records]
        return WatchRecord(time.time(), self._place, tuple(models), tuple(device_records()))

    def _now(self, record: ModelRecord, model: LoadedModel | None, since: int, now: float) -> ModelNow:
        if model is None:
            return ModelNow(record.name, record.version, record.state, record.reason)
        if self._stop is not None and model.statistics not in self._kept:
            model.statistics.keep_latencies(True)
            self._kept.add(model.statistics)
        answered, failed, latencies = model.statistics.latest(since)
        counts = self._counts.setdefault(model, deque())
        counts.append((now, answered, failed))
        while len(counts) > 2 and now - counts[1][0] >= _LATELY:
            counts.popleft()
        then, before, failed_before = counts[0]
        seconds = now - then or 1.0
        latencies.sort()
        return ModelNow(
            record.name,
            record.version,
            record.state,
            f"stub: {record.stub}" if record.stub else record.reason,
            instances=len(model.instances),
            busy=sum(each.holder is not None or bool(each.serving) for each in model.instances),
            queue=model.scheduler.pending,
            answered=answered,
            failed=failed,
            rate=(answered - before) / seconds,
            errors=(failed - failed_before) / seconds,
            p50=latencies[len(latencies) // 2] if latencies else None,
            p99=latencies[min(len(latencies) - 1, len(latencies) * 99 // 100)] if latencies else None,
        )

    def act(self, verb: str, name: str, done: Callable[[str], None]) -> None:
        """Load, unload or reload a model in a thread; then call `done` there with the error message, "" if none."""
        repository = self._repository()

        def run() -> None:
            problem = ""
            try:
                if verb not in _VERBS or repository is None:
                    raise BLSError(f"{verb!r}: expected {', '.join(_VERBS)}, and an open repository")
                getattr(repository, verb)(name)
            except BLSError as error:
                problem = str(error)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                log.exception("%s of model %r failed", verb, name)
            done(problem)

        threading.Thread(target=run, name=f"bls-{verb}", daemon=True).start()

    def __repr__(self) -> str:
        return f"<Watch of {self._place}>"
