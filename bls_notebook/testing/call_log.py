"""`Calls`: the requests that models of a repository were given while a test ran, with their tensors.

Guarantees: what a model is given stays as it is, copies are kept; no more than so many bytes of them, and it
is known when some were not. A model that is loaded later is listened to as well.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.waiting.interrupts import may_be_interrupted
from bls_notebook.extending import Host
from bls_notebook.repository.substitution.call import call_of, is_null
from bls_notebook.repository.substitution.stub import StubCall

MOST_BYTES = 256 << 20


class Calls:
    """Listens to the models of a repository; `most_bytes` of inputs are kept."""

    def __init__(self, host: Host, most_bytes: int = MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self._most = most_bytes
        self._bytes = 0
        self._found: list[StubCall] = []
        self._listened: weakref.WeakSet[Any] = weakref.WeakSet()
        self.known: set[str] = set()
        """Models that have served, or were stood in for."""
        self.left_out = 0
        """How many requests' tensors did not fit any more."""
        host.before_serving(self._listen)

    @property
    def found(self) -> tuple[StubCall, ...]:
        """The requests, in the order in which they were begun."""
        return tuple(self._found)

    def clear(self) -> None:
        """Forget them."""
        with self._lock:
            self._found = []
            self._bytes = self.left_out = 0

    def _listen(self, versions: Mapping[int, LoadedModel]) -> None:
        for model in versions.values():
            self.known.add(model.name)
            if model.seen.remote or not model.instances:  # nothing of it executes here
                scheduler = getattr(model.scheduler, "_inner", model.scheduler)  # behind the cache
                if scheduler not in self._listened:
                    self._listened.add(scheduler)
                    _hear(scheduler, weakref.ref(self), (model.name, model.version, model.name))
                continue
            for instance in model.instances:
                if instance not in self._listened:
                    self._listened.add(instance)
                    # Weakly: what an `execute` leads to is searched where nobody may be left to wake it.
                    where = (model.name, model.version, instance.name)
                    instance.execute = _heard(  # type: ignore[assignment]
                        instance.execute, weakref.ref(self), where
                    )

    def note(self, where: tuple[str, int, str], requests: list[Any], sender: Any = None) -> None:
        """Take note of requests that a version's instance is given."""
        given = [request for request in requests if not is_null(request)]
        for request in given:
            size = sum(int(getattr(t._array, "nbytes", 0)) for t in request._inputs)
            with self._lock:
                fits = self._bytes + size <= self._most
                self._bytes += size if fits else 0
                self.left_out += not fits
            call = call_of(request, (), where, len(given), tensors=fits, sender=sender)
            self._found.append(StubCall.of(call))


def _heard(
    execute: Callable[[list[Any]], Any], calls: weakref.ref[Calls], where: tuple[str, int, str]
) -> Callable[[list[Any]], Any]:
    def heard(requests: list[Any]) -> Any:
        listener = calls()
        if listener is not None:
            listener.note(where, requests)
        return execute(requests)

    may_be_interrupted(heard.__code__)  # it runs the code of a model
    return heard


def _hear(scheduler: Any, calls: weakref.ref[Calls], where: tuple[str, int, str]) -> None:
    """Listen to the scheduler of a model whose requests pass through: an ensemble's, a remote model's."""
    call, submit = scheduler.call, scheduler.submit

    def heard_call(parent: Any, request: Any) -> Any:
        given = [request]
        del request  # or this would be somebody who holds its tensors
        listener = calls()
        if listener is not None:
            listener.note(where, given, parent)
        return call(parent, given.pop())

    def heard_submit(ticket: Any) -> None:
        listener = calls()
        if listener is not None and ticket.request is not None:
            listener.note(where, [ticket.request], ticket.parent)
        submit(ticket)

    may_be_interrupted(heard_call.__code__)
    scheduler.call, scheduler.submit = heard_call, heard_submit
