"""`Scheduler`: what the engine asks of every scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bls_notebook.engine.core.execution import Execution
    from bls_notebook.engine.core.instance import Instance
    from bls_notebook.engine.ticket import Ticket
    from bls_notebook.pb_utils.request import InferenceRequest
    from bls_notebook.pb_utils.response import InferenceResponse

__all__ = ["Scheduler"]


class Scheduler(Protocol):
    """What the engine asks of a scheduler."""

    def call(self, parent: Execution, request: InferenceRequest) -> InferenceResponse:
        """Serve a request that is not decoupled, and wait for its answer."""

    def submit(self, ticket: Ticket) -> None:
        """Serve a request in the background."""

    @property
    def pending(self) -> int:
        """How many requests wait to be executed."""

    def withdraw(self, ticket: Ticket) -> bool:
        """Take a request out of the queue; False where it is not there any more."""

    def settled(self, ticket: Ticket) -> Callable[[], None] | None:
        """A ticket has been answered; what to call once who waits for it has been told."""

    def resize(
        self, added: Sequence[Instance], removed: Sequence[Instance], on_left: Callable[[Instance], None]
    ) -> None:
        """Hand requests to instances more, and to others no more.

        `on_left` is called with each of those once it has nothing left to do, on any thread.
        """

    def close(self, on_drained: Callable[[], None]) -> None:
        """Accept no more; call `on_drained` when all has been answered."""
