"""One `execute` whose calls are sent ahead: what it does with the answers, in the order of its program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from time import perf_counter_ns
from typing import Any

from bls_notebook.engine import messages
from bls_notebook.engine.calling import SendingExecution
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.description import describe
from bls_notebook.engine.tensors.inbound import NotReceivedError, received
from bls_notebook.engine.ticket import Ticket
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.options import MemoryType
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.profiling.records.program import Program
from bls_notebook.records.visible import first_line

from .lazy import LazyResponse, plain, real
from .pending import Pending

_get_ident = threading.get_ident


class Ahead:
    """What became of a model while its calls were sent ahead.

    Parameters
    ----------
    ahead : bool
        False to wait for each answer, as the model is written: its program is recorded all the same.
    lazy_arrays : bool
        Whether an array waits where it is looked at; else where it is asked for (`as_numpy`), for models
        that give arrays to code in C.
    as_ever : bool
        Whether `exec` serves its request as it always does, on this thread where it can, and `async_exec` is
        left alone: the program is recorded, and nothing is changed.
    """

    def __init__(self, ahead: bool = True, lazy_arrays: bool = True, as_ever: bool = False) -> None:
        self.ahead, self.lazy_arrays, self.as_ever = ahead, lazy_arrays, as_ever
        self.programs: list[Program] = []
        self.spans: list[int] = []  # whose they are: the numbers of requests in a profile
        self.kept: dict[str, None] = {}  # why something was not sent ahead
        self.spoilt: dict[str, None] = {}  # why the run says nothing
        self.raised = False  # an `execute` did


_running: ContextVar[Run | None] = ContextVar("bls_run_ahead", default=None)


class Run:
    """One `execute`."""

    def __init__(self, how: Ahead) -> None:
        self.how = how
        self.thread = _get_ident()
        self._calls: list[Pending] = []
        self._last: dict[tuple[str, int], Pending] = {}  # of models that keep an order
        self._steps: list[tuple[int, int, int]] = []
        self._looked: set[int] = set()
        self._at = perf_counter_ns()  # since when it has been at work
        self._done = 0  # own work up to then
        self._told = 0  # up to the last step
        self._before = _running.get()
        self._caller: Any = caller_var.get()
        caller = self._caller
        if type(caller) is SendingExecution:
            caller.__class__ = AheadExecution
            _running.set(self)

    # -- own work ----------------------------------------------------------------------------------

    def _step(self, call: int, needed: int) -> None:
        own = self._done + perf_counter_ns() - self._at
        self._steps.append((own - self._told, call, needed))
        self._told = own

    @contextmanager
    def _elsewhere(self) -> Iterator[None]:
        """Time that is not the program's own."""
        self._done += perf_counter_ns() - self._at
        try:
            yield
        finally:
            self._at = perf_counter_ns()

    # -- calls -------------------------------------------------------------------------------------

    def send(
        self, execution: AheadExecution, request: InferenceRequest, given: bool = False
    ) -> InferenceResponse:
        """Send a request, now or as soon as what it needs is there."""
        with self._elsewhere():
            call = Pending(self, len(self._calls), request, execution.open)
            model = execution.server.find(request._model_name, request._model_version)
            if model is not None and _keeps_order(model, request):
                earlier = self._last.get(model.who)
                if earlier is not None and earlier not in call.needs:
                    call.needs.append(earlier)
                    call.ordered = True
                self._last[model.who] = call
            self._calls.append(call)
        self._step(call.number, 0)
        with self._elsewhere():
            if self.how.as_ever:
                call.take(SendingExecution.exec(execution, call.ready(), False, given))
            else:
                call.outputs = _outputs(model, request)
                call.begin()
                if not self.how.ahead:
                    call.answer()
        return LazyResponse(call, self.how.lazy_arrays and not _may_be_on_gpu(model, request))

    def look(self, call: Pending) -> InferenceResponse:
        """Wait for an answer that the program looks at."""
        if _get_ident() != self.thread:
            return call.answer()
        first = call.number not in self._looked
        if first:
            self._step(call.number, 1)
            self._looked.add(call.number)
        with self._elsewhere():
            return call.answer()

    def spoil(self, why: str) -> None:
        """Say that the run says nothing."""
        self.how.spoilt[why] = None

    def keep(self, why: str) -> None:
        """Say that something was not sent ahead."""
        self.how.kept[why] = None

    # -- the end -----------------------------------------------------------------------------------

    def settled(self, returned: Any) -> Any:
        """Return what `execute` did, once all that it sent has been answered."""
        own = self._done + perf_counter_ns() - self._at
        for call in self._calls:
            response = call.settle()
            if response._error is not None and self.how.ahead:
                self.spoil(f"`{call.model}` answered with an error: {first_line(response._error._message)}")
        if isinstance(returned, list):
            returned = [plain(response) for response in returned]
        calls = tuple(call.record() for call in self._calls)
        self.how.programs.append(Program(calls, tuple(self._steps), own - self._told))
        self.how.spans.append(getattr(self._caller, "span", 0))
        self._leave()
        return returned

    def abandon(self, error: BaseException) -> None:
        """`execute` raised: what it sent is waited for, as it would have been."""
        self.how.raised = True
        self.spoil(f"its execute raised {first_line(describe(error).message)}")
        try:
            for call in self._calls:
                call.settle()
        finally:
            self._leave()

    def _leave(self) -> None:
        _running.set(self._before)
        if type(self._caller) is AheadExecution:
            setattr(self._caller, "__class__", SendingExecution)  # noqa: B010 - to mypy it is the other one


