"""Close open repositories when Python exits, and detach them in a forked child.

At exit, Python waits for non-daemon threads and then calls the `atexit` functions, last registered first. The package
registers its function on import, so functions registered later can still use repositories. All open repositories are
closed at once.

Guarantees: a program exits with its own exit code, at most `EXIT_SECONDS` + `LAST_SECONDS` later than without
repositories, whatever its models do. Each model is finalized at its home within this time. If a non-daemon thread
waits for a response after the main thread has ended, the request gets an error after `PATIENCE_SECONDS`; otherwise
Python would never exit. A forked child leaves the parent's models alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from time import monotonic, perf_counter_ns

from bls_notebook.engine import fork_guard, model_code
from bls_notebook.engine.core.model import LoadedModel, wait_until_closed
from bls_notebook.engine.ticket import give_up_old
from bls_notebook.engine.waiting.worker_threads import start_in_thread

from .versions_in_service import Service, finish_closing

EXIT_SECONDS = 2.0
LAST_SECONDS = 1.0
PATIENCE_SECONDS = 5.0
ENDED = (
    "the program has ended before the request was answered; have its main thread wait for the threads that "
    "send requests (Thread.join)"
)

log = logging.getLogger("bls_notebook")

_open: weakref.WeakSet[Service] = weakref.WeakSet()
_exiting = threading.Event()


def opened(service: Service) -> None:
    """Close the repository of this service at exit if it is still open."""
    _open.add(service)


def _main_thread_has_ended() -> None:
    """Start the thread that shutdown needs. Python is about to wait for threads and allows no new ones afterwards."""
    if _models():
        model_code.forget_pool_workers()
        begun = perf_counter_ns()
        start_in_thread(lambda: _answer_stuck_requests(begun))


def _answer_stuck_requests(since: int) -> None:
    """Answer old requests with an error while Python waits for the threads that sent them."""
    while not _exiting.wait(1.0):
        give_up_old(_models(), since, PATIENCE_SECONDS, ENDED)


def _models() -> list[LoadedModel]:
    return [model for service in list(_open) for model in service.models_in_service()]


def close_all() -> None:
    """Finalize the models of all open repositories in parallel."""
    _exiting.set()
    services = list(_open)
    models = [model for service in services for model in service.begin_closing()]
    finish_closing(models, EXIT_SECONDS)
    deadline = monotonic() + LAST_SECONDS
    for model in wait_until_closed(models, deadline):
        log.warning("Python exits before model '%s' has been finalized", model.name)
    for thread in model_code.left():
        thread.join(max(0.0, deadline - monotonic()))
    for service in services:
        service.remove_files()


with contextlib.suppress(AttributeError):  # private; without it, stuck requests are answered at the end only
    threading._register_atexit(_main_thread_has_ended)  # type: ignore[attr-defined]


def _in_child() -> None:
    fork_guard.in_child()
    for service in list(_open):
        service.leave_behind()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
