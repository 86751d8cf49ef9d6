"""`Sender`: requests from outside any model, one at a time or as a stream, waited for or awaited."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, TypeVar

from bls_notebook.engine.calling import SendingExecution
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.root import root_of
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, TritonModelException
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.records.advice.known import Known
from bls_notebook.records.visible import first_line

from .inputs import preferred_memory_of, tensors_of
from .parameters import client_parameters, trace_of
from .response import Response
from .streaming import AsyncWalk, Walk

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def takes_arguments_of(
    function: Callable[Concatenate[Any, _Arguments], object],
) -> Callable[[Callable[..., _Result]], Callable[Concatenate[Any, _Arguments], _Result]]:
    """Give a method that hands its arguments on the signature of the one that it hands them to."""
    parameters = list(inspect.signature(function).parameters.values())

    def decorate(method: Callable[..., _Result]) -> Callable[Concatenate[Any, _Arguments], _Result]:
        returns = method.__annotations__.get("return")
        method.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
        return method

    return decorate


class Sender:
    """Sends requests to the models of a server.

    An error response is returned, never raised; a value that no tensor can be made of raises BLSError.
    """

    def __init__(self, server: Server, known: Known) -> None:
        self._server = server
        self._known = weakref.ref(known)
        self._keeps = known  # responses outlive repositories, and must not keep them

    def caller(self) -> SendingExecution:
        """Return who sends: the model that this is called from, or else the notebook."""
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
                f"model {name!r}: outputs: got the text {outputs!r}, expected a list of names, "
                f"such as [{outputs!r}]"
            )
        # Most requests have none of these, and a call takes longer than a look.
        memory = None if preferred_memory is None else preferred_memory_of(preferred_memory)
        joined = None if trace is None else trace_of(trace)
        try:
            own, priority = ("{}", 0) if parameters is None else client_parameters(parameters)
            model = self._server.find(name, version)
            tensors = tensors_of(name, inputs, model.spec if model is not None else None)
            wanted = list(outputs or ())
            request = InferenceRequest(
                request_id, correlation_id, tensors, wanted, name, version, flags, timeout
            )
        except (TypeError, ValueError, RuntimeError, TritonModelException) as error:
            raise BLSError(f"model {name!r}: {first_line(str(error))}") from error
        if memory is not None or joined is not None or priority or own != "{}":
            # A model cannot give all of these to a request of its own.
            request._options = replace(
                request._options, preferred_memory=memory, trace=joined, parameters=own, priority=priority
            )
        return request

    # Python's errors about arguments name what was called, and that is what hands them on to here.
    request.__qualname__ = "ModelRepository.infer"

    def response(
        self,
        request: InferenceRequest,
        response: InferenceResponse,
        started: float,
        index: int = 0,
        final: bool = True,
    ) -> Response:
        """Return a response as it is shown; `index` is its place in a stream."""
        seconds = (response._arrived or perf_counter()) - started
        model = self._server.find(request._model_name, request._model_version)
        timeout = request._options.timeout
        if timeout and not index and model is not None:
            response._warnings += _timeout_warnings(model.spec, timeout)
        return Response(
            response,
            request._model_name,
            model.version if model is not None else 0,
            request._options.request_id,
            seconds,
            index,
            final,
            known=self._known,
            sent=started,
        )

    def send(self, request: InferenceRequest) -> Response:
        caller = self.caller()
        started = perf_counter()
        return self.response(request, caller.exec(request, False, False), started)

    async def send_async(self, request: InferenceRequest) -> Response:
        started = perf_counter()
        return self.response(request, await self.caller().async_exec(request, False, False), started)

    def walk(self, request: InferenceRequest) -> Walk:
        return Walk(self.caller(), request, self.response)

    def walk_async(self, request: InferenceRequest) -> AsyncWalk:
        return AsyncWalk(self.caller(), request, self.response)


def _timeout_warnings(spec: ModelSpec, timeout: int) -> tuple[str, ...]:
    """Say why a timeout, in microseconds, cannot act: a queue policy has to let requests ask for less."""
    if timeout <= 0 or spec.scheduler in ("sequence", "ensemble"):  # a sequence's waits for its slot have one
        return ()
    start = f"model '{spec.name}': the timeout of {timeout:,} µs cannot act"
    if spec.scheduler != "dynamic":
        why = "without dynamic_batching no request expires in the queue; the model can only look at it"
        return (f"{start}: {why}, by request.timeout()",)
    batching = spec.config.dynamic_batching
    policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
    if not any(p.allow_timeout_override for p in policies):
        return (f"{start}: its queue policy does not have allow_timeout_override: true",)
    most = max(p.default_timeout_microseconds for p in policies if p.allow_timeout_override)
    if timeout >= most:
        why = "a request may only ask for less than its queue policy's default_timeout_microseconds"
        return (f"{start}: {why}, {most:,}",)
    return ()
