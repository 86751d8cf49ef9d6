"""One gRPC stream: its requests as they are sent to models, and their responses as they are written back.

Guarantees: responses are written in the order in which models gave them; for models that are not decoupled, in
the order of their requests, as on Triton. `close` cancels requests under way. While a client does not read its
responses, `room` delays its next request, and the responses stay with the model's request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from bls_notebook.engine.waiting.event_loops import mailbox
from bls_notebook.network.kserve.errors import ProtocolError, of_model
from bls_notebook.network.kserve.grpc_codec import encode_response, final_response
from bls_notebook.network.kserve.request import FINAL, DecodedRequest
from bls_notebook.network.kserve.shared_memory import Regions
from bls_notebook.pb_utils import InferenceResponse

from .admission import Admission
from .served_models import is_empty

_UNREAD = 64  # responses that may wait for their client


class _Asked:
    """A request of a stream."""

    __slots__ = ("answer", "call", "failed", "request_id", "ticket")

    def __init__(self, request_id: str, call: DecodedRequest | None = None, ticket: Any = None) -> None:
        self.request_id, self.call, self.ticket = request_id, call, ticket
        self.answer: InferenceResponse | ProtocolError | None = None  # of a request with a turn
        self.failed: BaseException | None = None


class AnswerStream:
    """The answers to the requests of one stream."""

    def __init__(self, context: Any, regions: Regions, admission: Admission) -> None:
        self._context, self._regions, self._admission = context, regions, admission
        self._box = mailbox(asyncio.get_running_loop())
        self._queue: asyncio.Queue[tuple[_Asked, InferenceResponse | ProtocolError, bool] | None]
        self._queue = asyncio.Queue()
        self._turns: deque[_Asked] = deque()  # of models that are not decoupled
        self._open: set[_Asked] = set()
        self._left: list[_Asked] = []  # with responses that are not taken yet
        self._room = asyncio.Event()
        self._room.set()
        self._ended = False

    async def room(self) -> None:
        """Wait until most of the responses are written."""
        if self._queue.qsize() > _UNREAD and not self._ended:
            self._room.clear()
            await self._room.wait()

    def refused(self, request_id: str, error: ProtocolError) -> None:
        """Add a request that was sent to no model."""
        asked = _Asked(request_id)
        self._turns.append(asked)
        self._put(asked, error, True)

    def sent(self, call: DecodedRequest, opening: Any) -> None:
        """Add a request that was sent; `opening` is what `send` returned."""
        asked = _Asked(call.request_id, call, getattr(opening, "ticket", None))
        self._open.add(asked)
        if not call.model.decoupled:
            self._turns.append(asked)
        if asked.ticket is None:  # there is a response already
            self._put(asked, *opening.result().next_response())
            return
        look = partial(self._look, asked)
        asked.ticket.on_response = partial(self._box.post, look)
        self._box.post(look)  # for earlier responses

    def end(self) -> None:
        """Note that no more requests come."""
        self._ended = True
        self._queue.put_nowait(None)

    def close(self) -> None:
        """Cancel requests under way."""
        for asked in list(self._open):
            asked.ticket.on_response = None
            asked.ticket.abandon()
            asked.failed = asyncio.CancelledError()
            self._over(asked)

    async def write(self) -> None:
        """Write responses until the last."""
        try:
            while self._open or not self._ended or not self._queue.empty():
                item = await self._queue.get()
                message = None if item is None else self._encoded(*item)
                if message is not None:
                    await self._context.write(message)
                if self._queue.qsize() <= _UNREAD:
                    self._room.set()
                    left, self._left = self._left, []
                    for asked in dict.fromkeys(left):
                        self._look(asked)
        finally:
            self._ended = True
            self._room.set()

    def _look(self, asked: _Asked) -> None:
        while asked in self._open:
            if self._queue.qsize() > _UNREAD and asked.call is not None and asked.call.model.decoupled:
                self._left.append(asked)  # the responses stay with the request
                return
            taken = asked.ticket.take()
            if taken is None:
                return
            self._put(asked, *taken)

    def _put(self, asked: _Asked, answer: InferenceResponse | ProtocolError, final: bool) -> None:
        if isinstance(answer, ProtocolError):
            asked.failed = answer
        elif answer._error is not None:
            asked.failed = of_model(answer._error)
        if final:
            self._over(asked)
        if asked.call is not None and asked.call.model.decoupled:
            self._queue.put_nowait((asked, answer, final))
            return
        asked.answer = answer
        while self._turns and self._turns[0].answer is not None:
            first = self._turns.popleft()
            assert first.answer is not None
            self._queue.put_nowait((first, first.answer, True))

    def _over(self, asked: _Asked) -> None:
        if asked in self._open and asked.call is not None:
            self._open.discard(asked)
            self._admission.leave(asked.call.model.name, asked.failed)

    def _encoded(self, asked: _Asked, answer: InferenceResponse | ProtocolError, final: bool) -> Any:
        """Return the message of a response; None for a final flag alone that the client does not want."""
        call, error = asked.call, None
        if isinstance(answer, ProtocolError):
            error = answer
        elif answer._error is not None:
            error = of_model(answer._error)
        elif call is not None:
            if final and call.model.decoupled and is_empty(answer):
                return pb.ModelStreamInferResponse(infer_response=final_response(call)) if call.final else None
            try:
                message = encode_response(call, answer, self._regions)
                message.parameters[FINAL].bool_param = final
                return pb.ModelStreamInferResponse(infer_response=message)
            except ProtocolError as refused:
                error = refused
        assert error is not None
        empty = pb.ModelInferResponse(id=asked.request_id) if call is None else final_response(call, final)
        return pb.ModelStreamInferResponse(error_message=error.message, infer_response=empty)
