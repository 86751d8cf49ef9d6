"""What a model raises or returns once its requests have been answered: nobody can be told but by the log.

The real server logs the same words. A message is shown under the cell that sent the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bls_notebook.observe.records.logs import LogLine

from . import logs

if TYPE_CHECKING:
    from bls_notebook.pb_utils.response import InferenceResponse

    from .core.execution import Execution
    from .ticket import Ticket

__all__ = ["log_if_lost", "log_lost"]


def log_if_lost(execution: Execution, failed: InferenceResponse) -> None:
    """Log the error of an `execute` if one of its requests has been answered already."""
    late = () if execution.ticket is None else (execution.ticket,)
    for ticket in execution.tickets or late:
        if ticket.done and not ticket.cancelled and failed._error is not None:
            frames = failed._error._origin.frames if failed._error._origin is not None else ()
            own = next((f for f in reversed(frames) if f.model), None)
            where = ("", 0) if own is None else (own.file, own.line)
            log_lost(execution, ticket, failed._error.message(), *where)
            return


def log_lost(execution: Execution, ticket: Ticket, message: str, file: str = "", line: int = 0) -> None:
    """Log an error of a request that has been answered."""
    told = LogLine("error", ticket.model.name, message, file, line)
    if ticket.context is None:  # on its caller's thread
        logs.write(told)
    else:
        ticket.context.copy().run(logs.write, told)
