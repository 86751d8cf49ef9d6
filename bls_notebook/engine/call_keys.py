"""Keys that identify BLS calls across runs: (key of the sender's call, callee, number of the call to this callee).

The engine assigns a key when a request is sent, so concurrent calls keep their identity in whatever order they are
executed. It assigns keys only while a substitution is active (`active` counts them).

Guarantees: no two requests of one server get the same key; assigning a key never blocks.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

Key = tuple[Any, ...]

active = 0  # number of active substitutions in this process
OUTSIDE: Key = ()  # the sender of requests from outside any model
THREAD = "thread"  # in the key of a model's bare threads: (OUTSIDE, model, THREAD)
_lock = threading.Lock()
_unknown = itertools.count(1)


class CallKey:
    """The key of one request, with a count of the requests that its receiver has sent to each callee."""

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
    """Assign keys from now on, until `end` has been called as often."""
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
    """Return the key of an execution's request; for a batch, the key of its first request."""
    known: CallKey | None = getattr(execution, "call_key", None)
    if known is not None:
        return known
    if execution.model is None:  # the notebook, or a bare thread of a model
        numbers: dict[str, CallKey] = execution.server.outside
        name = execution._of
        key = (OUTSIDE, name, THREAD) if name else OUTSIDE
        return numbers.get(name) or numbers.setdefault(name, CallKey(key))
    for request in (execution.request, *execution.requests):
        known = getattr(request, "_call_key", None)
        if known is not None:
            break
    if known is None:  # it was sent before the substitution began
        known = CallKey((OUTSIDE, execution.model.name, -next(_unknown)))
    execution.call_key = known
    return known
