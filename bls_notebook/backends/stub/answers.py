"""`Answers`: what a stub asks of who gives its answers."""

from __future__ import annotations

from typing import Any, Protocol

from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .calls import StubCall


class Answers(Protocol):
    """Who gives the answers of a stub."""

    is_async: bool  # what `ask` returns may have to be awaited

    def note(self, call: StubCall) -> None:
        """Take note of a request."""

    def wait(self, requests: list[InferenceRequest]) -> None:
        """Wait as long as an answer takes, or until nobody waits for it any more."""

    async def wait_async(self, requests: list[InferenceRequest]) -> None:
        """The same in a loop."""

    def ask(self, request: InferenceRequest) -> Any:
        """Return the answer to a request, of whatever form; raises where the answer is an exception."""

    def many(self, answer: Any) -> Any:
        """Return the answers of a stream: a sequence, or else an iterator, which may be an async one."""

    def response(self, answer: Any, request: InferenceRequest) -> InferenceResponse | None:
        """Return the response that an answer stands for; None for one that the configuration gives."""
