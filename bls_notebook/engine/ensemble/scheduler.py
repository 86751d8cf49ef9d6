"""The scheduler of an ensemble: sends a request through the steps, each as soon as its inputs are there.

Guarantees: steps that do not need each other run side by side; a synchronous caller runs, on its own thread,
one of the steps that are ready, so an ensemble without branches needs no other thread; the models of the
steps are held from the first step to the last, so an unload in between lets the request finish; the final
response comes when no step is under way any more; the wait graph sees through it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.failures import error_response
from bls_notebook.engine.messages import in_ensemble, not_ready
from bls_notebook.engine.recording.spans import record_at_once
from bls_notebook.engine.root import root_of
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.stack_room import need_room
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .plan import EnsemblePlan, Step
from .run import EnsembleRun

__all__ = ["EnsembleScheduler"]


class EnsembleScheduler:
    """Scheduler of one version of an ensemble."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._plan = EnsemblePlan.of(model.spec.config)
        self._lock = threading.Lock()
        self._open = 0
        self._closed = False
        self._on_drained: Callable[[], None] | None = None

    # -- serving -------------------------------------------------------------------------------------

    def call(self, parent: Execution, request: InferenceRequest) -> InferenceResponse:
        """Serve a request and wait for its answer."""
        need_room()
        parent.note_blocking(self._model.name)
        members = self._enter()
        if isinstance(members, InferenceResponse):
            record_at_once(self._model, parent, request, members)
            return members
        return EnsembleRun(self._model, self._plan, members, parent, request, None, self._ended).serve()

    def submit(self, ticket: Ticket) -> None:
        """Serve a request in the background."""
        need_room()
        request, ticket.request = ticket.request, None
        members = self._enter()
        if isinstance(members, InferenceResponse) or request is None:
            ticket.finish(members if isinstance(members, InferenceResponse) else InferenceResponse())
            return
        parent = ticket.parent or root_of(self._model.server)
        run = EnsembleRun(self._model, self._plan, members, parent, request, ticket, self._ended)
        run.context = ticket.context or copy_context()
        run.start()

    @property
    def pending(self) -> int:
        """No request waits here; those of the steps wait at their models."""
        return 0

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

    def _enter(self) -> list[LoadedModel] | InferenceResponse:
        """Hold the models of the steps, or say why it cannot be done."""
        with self._lock:
            if self._closed:
                return error_response(not_ready(self._model.name))
            self._open += 1
        members: list[LoadedModel] = []
        held: dict[tuple[str, int], LoadedModel] = {}
        for step in self._plan.steps:
            member = held.get((step.model, step.version)) or self._hold(step)
            if member is None:
                self._ended(list(held.values()))
                name = step.model
                problem = (
                    f"'{name}' has no available versions"
                    if step.version == -1
                    else f"'{name}' version {step.version} is not at ready state"
                )
                return error_response(in_ensemble(self._model.name, problem))
            if (step.model, step.version) not in held and member in held.values():
                member.release()  # the newest version is also asked for by its number: one hold is enough
            held[step.model, step.version] = member
            members.append(member)
        return members

    def _hold(self, step: Step) -> LoadedModel | None:
        while True:
            member: LoadedModel | None = self._model.server.find(step.model, step.version)
            if member is None or member.hold():
                return member
            if self._model.server.find(step.model, step.version) is member:
                return None

    def _ended(self, members: list[LoadedModel]) -> None:
        """A request has left, and lets go of these models."""
        for member in dict.fromkeys(members):
            member.release()
        with self._lock:
            self._open -= 1
            drained = self._drained()
        if drained is not None:
            drained()

    # -- closing -------------------------------------------------------------------------------------

    def resize(
        self, added: Sequence[Instance], removed: Sequence[Instance], on_left: Callable[[Instance], None]
    ) -> None:
        """Do nothing: an ensemble has no instances of its own."""

    def close(self, on_drained: Callable[[], None]) -> None:
        """Accept no more requests; call `on_drained` once when all has been answered."""
        with self._lock:
            self._closed = True
            self._on_drained = on_drained
            drained = self._drained()
        if drained is not None:
            drained()

    def _drained(self) -> Callable[[], None] | None:
        if not self._closed or self._open:
            return None
        callback, self._on_drained = self._on_drained, None
        return callback
