"""One gRPC stream of an endpoint: requests in flight, and the order in which responses are written.

Guarantees: responses of decoupled models are written in the order in which the models send them, others in the
order of their requests, as on Triton. With the header ``triton_grpc_error: true``, a model's error ends `write`, and
the stream, with its code. `close` cancels requests in flight. While a client does not read its responses, `room`
delays its next request, and further responses stay in the engine's queue of the request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from bls_notebook.engine import mailbox
from bls_notebook.network.kserve.errors import ProtocolError, of_model
from bls_notebook.network.kserve.grpc_codec import encode_response, final_response, streamed
from bls_notebook.network.kserve.request import DecodedRequest
from bls_notebook.network.kserve.shared_memory import RegionUse
from bls_notebook.network.limits import UNREAD_ANSWERS
from bls_notebook.pb_utils import InferenceResponse

from .admission import Admission, Body
from .served_models import is_empty


class _StreamRequest:
    """A request of a stream, with its response once there is one."""

    __slots__ = ("answer", "call", "failed", "regions", "request_id", "ticket")

    def __init__(
        self, request_id: str, call: DecodedRequest | None = None, ticket: Any = None, regions: Any = None
    ) -> None:
        self.request_id, self.call, self.ticket = request_id, call, ticket
        self.regions: RegionUse | None = regions  # until the last response is written
        self.answer: InferenceResponse | ProtocolError | None = None  # only of requests in `_turns`
        self.failed: BaseException | None = None


class AnswerStream:
    """Queues and writes the responses to the requests of one stream."""

    def __init__(self, context: Any, admission: Admission) -> None:
        self._context, self._admission = context, admission
        self._box = mailbox(asyncio.get_running_loop())
        self._queue: asyncio.Queue[tuple[_StreamRequest, InferenceResponse | ProtocolError, bool] | None]
        self._queue = asyncio.Queue()
        self._turns: deque[_StreamRequest] = deque()  # requests to models that are not decoupled, in order
        self._waiting = 0  # answered requests in `_turns`
        self._open: set[_StreamRequest] = set()
        self._bodies: dict[_StreamRequest, Body] = {}  # of requests whose last response is not written yet
        self._paused: list[_StreamRequest] = []  # with responses that wait in the engine
        self._room = asyncio.Event()
        self._room.set()
        self._ended = False
        self._ends_at_error = ("triton_grpc_error", "true") in map(tuple, context.invocation_metadata() or ())
        self.writing: asyncio.Future[None] | None = None  # `write`, once it runs

    @property
    def is_busy(self) -> bool:
        """Return whether a model has not answered a request yet."""
        return bool(self._open)

    @property
    def has_ended(self) -> bool:
        """Return whether no more requests are accepted."""
        return self._ended

    @property
    def idle(self) -> bool:
        """Return whether all requests have been answered."""
        return not (self._open or self._ended) and self._queue.empty()

    async def room(self) -> None:
        """Wait until the client has read enough responses."""
        if self._is_full() and not self._ended:
            self._room.clear()
            await self._room.wait()

    def _is_full(self) -> bool:
        """Return whether enough responses wait for the client, or behind the response to an earlier request."""
        return self._queue.qsize() + self._waiting > UNREAD_ANSWERS

    def refused(self, request_id: str, error: ProtocolError) -> None:
        """Add a request that was refused before any model received it."""
        request = _StreamRequest(request_id)
        self._turns.append(request)
        self._put(request, error, True)

    def sent(self, call: DecodedRequest, opening: Any, body: Body, regions: RegionUse) -> None:
        """Add a request that was sent; `opening` is the future that `send` returned, `body` counts its bytes."""
        request = _StreamRequest(call.request_id, call, getattr(opening, "ticket", None), regions)
        self._open.add(request)
        self._bodies[request] = body
        if not call.model.decoupled:
            self._turns.append(request)
        if request.ticket is None:  # the response is already known
            self._put(request, *opening.result().next_response())
            return
        take_all = partial(self._take_all, request)
        request.ticket.on_response = partial(self._box.post, take_all)
        self._box.post(take_all)  # for responses before `on_response` was set

    def end(self) -> None:
        """Record that the client sends no more requests."""
        self._ended = True
        self._queue.put_nowait(None)

    def close(self) -> None:
        """Cancel requests in flight."""
        for request in list(self._open):
            request.ticket.abandon()
            request.ticket.discard()
            request.failed = asyncio.CancelledError()
            self._end_request(request)
        for request in list(self._bodies):
            self._release(request)

    async def write(self) -> None:
        """Write responses until the last one."""
        try:
            while self._open or not self._ended or not self._queue.empty():
                if (item := await self._queue.get()) is not None:
                    await self._write(*item)
                if not self._is_full():
                    self._room.set()
                    paused, self._paused = self._paused, []
                    for request in dict.fromkeys(paused):
                        self._take_all(request)
        finally:
            self._ended = True
            self._room.set()

    def _take_all(self, request: _StreamRequest) -> None:
        while request in self._open:
            if self._is_full() and request.call is not None and request.call.model.decoupled:
                self._paused.append(request)
                return
            taken = request.ticket.take()
            if taken is None:
                return
            self._put(request, *taken)

    def _put(self, request: _StreamRequest, answer: InferenceResponse | ProtocolError, final: bool) -> None:
        request.failed = _error_of(answer) or request.failed
        if final:
            self._end_request(request)
        if request.call is not None and request.call.model.decoupled:
            self._queue.put_nowait((request, answer, final))
            return
        request.answer = answer
        self._waiting += 1
        while self._turns and self._turns[0].answer is not None:
            self._waiting -= 1
            first = self._turns.popleft()
            assert first.answer is not None
            self._queue.put_nowait((first, first.answer, True))

    def _end_request(self, request: _StreamRequest) -> None:
        if request in self._open and request.call is not None:
            self._open.discard(request)
            if request.ticket is not None:  # ends a cycle that would keep the tensors until a garbage collection
                request.ticket.on_response = None
            self._admission.leave(request.call.model.name, request.failed)

    async def _write(self, request: _StreamRequest, answer: InferenceResponse | ProtocolError, final: bool) -> None:
        """Write a response, except an empty final one that the client did not request."""
        call, error, message = request.call, _error_of(answer), b""
        if call is not None and isinstance(answer, InferenceResponse) and error is None:
            if final and call.model.decoupled and is_empty(answer):
                message = streamed(final_response(call)) if call.final else b""
            else:
                arguments = call, answer, request.regions, final
                try:
                    message = streamed(await self._admission.work(call.effort_of(answer), encode_response, *arguments))
                except ProtocolError as refused:
                    error = refused
        if error is not None and self._ends_at_error and request.ticket is not None:
            raise error
        if error is not None:
            empty = pb.ModelInferResponse(id=request.request_id).SerializeToString()
            message = streamed(empty if call is None else final_response(call, final), error.message)
        if message:
            await self._context.write(message)
        if final and request in self._bodies:
            self._release(request)

    def _release(self, request: _StreamRequest) -> None:
        self._bodies.pop(request).release()
        if request.regions is not None:
            request.regions.close()


def _error_of(answer: InferenceResponse | ProtocolError) -> ProtocolError | None:
    if isinstance(answer, ProtocolError):
        return answer
    return None if answer._error is None else of_model(answer._error)
