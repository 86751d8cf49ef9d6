"""Keys that identify BLS calls across runs: (key of the sender's call, callee, how many-th such call).

The engine fixes a key when a request is sent, so calls that are in flight together keep their identity
whatever order they are executed in. Keys are kept while at least one substitution is active (`active`);
otherwise the engine only tests that flag.

Guarantees: no two requests of one server get the same key; a key is given without waiting for anybody.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

Key = tuple[Any, ...]

active = 0  # number of active substitutions in this process
OUTSIDE: Key = ()  # the sender of requests from outside any model
THREAD = "thread"  # in the key of a model's threads that carry no context: (OUTSIDE, model, THREAD)
_lock = threading.Lock()
_unknown = itertools.count(1)


class CallKey:
    """The key of one request, and the number of requests that its receiver has sent to each callee."""

    __slots__ = ("_sent", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self._sent: dict[str, int] = {}

    def next(self, callee: str) -> CallKey:
        with _lock:
            number = self._sent.get(callee, 0)
            self._sent[callee] = number + 1
        return CallKey((self.key, callee, number))

    def sent(self) -> dict[str, int]:
        """Return the number of requests sent so far, by callee."""
        with _lock:
            return self._sent.copy()


def begin() -> None:
    """Assign keys from now on, until as many calls of `end`."""
    global active
    with _lock:
        active += 1


def end() -> None:
    global active
    with _lock:
        active -= 1


def next_key(sender: Any, callee: str) -> CallKey:
    return key_of_execution(sender).next(callee)


def key_of_execution(execution: Any) -> CallKey:
    """Return the key of an execution's request; of a batch, that of its first request."""
    found: CallKey | None = getattr(execution, "call_key", None)
    if found is not None:
        return found
    if execution.model is None:  # the notebook, or a thread of a model that carries no context
        numbers: dict[str, CallKey] = execution.server.outside
        name = execution._of
        key = (OUTSIDE, name, THREAD) if name else OUTSIDE
        return numbers.get(name) or numbers.setdefault(name, CallKey(key))
    for request in (execution.request, *execution.requests):
        found = getattr(request, "_call_key", None)
        if found is not None:
            break
    if found is None:  # it was sent before the substitution began
        found = CallKey((OUTSIDE, execution.model.name, -next(_unknown)))
    execution.call_key = found
    return found
