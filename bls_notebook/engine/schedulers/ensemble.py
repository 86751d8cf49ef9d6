"""The ensemble scheduler: sends a request through the steps, each as soon as its inputs exist.

Guarantees: independent steps run concurrently. Responses of steps are processed one at a time and in order; no lock is
held while a step is sent or a response is delivered. The request gets its final response once, when no step is running.
`max_inflight_requests` limits each step. The models of the steps stay loaded from the first step to the last. Errors
are worded as Triton's.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import Any

from bls_notebook.engine import observer
from bls_notebook.engine.calling import SendingExecution, root_of
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.deadlocks.detection import check
from bls_notebook.engine.error_responses import cancelled_response, error_response, with_warnings
from bls_notebook.engine.errors import without_running
from bls_notebook.engine.tensors.handover import hand_over
from bls_notebook.engine.tensors.outputs import placed
from bls_notebook.engine.tensors.received_inputs import NotReceivedError, received
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.interrupts import need_room
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.models import RecordedInstance
from bls_notebook.records.visible_text import encodable

from .ensemble_flow import EnsembleFlow, EnsemblePlan, Launch, Membership
from .inflight_limit import InflightLimit
from .lifecycle import Lifecycle

Members = dict[tuple[str, int], LoadedModel]  # by name and version, as configured in the steps

_PLAIN = '{"sequence_id":0,"sequence_start":false,"sequence_end":false}'
_new = InferenceRequest.__new__
_logger = logging.getLogger("bls_notebook")


class EnsembleExecution(SendingExecution):
    """The execution of an ensemble, and parent of the requests of its steps."""

    combined = True

    @property
    def instance_name(self) -> str:
        return self.model_name


class EnsembleRun:
    """One request to an ensemble. Its models are `held` until `ended` is called, once, when no step is running."""

    def __init__(
        self,
        model: LoadedModel,
        plan: EnsemblePlan,
        held: Members,
        request: InferenceRequest,
        ticket: Ticket,
        ended: Callable[[Members], None],
        limits: Sequence[InflightLimit],
    ) -> None:
        self._limits = limits
        self._model, self._plan, self._ended = model, plan, partial(ended, held)
        self._members = [held[step.model, step.version] for step in plan.steps]
        self._options = options = request._options
        self._sequence = Membership(options.correlation_id, options.flags)
        self._flow = EnsembleFlow(plan, [member.spec for member in self._members], request._requested, self._sequence)
        self._request = request
        self._arrived = request._arrived
        self._ticket = ticket
        self._context = ticket.context or copy_context()
        self._lock = threading.Lock()  # of the flow
        self._events: deque[tuple[Launch, Ticket]] = deque()
        self._pump_lock = threading.Lock()
        self._pumping = False
        self._over = False
        self._failures = 0  # as Triton counts the failure, once it has happened
        self._started = perf_counter_ns()
        self._steps_ns = 0
        self.execution = EnsembleExecution(model.server, model, ticket.parent or root_of(model.server))
        self.execution.started = self._started
        self.execution.observed = observed = request._observed
        if observed is not None and (watching := observer.active) is not None:
            place = RecordedInstance(model.seen, model.name, "cpu", None)
            watching.began((observed,), (1,), place, self._started)
        ticket.execution = self.execution

    def start(self) -> None:
        inputs, self._request._inputs = self._request._inputs, []
        with self._lock:
            launches = self._flow.begin(inputs)
            del inputs
            responses, over = self._collect()
        self._give(responses, over)
        for launch in launches:
            self._submit(launch)

    def _submit(self, launch: Launch) -> None:
        if self._limits:
            self._limits[launch.step].enter(partial(self._send, launch))
        else:
            self._send(launch)

    def _send(self, launch: Launch) -> None:
        try:
            refusal = self._sent(launch)
        except (MemoryError, RecursionError) as error:  # the caller is at the end of its stack
            refusal = error_response(f"{type(error).__name__}: {error}")
        if refusal is not None:
            for ready in self._take(launch, refusal, True):
                self._submit(ready)

    def _sent(self, launch: Launch) -> InferenceResponse | None:
        """Send the request of a step; return the error response if that is impossible."""
        member = self._members[launch.step]
        request = self._request_of(launch)
        if isinstance(request, InferenceResponse):
            return request
        ticket = Ticket(member, request, self.execution, self._context.copy())
        del request
        ticket.on_response = partial(self._answered, launch, ticket)
        ticket.cancelled = self._ticket.cancelled
        self.execution.submit(ticket)
        if ticket.queued:
            check([ticket])
        return None

    def _request_of(self, launch: Launch) -> InferenceRequest | InferenceResponse:
        """Return the request to a step's model, or an error response if it cannot be sent."""
        member = self._members[launch.step]
        if self.execution.cancelled:
            launch.tensors = []
            return cancelled_response(self._model.name)
        request = _new(InferenceRequest)
        request._inputs, launch.tensors = launch.tensors, []
        request._requested = tuple(self._plan.steps[launch.step].outputs)
        request._model_name = member.name
        request._model_version = member.version
        request._options = options = self._options
        sequence = launch.sequence
        if options.preferred_memory is not None or sequence != self._sequence:
            request._options = replace(
                options, correlation_id=sequence.correlation_id, flags=sequence.flags, preferred_memory=None, priority=0
            )
        problem, code = member.check.problem(request), ErrorCode.INVALID_ARG
        if problem is None:
            try:
                return received(member, request, True, "ensemble", self.execution)
            except NotReceivedError as error:
                problem, code = str(error), ErrorCode.INTERNAL
        refused: InferenceResponse = self.execution._refused(request, problem, False, "ensemble")
        if refused._error is not None:
            refused._error._code = code
        return refused

    def _answered(self, launch: Launch, ticket: Ticket) -> None:
        """Process a response of a step in the background; called on any thread."""
        self._events.append((launch, ticket))
        while True:
            with self._pump_lock:
                if self._pumping or not self._events:
                    return
                self._pumping = True
            try:
                while self._events:
                    self._take_all(*self._events.popleft())
            finally:
                with self._pump_lock:
                    self._pumping = False

    def _take_all(self, launch: Launch, ticket: Ticket) -> None:
        while (taken := ticket.take()) is not None:
            response, final = taken
            del taken
            took = perf_counter_ns() - ticket.queued_at if final else 0
            for ready in self._take(launch, response, final, took):
                self._submit(ready)

    def _take(self, launch: Launch, response: InferenceResponse, final: bool, took_ns: int = 0) -> list[Launch]:
        """Process a response of a step; return the steps that can run now."""
        decoupled = self._members[launch.step].decoupled
        outputs: list[Tensor] | None
        outputs, response._outputs = response._outputs, []
        if final and decoupled and not outputs:
            outputs = None  # only a final flag
        parameters = response._parameters
        with self._lock:
            self._steps_ns += took_ns
            if response._error is not None:
                self._flow.fail(response._error)
            launches: list[Launch] = []
            try:
                launches = self._flow.answered(
                    launch, outputs, json.loads(parameters) if parameters != "{}" else {}, final, decoupled
                )
            except ValueError as error:
                self._flow.fail(TritonError(encodable(str(error))))
            if self._flow.error is not None and not self._failures:
                self._failures = 1 if self._flow.running else 2
            del outputs
            responses, over = self._collect()
        self._give(responses, over)
        if final and self._limits:
            self._limits[launch.step].leave()
        return launches

    def _collect(self) -> tuple[list[tuple[InferenceResponse, bool]], bool]:
        """Return the responses to deliver now, and whether the run is over; the flow's lock is held."""
        flow = self._flow
        out: list[tuple[InferenceResponse, bool]] = []
        while (made := flow.take_outputs()) is not None:
            tensors, parameters = made
            del made
            before = tensors
            if self._model.decoupled:  # a later step may still read one of these
                tensors = hand_over(tensors, True)
            if (watching := observer.active) is not None:
                watching.copied(before, tensors)
            response = InferenceResponse()
            response._outputs = tensors
            del before, tensors  # without these references, their memory can move
            response = placed(response, self._request._requested, self.execution.observed)
            if (watching := observer.active) is not None:
                outputs = response._outputs
                watching.returned(self.execution.observed, outputs, outputs, self._model.name)
                del outputs
            if parameters:
                plain = parameters["sequence_id"] == 0 and True not in parameters.values()
                response._parameters = _PLAIN if plain else json.dumps(parameters, separators=(",", ":"))
            out.append((response, False))
        if flow.running or self._over:
            return out, False
        self._over = True
        if flow.error is not None:
            return [(self._error(flow.error), True)], True
        if out:
            out[-1] = (out[-1][0], True)
        elif self._model.decoupled or flow.responses:
            if not flow.responses and self._plan.starves(frozenset(self._request._requested)):
                asked = ", ".join(self._request._requested)
                self.execution.note_warnings([
                    f"ensemble '{self._model.name}' sent no response: asked for {asked} alone, it runs too few steps, "
                    "as on a server; request all of its outputs"
                ])  # fmt: skip
            out.append((InferenceResponse(), True))
        else:
            problem = (
                f"[request id: {self._options.request_id or '<id_unknown>'}] unexpected deadlock, at least one output "
                "is not set while no more ensemble steps can be made"
            )
            out.append((self._error(TritonError(encodable(problem), ErrorCode.INVALID_ARG)), True))
        return out, True

    def _error(self, error: TritonError) -> InferenceResponse:
        message = f"in ensemble '{self._model.name}', {without_running(error._message)}"
        cause: Any = error._origin or ErrorRecord("", "")
        chain = (self._model.name, *cause.chain)
        return error_response(message, error._code, replace(cause, message=message, code=error._code.name, chain=chain))

    def _give(self, responses: list[tuple[InferenceResponse, bool]], over: bool) -> None:
        execution = self.execution
        if execution.warnings:  # of the steps
            responses = [
                (with_warnings(response, self._model, execution, execution.parent), final)
                for response, final in responses
            ]
        if over:
            self._count(responses[-1][0]._error is not None)
            observed, now = execution.observed, perf_counter_ns()
            if observed is not None and (watching := observer.active) is not None:
                watching.ended((observed,), now, now)
        for response, final in responses:
            counts = response._error is None and (response._outputs or not self._model.decoupled)
            if counts and len(response._outputs) < len(self._request._requested):
                for name in set(self._request._requested).difference(t._name for t in response._outputs):
                    _logger.debug("Composing models did not output tensor %s", name)
            self._ticket.finish(response, final)
        if over:
            self.execution.finished = True
            self._ended()

    def _count(self, failed: bool) -> None:
        ended = perf_counter_ns()
        statistics = self._model.statistics
        if failed:
            for _ in range(self._failures or 2):  # as on Triton: by the failing step, and by the end unless others run
                statistics.failed(ended - self._arrived, "OTHER")
            return
        rows = max(1, self._flow.batch)
        waited = self._started - self._arrived
        statistics.execution(rows, waited, self._steps_ns, 0)
        statistics.succeeded(rows, (ended - self._arrived, 0, waited, self._steps_ns, 0))


