"""`Lifecycle`: base of the schedulers: withdrawing requests, adding and retiring instances, and closing.

Guarantees: a retiring instance finishes its requests, then its `on_left` is called. Once closed, `on_drained` is called
once, when the last request has been answered and every instance is idle. Both are called on the thread that noticed,
with no lock held.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, MutableSequence, Sequence
from contextvars import copy_context
from functools import partial
from time import perf_counter_ns
from typing import Any

from bls_notebook.engine.batch_runner import Batch
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.response_stream import first_response
from bls_notebook.engine.tensors.received_inputs import ARGUMENTS_STAY, taken_over
from bls_notebook.engine.ticket import Ticket
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse


class Submitting:
    """Base class of schedulers that serve a caller who waits as they serve any other request."""

    _model: LoadedModel

    def submit(self, ticket: Ticket) -> None:
        """Serve a request in the background; the lock is not held."""
        raise NotImplementedError

    def call(self, parent: Execution, request: InferenceRequest) -> InferenceResponse:
        ticket = Ticket(self._model, taken_over(request) if ARGUMENTS_STAY else request, parent, copy_context())
        del request  # so that its destructor runs, and is noticed, when the model drops it
        return self.call_queued(parent, ticket)

    def call_queued(self, parent: Execution, ticket: Ticket) -> InferenceResponse:
        """Serve a request that may have to wait; return its response."""
        parent.note_blocking(self._model.name)
        parent.adopt(ticket)
        self.submit(ticket)
        return first_response(ticket)


class Lifecycle(Submitting):
    """Base class of the schedulers that have a queue or instances."""

    _idle: MutableSequence[Instance]  # the last one has been idle for the longest time: it is next
    _queue: deque[Ticket] | set[Ticket]  # accepted, and begun by no instance

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._open: set[Any] = set()  # requests in flight that are not in the queue, usually as tickets
        self._closed = False
        self._watch = False  # True while a callback is due later: the scheduler is closed, or instances retire
        self._count = len(model.instances)
        self._leaving: dict[Instance, Callable[[Instance], None]] = {}  # retiring instances with their `on_left`
        self._finishing: list[Instance] = []  # of these, the idle ones that may still have unanswered requests
        self._on_drained: Callable[[], None] | None = None
        for instance in model.instances:
            if not model.seen.remote:
                self._work_at_home(instance)

    # Hooks of a scheduler; the lock is held.
    def _add_instance(self, instance: Instance) -> None:
        """Handle a new instance."""

    def _begin_retiring(self, instance: Instance) -> None:
        """Handle an instance that begins to retire."""

    def _remove_instance(self, instance: Instance) -> None:
        """Handle an instance that has retired."""

    def _needed(self, instance: Instance) -> bool:
        """Return whether a request waits, or may come, that only this instance may run."""
        return False

    def _remove(self, ticket: Ticket) -> None:
        """Handle a request that was withdrawn from the queue."""

    def _drained(self) -> None:
        """Handle the end of the last request of a closed scheduler."""

    def _serve(self, instance: Instance, work: Any) -> None:
        """Do the work that was posted to an instance's home, on its thread."""
        raise NotImplementedError

    def _look(self) -> None:
        """Give work to idle instances; the lock is not held."""
        raise NotImplementedError

    def _work_at_home(self, instance: Instance) -> None:
        """Serve work that is posted to an instance's home."""
        # Weak, because an idle home must not keep an unclosed model alive.
        weak = weakref.ref(self)

        def serve(work: Any) -> None:
            scheduler = weak()
            if work.__class__ is Batch:
                work.run(instance)
            elif scheduler is not None:
                scheduler._serve(instance, work)

        instance.served_by(serve)

    @property
    def pending(self) -> int:
        """Number of requests that no instance has begun."""
        return len(self._queue)

    def withdraw(self, ticket: Ticket) -> bool:
        with self._lock:
            if not ticket.queued or ticket not in self._queue:
                return False
            ticket.queued = False
            self._queue.remove(ticket)
            self._remove(ticket)
            reason = "OTHER" if ticket.refused else "CANCELED"
            self._model.statistics.failed(perf_counter_ns() - ticket.arrived, reason)
        self._look()
        return True

    def drop_cancelled(self, ticket: Ticket) -> bool:
        """Keep a cancelled request, as the server's default scheduler does."""
        return False

    def resize(
        self, added: Sequence[Instance], removed: Sequence[Instance], on_left: Callable[[Instance], None]
    ) -> None:
        with self._lock:
            self._count += len(added)
            for instance in added:
                self._work_at_home(instance)
                self._add_instance(instance)
                self._idle.insert(0, instance)
            self._leaving.update(dict.fromkeys(removed, on_left))
            for instance in removed:
                self._begin_retiring(instance)
            self._watch = True
        self._notify()
        self._look()

    def close(self, on_drained: Callable[[], None]) -> None:
        with self._lock:
            self._closed = self._watch = True
            self._on_drained = on_drained
        self._look()  # an exception may have kept a sender from calling it
        self._notify()

    def _notify(self) -> None:
        """Call the callbacks that are due."""
        with self._lock:
            callbacks = self._due()
        for callback in callbacks:
            callback()

    def _due(self) -> list[Callable[[], None]]:
        """Return the callbacks that are due: of retired instances, and `on_drained`. Lock held."""
        out: list[Callable[[], None]] = []
        for instance in list(self._leaving):
            if not self._needed(instance) and self._taken(instance):
                self._finishing.append(instance)
        for instance in [i for i in self._finishing if not i.serving]:
            self._finishing.remove(instance)
            self._count -= 1
            self._remove_instance(instance)
            out.append(partial(self._leaving.pop(instance), instance))
            if self._queue:  # it may have been the only one that was asked to look for a batch
                out.append(self._look)
        self._watch = self._closed or bool(self._leaving)
        in_flight = self._open or self._queue or len(self._idle) != self._count
        if self._on_drained is not None and not in_flight:
            self._drained()
            out += [partial(on_left, i) for i, on_left in self._leaving.items()]  # no request can come for them
            self._leaving.clear()
            out.append(self._on_drained)
            self._on_drained = None
        return out

    def _free(self, instance: Instance) -> None:
        """Make an instance idle. Without the lock, the caller looks at the queue next."""
        instance.holder = None
        if instance.limited is not None:
            instance.limited.limiter.release(instance.limited)
        self._idle.insert(0, instance)  # behind the others: like Triton's threads, which take turns

    def _taken(self, instance: Instance) -> bool:
        """Take an idle instance; False if a caller has just taken it."""
        try:
            self._idle.remove(instance)
        except ValueError:
            return False
        return True
