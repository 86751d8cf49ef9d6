"""Send requests from outside any model: one response or a stream, blocking or awaited.

Guarantees: ending or dropping a stream cancels its request; awaiting a response blocks no thread.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import CO_OPTIMIZED
from time import perf_counter
from typing import Any
from weakref import ReferenceType

from bls_notebook.engine.calling import SendingExecution, root_of
from bls_notebook.engine.core.model_spec import ModelSpec
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.interrupts import CtrlC
from bls_notebook.engine.waiting.worker_threads import later
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, TritonModelException
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.response import ResponseIterator, StreamEnded
from bls_notebook.records.advice import Known
from bls_notebook.records.visible_text import first_line

from .inputs import client_parameters, preferred_memory_of, tensors_of, trace_of
from .response import Response

# (request, response, when it was sent, index, final) -> Response
Wrap = Callable[[InferenceRequest, InferenceResponse, float, int, bool], Response]


class _WhenDropped(ReferenceType):  # type: ignore[type-arg]
    """Cancels the request of a stream that was garbage-collected.

    A weak reference instead of `__del__`: a KeyboardInterrupt raised inside a Python destructor is lost.
    """

    __slots__ = ("stream",)
    stream: Any

    def __new__(cls, stream: _ClientStream) -> _WhenDropped:
        return super().__new__(cls, stream, later)

    def __init__(self, stream: _ClientStream) -> None:
        super().__init__(stream, later)  # type: ignore[call-arg]

    def __call__(self) -> None:
        self.stream.cancel()
        self.stream.discard()


class _ClientStream:
    def __init__(self, caller: SendingExecution, request: InferenceRequest, wrap: Wrap) -> None:
        self._caller, self._request, self._wrap = caller, request, wrap
        self._started = 0.0
        self._index = 0
        self._stream: Any = None
        self._responses: Any = None
        self._dropped: _WhenDropped | None = None
        self._over = False
        self._last: Response | None = None

    def _open(self, responses: Any) -> None:
        # In a model this is an iterator around the stream. Keep it: garbage collection of it would discard the stream.
        self._responses = responses
        self._stream = responses._stream if isinstance(responses, ResponseIterator) else responses
        self._dropped = _WhenDropped(self)
        self._dropped.stream = self._stream

    def _wrapped(self, response: InferenceResponse, final: bool) -> Response | None:
        """Return the `Response`; None for a final flag that arrives alone after other responses."""
        if final:
            self._end()
        if final and self._last is not None and not response._outputs and response._error is None:
            self._last.final = True
            return None
        out = self._wrap(self._request, response, self._started, self._index, final)
        self._last = out
        self._index += 1
        return out

    def close(self) -> None:
        if not self._over:
            self._end()
            if self._stream is not None:
                self._stream.cancel()
                self._stream.discard()

    def _end(self) -> None:
        self._over = True
        self._dropped = None


class ClientStream(_ClientStream, Iterator[Response]):
    def __next__(self) -> Response:
        if self._over:
            raise StopIteration
        try:
            with CtrlC():
                if self._stream is None:
                    self._started = perf_counter()
                    self._open(self._caller.exec(self._request, True, False))
                out = self._wrapped(*self._stream.next_response())
        except StreamEnded:
            self._end()
            out = None
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self._caller.interrupt()
            self.close()
            raise
        if out is None:
            raise StopIteration
        return out


class AsyncClientStream(_ClientStream, AsyncIterator[Response]):
    async def __anext__(self) -> Response:
        if self._over:
            raise StopAsyncIteration
        try:
            if self._stream is None:
                self._started = perf_counter()
                self._open(await self._caller.async_exec(self._request, True, False))
            out = self._wrapped(*await self._stream.next_response_async())
        except StreamEnded:
            self._end()
            out = None
        except BaseException:
            self.close()
            raise
        if out is None:
            raise StopAsyncIteration
        return out

    async def aclose(self) -> None:
        self.close()


class Sender:
    """Sends requests to the models of a server.

    An error response is returned, never raised. A value that cannot become a tensor raises a BLSError.
    """

    def __init__(self, server: Server, known: Known) -> None:
        self._server = server
        self._known = weakref.ref(known)  # responses must not keep the repository alive

    def caller(self) -> SendingExecution:
        """Return the sender: the execution that runs on this thread, or else the notebook."""
        caller = caller_var.get()
        if isinstance(caller, SendingExecution) and caller.server is self._server:
            return caller
        return root_of(self._server)

    def request(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        version: int = -1,
        preferred_memory: object = None,
        timeout: int = 0,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        parameters: Mapping[str, Any] | None = None,
        trace: object = None,
    ) -> InferenceRequest:
        """Return a request; see `ModelRepository.infer` for the arguments."""
        if not isinstance(name, str):
            raise BLSError(f"model name: got {name!r}, expected text such as 'add_sub'")
        if isinstance(outputs, (str, bytes)):
            raise BLSError(
                f"model {name!r}: outputs: got the text {outputs!r}, expected a list of names, such as [{outputs!r}]"
            )
        # Most requests have none of these options; the checks for None save the calls.
        memory = None if preferred_memory is None else preferred_memory_of(preferred_memory)
        joined_trace = None if trace is None else trace_of(trace)
        try:
            model_parameters, priority = ("{}", 0) if parameters is None else client_parameters(parameters)
            model = self._server.find(name, version)
            tensors = tensors_of(name, inputs, model.spec if model is not None else None)
            output_names = list(outputs or ())
            request = InferenceRequest(request_id, correlation_id, tensors, output_names, name, version, flags, timeout)
        except (TypeError, ValueError, RuntimeError, TritonModelException) as error:
            raise BLSError(f"model {name!r}: {first_line(str(error))}") from error
        if memory is not None or joined_trace is not None or priority or model_parameters != "{}":
            # The constructor that models use does not accept all of these.
            request._options = replace(
                request._options,
                preferred_memory=memory,
                trace=joined_trace,
                parameters=model_parameters,
                priority=priority,
            )
        return request

    def response(
        self, request: InferenceRequest, response: InferenceResponse, started: float, index: int = 0, final: bool = True
    ) -> Response:
        """Return the `Response` for an engine's response; `index` is its position in a stream."""
        seconds = (response._arrived or perf_counter()) - started
        model = self._server.find(request._model_name, request._model_version)
        timeout = request._options.timeout
        if timeout and not index and model is not None:
            response._warnings += _timeout_warnings(model.spec, timeout)
        answer = Response(
            response,
            request._model_name,
            model.version if model is not None else 0,
            request._options.request_id,
            seconds,
            index,
            final,
            known=self._known,
        )
        if response._error is not None:
            answer.sent_as(_variables(request))
        return answer

    def send(self, request: InferenceRequest) -> Response:
        caller = self.caller()
        started = perf_counter()
        return self.response(request, caller.exec(request, False, False), started)

    async def send_async(self, request: InferenceRequest) -> Response:
        started = perf_counter()
        return self.response(request, await self.caller().async_exec(request, False, False), started)

    def stream(self, request: InferenceRequest) -> ClientStream:
        return ClientStream(self.caller(), request, self.response)

    def stream_async(self, request: InferenceRequest) -> AsyncClientStream:
        return AsyncClientStream(self.caller(), request, self.response)