class EnsembleScheduler(Lifecycle):
    """Scheduler of one version of an ensemble, which has no instances of its own."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model)
        self._idle, self._queue = [], set()  # always empty: requests wait in the queues of the steps' models
        self._plan = EnsemblePlan(model.spec, model.steps)
        most = model.spec.config.ensemble_scheduling.max_inflight_requests
        steps = enumerate(self._plan.steps, 1) if most else ()
        self._limits = [InflightLimit(most, f"ensemble '{model.name}', step {n} ({s.model})") for n, s in steps]

    def submit(self, ticket: Ticket) -> None:
        need_room()
        request, ticket.request = ticket.request, None
        held = self._enter()
        if isinstance(held, InferenceResponse):
            ticket.finish(held)
            return
        assert request is not None
        EnsembleRun(self._model, self._plan, held, request, ticket, self._ended, self._limits).start()

    def withdraw(self, ticket: Ticket) -> bool:
        """Do nothing: an ensemble has no queue, and an interrupt reaches its steps through the execution."""
        return False

    def drop_cancelled(self, ticket: Ticket) -> bool:
        """Keep a cancelled request: the steps that begin from now on are cancelled, too."""
        return False

    def settled(self, ticket: Ticket) -> None:
        """Do nothing: a request counts until its last step has ended."""

    def _enter(self) -> Members | InferenceResponse:
        """Hold the models of the steps and return them, or an error response if one is not ready."""
        held: Members = {}
        with self._lock:
            if self._closed:
                return error_response(self._model.server.unknown(self._model.name, self._model.version))
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
                return error_response(f"in ensemble '{self._model.name}', {problem}")
            held[name, version] = member
        return held

    def _hold(self, name: str, version: int) -> LoadedModel | None:
        while True:
            member: LoadedModel | None = self._model.server.find_key(name, version)
            if member is None or member.hold():
                return member
            if self._model.server.find_key(name, version) is member:
                return None

    def _ended(self, held: Members) -> None:
        """Release the models of a request that is over."""
        for member in held.values():
            member.release()
        with self._lock:
            self._open.discard(id(held))
        if self._watch:
            self._notify()

    def _look(self) -> None:
        """Do nothing: no instance waits for work."""
