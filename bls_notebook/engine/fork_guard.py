"""Fork guard: a forked child that uses its parent's models gets a one-line error.

A fork does not copy threads, but it copies the locks that they held, in Python and in the libraries that models use.
So the child could wait forever for a response. A repository that the child makes itself works.

Guarantees: in the child, every request to a model of the parent, and every change of one, raises `ForkedError`. No
lock of this package is held there, and nothing is recorded. If a model's code forks, `sys.exit` ends the child.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, NoReturn

from bls_notebook.devices import allocation_log

from . import observer
from .core import instance
from .core.model import in_memory
from .core.server import Server, servers
from .errors import ForkedError
from .waiting import event_loops, parker, worker_threads
from .waiting.clock import system_clock

_LOCKS = (type(threading.Lock()), type(threading.RLock()))


class ForkedServer(Server):
    """The parent's server in a forked child: it refuses everything."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ForkedError(
            "the models of this repository stayed in the process that this one was forked from "
            f"(this is process {os.getpid()}); make a ModelRepository in this process, or start it by "
            "multiprocessing's 'spawn' method"
        )

    find = root = serving = replace = exchange = set_strict = _refuse

    def names(self) -> list[str]:
        return []

    def note_failure(self, error: BaseException) -> None:
        """End the child if model code that was running during the fork calls `sys.exit`."""
        if isinstance(error, SystemExit):
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            code = error.code
            os._exit(code if isinstance(code, int) else int(code is not None))


def _free_locks(held_by: dict[str, Any]) -> None:
    for value in list(held_by.values()):
        if isinstance(value, _LOCKS):
            renew: Any = value
            renew._at_fork_reinit()


def in_child() -> None:
    """Reset the engine's state; called in a child that was just forked."""
    package = __name__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            _free_locks(vars(module))
    for model in list(in_memory):
        _free_locks(vars(model))
        _free_locks(vars(model.scheduler))
    for server in list(servers):
        _free_locks(vars(server))
        server.__class__ = ForkedServer
    worker_threads.forget_workers()
    system_clock.__init__()  # type: ignore[misc]
    parker.blocked.clear()
    instance._open.clear()
    event_loops._loops.clear()
    allocation_log.recording = allocation_log.place = None
    observer.clear()
