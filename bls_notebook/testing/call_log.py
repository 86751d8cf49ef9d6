"""`Calls`: a log of the requests that a repository's models received during a test, with their tensors.

Guarantees: the log has copies, so requests reach their model unchanged; the copies take at most `most_bytes`,
and requests whose tensors did not fit are counted. Models that are loaded later are logged too.
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
    """Logs the requests to a repository's models; copies at most `most_bytes` of inputs."""

    def __init__(self, host: Host, most_bytes: int = MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self._most = most_bytes
        self._bytes = 0
        self._calls: list[StubCall] = []
        self._listened: weakref.WeakSet[Any] = weakref.WeakSet()
        self.known: set[str] = set()
        """Models that served requests, or had a stub."""
        self.left_out = 0
        """Number of requests whose tensors did not fit."""
        host.before_serving(self._listen)

    @property
    def calls(self) -> tuple[StubCall, ...]:
        """The requests, in the order of their execution."""
        return tuple(self._calls)

    def clear(self) -> None:
        """Empty the log."""
        with self._lock:
            self._calls = []
            self._bytes = self.left_out = 0

    def _listen(self, versions: Mapping[int, LoadedModel]) -> None:
        for model in versions.values():
            self.known.add(model.name)
            if model.seen.remote or not model.instances:  # ensembles and remote models execute nothing here
                scheduler = getattr(model.scheduler, "_inner", model.scheduler)  # behind the cache
                if scheduler not in self._listened:
                    self._listened.add(scheduler)
                    _hear(scheduler, weakref.ref(self), (model.name, model.version, model.name))
                continue
            for instance in model.instances:
                if instance not in self._listened:
                    self._listened.add(instance)
                    # A weak reference: the search for owners of a waiting request follows references of `execute`.
                    where = (model.name, model.version, instance.name)
                    instance.execute = _heard(  # type: ignore[assignment]
                        instance.execute, weakref.ref(self), where
                    )

    def note(self, where: tuple[str, int, str], requests: list[Any], sender: Any = None) -> None:
        """Log the requests of one `execute`; `where` is the model, the version and the instance."""
        batch = [request for request in requests if not is_null(request)]
        for request in batch:
            size = sum(int(getattr(t._array, "nbytes", 0)) for t in request._inputs)
            with self._lock:
                fits = self._bytes + size <= self._most
                self._bytes += size if fits else 0
                self.left_out += not fits
            call = call_of(request, (), where, len(batch), tensors=fits, sender=sender)
            self._calls.append(StubCall.of(call))


def _note(calls: weakref.ref[Calls], *arguments: Any) -> None:
    if (listener := calls()) is not None:
        listener.note(*arguments)


def _heard(
    execute: Callable[[list[Any]], Any], calls: weakref.ref[Calls], where: tuple[str, int, str]
) -> Callable[[list[Any]], Any]:
    def heard(requests: list[Any]) -> Any:
        _note(calls, where, requests)
        return execute(requests)

    may_be_interrupted(heard.__code__)  # it runs the code of a model
    return heard


def _hear(scheduler: Any, calls: weakref.ref[Calls], where: tuple[str, int, str]) -> None:
    """Log the requests that reach the scheduler of an ensemble or a remote model."""
    call, submit = scheduler.call, scheduler.submit

    def heard_call(parent: Any, request: Any) -> Any:
        passed = [request]
        del request  # a reference in this frame would keep the tensors alive during the call
        _note(calls, where, passed, parent)
        return call(parent, passed.pop())

    def heard_submit(ticket: Any) -> None:
        if ticket.request is not None:
            _note(calls, where, [ticket.request], ticket.parent)
        submit(ticket)

    may_be_interrupted(heard_call.__code__)
    scheduler.call, scheduler.submit = heard_call, heard_submit
