"""`Turn`: one run of a request of an iterative sequence, which its model may ask to see again.

Guarantees: a sender that is dropped with one run of a request means nothing while a later run can answer.
"""

from __future__ import annotations

from bls_notebook.engine.ticket import Ticket
from bls_notebook.pb_utils.response import InferenceResponse

__all__ = ["Turn"]


class Turn:
    """Takes the answers of one run of a request that may be run again."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self.over = False  # a later run answers: that this run's sender is dropped means nothing

    @property
    def cancelled(self) -> bool:
        """Whether the requester has given up waiting."""
        return self._ticket.cancelled

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        """Take a response."""
        self._ticket.send(response, final)

    def drop_sender(self) -> None:
        """Nobody can answer this run any more."""
        if not self.over:
            self._ticket.drop_sender()
