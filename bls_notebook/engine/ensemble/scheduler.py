"""The scheduler of an ensemble: sends a request through the steps, each as soon as its inputs are there.

Guarantees: steps that do not need each other run side by side; a synchronous caller runs, on its own thread,
one of the steps that are ready, so an ensemble without branches needs no other thread; the models of the
steps are held from the first step to the last, so an unload in between lets the request finish; the final
response comes when no step is under way any more; the wait graph sees through it.
"""

from __future__ import annotations

from contextvars import copy_context

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.failures import error_response
from bls_notebook.engine.messages import in_ensemble, not_ready
from bls_notebook.engine.recording.spans import record_at_once
from bls_notebook.engine.root import root_of
from bls_notebook.engine.schedulers.lifecycle import Lifecycle
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.stack_room import need_room
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .plan import EnsemblePlan
from .run import EnsembleRun, Members


class EnsembleScheduler(Lifecycle):
    """Scheduler of one version of an ensemble, which has no instances of its own."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model)
        self._idle, self._queue = [], set()  # no request waits here; those of the steps wait at their models
        self._plan = EnsemblePlan(model.spec)

    # -- serving -------------------------------------------------------------------------------------

    def call(self, parent: Execution, request: InferenceRequest) -> InferenceResponse:
        """Serve a request and wait for its answer."""
        need_room()
        parent.note_blocking(self._model.name)
        held = self._enter()
        if isinstance(held, InferenceResponse):
            record_at_once(self._model, parent, request, held)
            return held
        return EnsembleRun(self._model, self._plan, held, parent, request, None, self._ended).serve()

    def submit(self, ticket: Ticket) -> None:
        """Serve a request in the background."""
        need_room()
        request, ticket.request = ticket.request, None
        held = self._enter()
        if isinstance(held, InferenceResponse):
            ticket.finish(held)
            return
        assert request is not None
        parent = ticket.parent or root_of(self._model.server)
        run = EnsembleRun(self._model, self._plan, held, parent, request, ticket, self._ended)
        run.context = ticket.context or copy_context()
        run.start()

    def withdraw(self, ticket: Ticket) -> bool:
        """Cancel the steps of a request; its answer comes when they have ended."""
        execution = ticket.execution
        if execution is not None:
            execution.cancelled = True
            for child in list(execution.children):
                child.cancel()
        return False

    def settled(self, ticket: Ticket) -> None:
        """Nothing to do: a request counts until its last step has ended."""

    # -- the models of the steps ---------------------------------------------------------------------

    def _enter(self) -> Members | InferenceResponse:
        """Hold the models of the steps, or say why it cannot be done."""
        held: Members = {}
        with self._lock:
            if self._closed:
                return error_response(not_ready(self._model.name))
            self._open.add(id(held))
        for name, version in self._plan.models:
            member = self._hold(name, version)
            if member is None:
                self._ended(held)
                problem = (
                    f"'{name}' has no available versions"
                    if version == -1
                    else f"'{name}' version {version} is not at ready state"
                )
                return error_response(in_ensemble(self._model.name, problem))
            held[name, version] = member
        return held

    def _hold(self, name: str, version: int) -> LoadedModel | None:
        while True:
            member: LoadedModel | None = self._model.server.find(name, version)
            if member is None or member.hold():
                return member
            if self._model.server.find(name, version) is member:
                return None

    def _ended(self, held: Members) -> None:
        """A request has left, and lets go of these models."""
        for member in held.values():
            member.release()
        with self._lock:
            self._open.discard(id(held))
        if self._watch:
            self._tell()

    def _look(self) -> None:
        """Nothing to do: no instance waits for work."""
