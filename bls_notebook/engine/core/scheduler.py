"""`Scheduler`: the interface of all schedulers.

`Ticket` and `SendingExecution` are `Any` here: the modules that define them import this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bls_notebook.engine.core.instance import Instance
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse


class Scheduler(Protocol):
    """The queue and the instances of one model version."""

    def call(self, parent: Any, request: InferenceRequest) -> InferenceResponse:
        """Serve a request to a model that is not decoupled; wait for its response and return it."""

    def submit(self, ticket: Any) -> None:
        """Serve a request in the background."""

    @property
    def pending(self) -> int:
        """Number of requests that no instance has begun."""

    def withdraw(self, ticket: Any) -> bool:
        """Remove a request from the queue; False if it is not in the queue any more."""

    def drop_cancelled(self, ticket: Any) -> bool:
        """Handle a request that was cancelled; return whether it was waiting and is dropped."""

    def settled(self, ticket: Any) -> Callable[[], None] | None:
        """Record that a ticket was answered; return a function to call after its waiter was notified, if any."""

    def resize(
        self, added: Sequence[Instance], removed: Sequence[Instance], on_left: Callable[[Instance], None]
    ) -> None:
        """Add and retire instances; `on_left` is called, on any thread, with each retired one when it is idle."""

    def close(self, on_drained: Callable[[], None]) -> None:
        """Accept no more requests; call `on_drained` when all have been answered."""