def _variables(request: InferenceRequest) -> dict[str, str]:
    """Return the variable of each input in the cell or module that sends a request, by identity; "" if it has none."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("bls_notebook."):
        frame = frame.f_back
    # A function's f_locals would be a copy that keeps its values alive until the function returns (Python < 3.13).
    space = frame.f_globals if frame.f_code.co_flags & CO_OPTIMIZED else frame.f_locals
    variables = {id(value): name for name, value in list(space.items()) if name[:1] != "_"}
    return {tensor._name: variables.get(id(tensor._array), "") for tensor in request._inputs}


def _timeout_warnings(spec: ModelSpec, timeout: int) -> tuple[str, ...]:
    """Return a warning if the configuration makes a request's timeout (µs) ineffective, with the reason."""
    if timeout <= 0 or spec.scheduler in ("sequence", "ensemble"):  # a sequence's wait for a slot respects timeouts
        return ()
    batching = spec.config.dynamic_batching
    policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
    limits = [policy.default_timeout_microseconds for policy in policies if policy.allow_timeout_override]
    if spec.scheduler != "dynamic":
        why = "without dynamic_batching no request expires in the queue; the model can read request.timeout()"
    elif not limits:
        why = "its queue policy does not have allow_timeout_override: true"
    elif timeout >= max(limits):
        why = f"it must be less than the queue policy's default_timeout_microseconds, {max(limits):,}"
    else:
        return ()
    return (f"model '{spec.name}': the timeout of {timeout:,} µs has no effect: {why}",)