def _keeps_order(model: LoadedModel, request: InferenceRequest) -> bool:
    return model.spec.scheduler == "sequence" or bool(request._options.correlation_id)


def _may_be_on_gpu(model: LoadedModel | None, request: InferenceRequest) -> bool:
    """Whether outputs may come in the memory of a GPU, where they are no arrays of NumPy."""
    wanted = request._options.preferred_memory
    if wanted is not None:
        return wanted._memory_type == MemoryType.TRITONSERVER_MEMORY_GPU
    return model is not None and any(instance.device != "cpu" for instance in model.instances)


def _outputs(model: LoadedModel | None, request: InferenceRequest) -> list[tuple[str, str]]:
    if model is None:
        return []
    wanted = request._requested or model.output_names
    return [(n, model.spec.outputs[n].datatype) for n in wanted if n in model.spec.outputs]


class AheadExecution(SendingExecution):
    """An execution whose requests are sent ahead."""

    __slots__ = ()

    def exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> Any:
        """Answer at once with a response that is waited for later."""
        run = _run_of(request, decoupled)
        return super().exec(request, decoupled, given) if run is None else run.send(self, request, given)

    def async_exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> asyncio.Future[Any]:
        """Answer at once; what awaits it goes on."""
        run = _run_of(request, decoupled, True)
        if run is None:
            return super().async_exec(request, decoupled, given)
        future = asyncio.get_running_loop().create_future()
        future.set_result(run.send(self, request))
        return future

    def open(self, request: InferenceRequest, context: Context) -> Ticket | InferenceResponse:
        """Return the ticket of a request that is to be sent, or its refusal."""
        model = self.server.find(request._model_name, request._model_version)
        if model is None:
            return self._refused(request, messages.not_ready(request._model_name), False)  # type: ignore[no-any-return]
        problem = model.check.problem(request) or self._problem(model, request, False)
        try:
            if problem is None:
                ticket = Ticket(model, received(model, request, False, "async", self), self, context)
                self.adopt(ticket)
                return ticket
        except NotReceivedError as error:
            problem = str(error)
        return self._refused(request, problem, False)  # type: ignore[no-any-return]


def _run_of(request: InferenceRequest, decoupled: bool, awaited: bool = False) -> Run | None:
    """Return who sends a request ahead; None where it is sent as it is written, with all that it needs."""
    run = _running.get()
    as_ever = run is not None and run.how.as_ever and awaited
    if run is not None and not decoupled and not as_ever and run.thread == _get_ident():
        return run
    if run is not None:
        what = "a stream is read" if decoupled else "a request from another thread is sent"
        run.keep(f"{what} as it is written")
    for tensor in request._inputs:
        tensor._array = real(tensor._array)
    return None
