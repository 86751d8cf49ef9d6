"""`Scheduler`: what the engine asks of every scheduler.

`Ticket` and `SendingExecution` are `Any` here: the modules that define them import this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bls_notebook.engine.core.instance import Instance
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse


class Scheduler(Protocol):
    """What the engine asks of a scheduler."""

    def call(self, parent: Any, request: InferenceRequest) -> InferenceResponse:
        """Serve a request that is not decoupled, and wait for its answer."""

    def submit(self, ticket: Any) -> None:
        """Serve a request in the background."""

    @property
    def pending(self) -> int:
        """How many requests wait to be executed."""

    def withdraw(self, ticket: Any) -> bool:
        """Take a request out of the queue; False where it is not there any more."""

    def settled(self, ticket: Any) -> Callable[[], None] | None:
        """Note that a ticket was answered; return a function to call after its waiter was notified, if any."""

    def resize(
        self, added: Sequence[Instance], removed: Sequence[Instance], on_left: Callable[[Instance], None]
    ) -> None:
        """Add and remove instances; `on_left` is called, on any thread, with each removed one when it is done."""

    def close(self, on_drained: Callable[[], None]) -> None:
        """Accept no more; call `on_drained` when all has been answered."""
