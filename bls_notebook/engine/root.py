"""`Root`: who sends the requests that come from outside any model.

Guarantees: Ctrl-C pressed while one of its calls is under way never strikes the engine itself: it stops a
model or a wait at once, and comes before the call returns otherwise; what was sent is interrupted then.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .calling import SendingExecution
from .core.server import Server
from .waiting.ctrl_c import CtrlC
from .waiting.stream import AsyncResponseStream

_exec = SendingExecution.exec


class Root(SendingExecution):
    """The sender of requests of one call from outside."""

    __slots__ = ()

    def exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> Any:
        """Serve a request on this thread, or wait for it."""
        with CtrlC():
            try:
                return _exec(self, request, decoupled, given)
            except KeyboardInterrupt:
                self.interrupt()
                raise

    def async_exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> asyncio.Future[Any]:
        """Serve a request in the background; needs a running event loop."""
        with CtrlC():
            return super().async_exec(request, decoupled, given)

    def responses_of(self, stream: AsyncResponseStream) -> AsyncResponseStream:
        """Return what the sender of a decoupled request gets."""
        return _Stream(stream, self)


class _Stream:
    """A stream that is read outside any model; nothing is done when it is dropped."""

    def __init__(self, stream: AsyncResponseStream, root: Root) -> None:
        self._stream, self._root = stream, root

    def next_response(self) -> tuple[InferenceResponse, bool]:
        """Wait for the next response; True with the last one."""
        with CtrlC():
            try:
                return self._stream.next_response()
            except KeyboardInterrupt:
                self._root.interrupt()
                raise

    async def next_response_async(self) -> tuple[InferenceResponse, bool]:
        """Await the next response; True with the last one."""
        return await self._stream.next_response_async()

    def cancel(self) -> None:
        """Ask the model to stop."""
        with CtrlC():
            self._stream.cancel()

    def discard(self) -> None:
        """Nobody reads any more."""
        self._stream.discard()


def root_of(server: Server) -> Root:
    """Return what the requests of this thread from outside any model hang on."""
    # Made as every other one and then a root: in a constructor that makes objects of two classes by turns,
    # CPython looks up each attribute anew.
    root: Any = SendingExecution(server, None, None)
    root.__class__ = Root
    root.thread = threading.get_ident()
    return root  # type: ignore[no-any-return]
