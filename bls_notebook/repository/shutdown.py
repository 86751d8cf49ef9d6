"""What becomes of repositories when Python ends, and in a forked child.

When Python ends, it waits for threads that are no daemons, then it calls what was registered with `atexit`,
the last first. Repositories that nobody closed are closed there, all at once, by what the package registered
when it was imported: so whatever was registered after that may still use them.

Guarantees: a program ends with its own exit code, at most `EXIT_SECONDS` and `LAST_SECONDS` later than
without repositories, whatever its models do; every model is finalized, in a thread of its own, and has that
long. A request that a thread of the program waits for when the main thread has ended has `PATIENCE_SECONDS`,
and then an error: Python would wait for that thread for ever. A forked child touches nothing of its parent's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic, perf_counter_ns

from bls_notebook.engine import fork_guard, model_code
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.ticket import give_up_old
from bls_notebook.engine.waiting.threads import start_in_thread

from .service import Service, finish_closing, wait_until_closed

EXIT_SECONDS = 2.0
LAST_SECONDS = 1.0
PATIENCE_SECONDS = 5.0
ENDED = (
    "the program has ended before the request was answered; have its main thread wait for the threads that "
    "send requests (Thread.join)"
)

log = logging.getLogger("bls_notebook")


_open: weakref.WeakSet[Service] = weakref.WeakSet()
_jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
_workers: list[threading.Thread] = []
_exiting = threading.Event()


def opened(service: Service) -> None:
    """Close the repository of a service when Python ends, if nobody does before."""
    _open.add(service)


def _main_thread_has_ended() -> None:
    """Python is about to wait for threads: the last moment at which it allows new ones."""
    models = _models()
    if not models:
        return
    model_code.forget_pool_workers()
    begun = perf_counter_ns()
    start_in_thread(lambda: _look_after_threads(begun))
    _stand_by(len(models))


def _stand_by(count: int) -> None:
    """Have so many workers for what is to be done at the end; where there are fewer, one does several."""
    while len(_workers) < count:
        worker = threading.Thread(target=_work, name="bls-end", daemon=True)
        worker.start()
        _workers.append(worker)


def _work() -> None:
    while True:
        try:
            _jobs.get()()
        except BaseException:  # costs nobody else anything
            log.exception("a model could not be ended")


def _look_after_threads(since: int) -> None:
    """Answer requests that nobody else will, for as long as Python waits for threads that wait for them."""
    while not _exiting.wait(1.0):
        give_up_old(_models(), since, PATIENCE_SECONDS, ENDED)


def _models() -> list[LoadedModel]:
    return [model for service in list(_open) for model in service.models_in_service()]


def close_all() -> None:
    """Finalize the models of all repositories side by side."""
    _exiting.set()
    services = list(_open)
    start = _jobs.put if _workers else start_in_thread
    models = [model for service in services for model in service.begin_closing(start)]
    finish_closing(models, EXIT_SECONDS)
    deadline = monotonic() + LAST_SECONDS
    for model in wait_until_closed(models, deadline):
        log.warning("Python ends before model '%s' has been finalized", model.name)
    for thread in model_code.left():
        thread.join(max(0.0, deadline - monotonic()))
    for service in services:
        service.remove_files()


with contextlib.suppress(AttributeError):  # private; without it there is less to wait with
    threading._register_atexit(_main_thread_has_ended)  # type: ignore[attr-defined]


def _in_child() -> None:
    fork_guard.in_child()
    for service in list(_open):
        service.leave_behind()
    _open.clear()
    _workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
