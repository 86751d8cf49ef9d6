"""Keys that identify BLS calls across runs: (key of the sender's call, callee, number of the call to this callee).

`CallKeys` assigns a key when a request is sent, so concurrent calls keep their identity in whatever order they are
executed.

Guarantees: no two requests of one server get the same key; assigning a key never blocks.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.observer import Observed, Observer
from bls_notebook.pb_utils.request import InferenceRequest

Key = tuple[Any, ...]

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


class CallKeys(Observer):
    """Assigns keys while a substitution is on; several that are on at once assign one."""

    def received(
        self, model: LoadedModel, request: InferenceRequest, inputs: Any, copy: InferenceRequest, sender: Execution
    ) -> None:
        if copy._observed.key is None:
            copy._observed.key = key_of_execution(sender).next(model.name)


def key_of_request(request: InferenceRequest) -> CallKey | None:
    observed: Observed | None = getattr(request, "_observed", None)  # unset if the scheduler made the request
    return None if observed is None else observed.key


def key_of_execution(execution: Execution) -> CallKey:
    """Return the key of an execution's request; for a batch, the key of its first request."""
    if execution.model is None:  # the notebook, or a bare thread of a model
        numbers: dict[str, CallKey] = execution.server.outside
        name = execution._of
        key = (OUTSIDE, name, THREAD) if name else OUTSIDE
        return numbers.get(name) or numbers.setdefault(name, CallKey(key))
    observed = execution.observed = execution.observed or Observed()
    if observed.key is None:  # the request was sent before the substitution began
        known = next(filter(None, map(key_of_request, execution.requests)), None)
        observed.key = known or CallKey((OUTSIDE, execution.model.name, -next(_unknown)))
    assert isinstance(observed.key, CallKey)
    return observed.key
