"""Recording for a profile: a request that is on its way, and its responses.

Every function does nothing where no profile is on any more. Below `Ticket`, which is untyped here.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from bls_notebook.observe import recording
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

__all__ = ["record_response", "record_sent"]


def record_sent(ticket: Any, request: InferenceRequest) -> None:
    """Record that a request is on its way."""
    log = recording.active
    if log is not None:
        parent = 0 if ticket.parent is None else ticket.parent.span
        who = request._options.request_id
        times = (ticket.arrived, ticket.queued_at)
        log.begin(ticket.span, parent, ticket.model.seen, request._kind, who, request._inputs, *times)


def record_response(ticket: Any, response: InferenceResponse, final: bool) -> None:
    """Record a response; the ticket's lock is held."""
    log = recording.active
    if log is None:
        return
    now = perf_counter_ns()
    decoupled = ticket.model.decoupled
    empty = decoupled and final and not response._outputs
    if response._error is None:
        ticket.sent_bytes += recording.nbytes(response._outputs)
    if decoupled:
        log.mark(ticket.span, now, "final" if final else "response")
    if final:
        count = ticket._sent - empty if decoupled else response._error is None
        given_up = ticket.cancelled and response._error is None
        log.end(ticket.span, now, None if given_up else response, max(0, int(count)), ticket.sent_bytes)
