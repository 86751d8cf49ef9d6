"""Sending requests from outside any model: sync, async and as streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

from bls_notebook.engine.body import run_body
from bls_notebook.engine.calling import SendingExecution
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.root import root_of
from bls_notebook.observe.visible import first_line
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, TritonModelException
from bls_notebook.pb_utils._runtime import caller_var

from .inputs import preferred_memory_of, tensors_of
from .parameters import client_parameters, with_parameters
from .response import Response
from .streaming import AsyncWalk, Walk
from .tracing import trace_of

__all__ = ["Requests"]

_Names = Sequence[str] | None


class Requests:
    """The part of a repository that sends requests; see `ModelRepository` for the arguments.

    An error response is returned, never raised; a value that no tensor can be made of raises BLSError.
    """

    _server: Server

    def run(self, function: Callable[[], Any]) -> Any:
        """Run a function as the body of an `execute`: it may send BLS requests.

        Parameters
        ----------
        function : callable
            Without arguments; a coroutine function is awaited, in an event loop of its own.

        Returns
        -------
        object
            What the function returned.
        """
        return run_body(self._server, function)

    @property
    def strict(self) -> bool:
        """Whether warnings fail the request; may be set at any time."""
        return self._server.strict

    @strict.setter
    def strict(self, value: bool) -> None:
        self._server.set_strict(bool(value))

    def _caller(self) -> SendingExecution:
        caller = caller_var.get()
        if isinstance(caller, SendingExecution) and caller.server is self._server:
            return caller  # called from a model: it counts as that model's request
        return root_of(self._server)

    def _request(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: _Names,
        version: int,
        preferred_memory: object,
        timeout: int,
        request_id: str,
        correlation_id: int | str,
        flags: int,
        parameters: Mapping[str, Any] | None,
        trace: object,
    ) -> InferenceRequest:
        if not isinstance(name, str):
            raise BLSError(f"model name: got {name!r}, expected text such as 'add_sub'")
        if isinstance(outputs, (str, bytes)):
            raise BLSError(
                f"model {name!r}: outputs: got the text {outputs!r}, expected a list of names, "
                f"such as [{outputs!r}]"
            )
        options: dict[str, Any] = {}
        memory = preferred_memory_of(preferred_memory)
        if memory is not None:
            options["preferred_memory"] = memory
        joined = trace_of(trace)
        if joined is not None:
            options["trace"] = joined
        try:
            own, priority = client_parameters(parameters)
            model = self._server.find(name, version)
            request = InferenceRequest(
                request_id=request_id,
                correlation_id=correlation_id,
                inputs=tensors_of(name, inputs, model.spec if model is not None else None),
                requested_output_names=list(outputs or ()),
                model_name=name,
                model_version=version,
                flags=flags,
                timeout=timeout,
                **options,
            )
        except (TypeError, ValueError, RuntimeError, TritonModelException) as error:
            raise BLSError(f"model {name!r}: {first_line(str(error))}") from error
        return with_parameters(request, own, priority)

    def _response(
        self,
        request: InferenceRequest,
        response: InferenceResponse,
        started: float,
        index: int = 0,
        final: bool = True,
    ) -> Response:
        seconds = (response._arrived or perf_counter()) - started
        model = self._server.find(request._model_name, request._model_version)
        return Response(
            response,
            request._model_name,
            model.version if model is not None else 0,
            request.request_id(),
            seconds,
            index,
            final,
        )

    def infer(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: _Names = None,
        version: int = -1,
        preferred_memory: object = None,
        timeout: int = 0,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        parameters: Mapping[str, Any] | None = None,
        trace: object = None,
    ) -> Response:
        """Send a request and wait for the answer.

        Parameters
        ----------
        name : str
            Name of the model.
        inputs : mapping of str to array
            Arrays are sent as they are; lists, numbers and text take the input's data type.
        outputs : sequence of str, optional
            Names of the outputs that are wanted; all by default.
        version : int
            -1 for the newest that is ready.
        preferred_memory : str or PreferredMemory, optional
            Where the outputs should be: ``"cpu"``, ``"gpu:0"``.
        timeout : int
            Microseconds, as in `pb_utils.InferenceRequest`.
        request_id, correlation_id, flags, parameters
            As in `pb_utils.InferenceRequest`. A parameter ``priority`` (a whole number) is the request's
            level of priority in a dynamic batcher's queue and does not reach the model, as over HTTP.
        trace : bool, str or mapping, optional
            True begins a trace; W3C's ``traceparent``, or a mapping with it (what OpenTelemetry's
            ``propagate.inject`` fills in), joins one. The model sees it by ``request.trace()``.

        Returns
        -------
        Response
            Its `error` is set where the request failed; that is never raised.

        Raises
        ------
        BLSError
            A value of which no tensor can be made, or no traceparent.
        """
        request = self._request(
            name, inputs, outputs, version, preferred_memory, timeout, request_id, correlation_id,
            flags, parameters, trace,
        )  # fmt: skip
        caller = self._caller()
        started = perf_counter()
        response = caller.exec(request, False, False)
        return self._response(request, response, started)

    async def infer_async(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: _Names = None,
        version: int = -1,
        preferred_memory: object = None,
        timeout: int = 0,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        parameters: Mapping[str, Any] | None = None,
        trace: object = None,
    ) -> Response:
        """Send a request and await the answer; as `infer`."""
        request = self._request(
            name, inputs, outputs, version, preferred_memory, timeout, request_id, correlation_id,
            flags, parameters, trace,
        )  # fmt: skip
        started = perf_counter()
        response = await self._caller().async_exec(request, False, False)
        return self._response(request, response, started)

    def stream(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: _Names = None,
        version: int = -1,
        preferred_memory: object = None,
        timeout: int = 0,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        parameters: Mapping[str, Any] | None = None,
        trace: object = None,
    ) -> Iterator[Response]:
        """Send a request to a decoupled model and walk its responses as they arrive; as `infer`.

        A final flag that is sent alone ends the stream and is no response of its own: the last response
        says `final` from then on. Leaving the
        iteration early cancels the request.
        """
        request = self._request(
            name, inputs, outputs, version, preferred_memory, timeout, request_id, correlation_id,
            flags, parameters, trace,
        )  # fmt: skip
        return Walk(self._caller(), request, self._response)

    def stream_async(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: _Names = None,
        version: int = -1,
        preferred_memory: object = None,
        timeout: int = 0,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        parameters: Mapping[str, Any] | None = None,
        trace: object = None,
    ) -> AsyncIterator[Response]:
        """Send a request to a decoupled model and await its responses one by one; as `stream`."""
        request = self._request(
            name, inputs, outputs, version, preferred_memory, timeout, request_id, correlation_id,
            flags, parameters, trace,
        )  # fmt: skip
        return AsyncWalk(self._caller(), request, self._response)
