"""A spare worker, started ahead, for each environment in use: a model that is redefined then needs no start of Python.

Guarantees: a spare has run no model's code. It has the environment variables, the search path and the working folder of
the moment when it is taken, or else a new process is started. It ends with the last process of its environment.
"""

from __future__ import annotations

import os
import threading
from collections import Counter

from .environments import Environment, leave_environment, use_environment
from .process import WorkerProcess

_Key = tuple[Environment, tuple[tuple[str, str], ...], str]
_lock = threading.Lock()
_spares: dict[Environment, tuple[_Key, WorkerProcess]] = {}
_users: Counter[Environment] = Counter()  # instances of each environment


def take(environment: Environment) -> WorkerProcess:
    """Return a new worker; the caller calls `adopt` on it."""
    with _lock:
        key, spare = _spares.pop(environment, (None, None))
    if spare is not None:
        if key == _key(environment) and spare.alive:
            return spare
        spare.close()
    return WorkerProcess(environment)


def use(environment: Environment) -> None:
    """Count an instance of an environment."""
    with _lock:
        _users[environment] += 1
        use_environment(environment)


def prepare(environment: Environment) -> None:
    """Start a spare in the background, if there is none and the environment is in use."""
    threading.Thread(target=_start, args=(environment,), name="bls-spare", daemon=True).start()


def leave(environment: Environment) -> None:
    """Forget an instance of an environment; with the last one, its spare ends."""
    with _lock:
        _users[environment] -= 1
        if _users[environment] > 0:
            return
        del _users[environment]
        leave_environment(environment)
        _, spare = _spares.pop(environment, (None, None))
    if spare is not None:
        spare.close()


def _start(environment: Environment) -> None:
    with _lock:
        if environment in _spares or not _users[environment]:
            return
        try:
            _spares[environment] = _key(environment), WorkerProcess(environment)
        except OSError:  # too many processes or files: the next instance says so
            return


def _key(environment: Environment) -> _Key:
    return environment, tuple(sorted(os.environ.items())), os.getcwd()
