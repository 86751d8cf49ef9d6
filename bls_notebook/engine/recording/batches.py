"""Recording for a profile: when a batch or an ensemble begins, and when it is over.

Every function does nothing where no profile is on any more.
"""

from __future__ import annotations

from time import perf_counter_ns

from bls_notebook.engine.core.execution import Execution
from bls_notebook.observe import recording
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .spans import begin

__all__ = [
    "record_batch",
    "record_batch_over",
    "record_ensemble",
    "record_ensemble_over",
]


def record_batch(execution: Execution, now: int = 0) -> None:
    """Record that a batch has begun, by default just now."""
    log, instance = recording.active, execution.instance
    if log is None or instance is None:
        return
    now = now or perf_counter_ns()
    recorded = [p for p in zip(execution.tickets, execution.rows, strict=True) if p[0].span]
    batch = execution.span if len(recorded) > 1 else 0
    for ticket, rows in recorded:
        log.place(ticket.span, instance.place, rows, now, batch)


def record_batch_over(execution: Execution, inferred: int, ended: int) -> None:
    """Record that a batch has been answered, as far as `execute` did that."""
    log, instance, model = recording.active, execution.instance, execution.model
    if log is None or instance is None or model is None:
        return
    if instance.gpu >= 0 and execution.timer is not None:
        execution.timer.end()
    shared = model.decoupled and instance.is_async  # its loop took the next at once
    for ticket in execution.tickets:
        if ticket.span:
            log.ran.extend((ticket.span, inferred, execution.started if shared else ended))


def record_ensemble(execution: Execution, request: InferenceRequest, arrived: int, waits: bool) -> None:
    """Record that an ensemble begins; `waits` says that its caller does, so that nothing was recorded yet."""
    log, model = recording.active, execution.model
    if log is None or model is None:
        return
    span, now = execution.span, execution.started
    if waits:
        begin(log, span, execution.parent, model, request, arrived, now)
    log.place(span, (model.seen, model.name, "cpu"), 1, now)


def record_ensemble_over(execution: Execution, response: InferenceResponse, waits: bool) -> None:
    """Record that the last step of an ensemble has been answered."""
    log, now = recording.active, perf_counter_ns()
    if log is not None:
        log.ran.extend((execution.span, now, now))
        if waits:
            log.answer(execution.span, now, response)
