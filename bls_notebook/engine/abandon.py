"""Answers requests that nobody waits for any longer: their repository has closed, or Python ends.

Guarantees: every request in flight of the models that are named has an answer when this returns, but for one
that runs on its own caller's thread: that thread answers it, when `execute` returns. Nothing is waited for.
What is in flight is found by a walk over the heap, so that no request pays for being found.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Collection
from time import perf_counter_ns

from bls_notebook.pb_utils.errors import ErrorCode

from .core.execution import Execution
from .core.model import LoadedModel
from .error_messages import running
from .failures import error_response
from .ticket import Ticket


def _in_flight(models: Collection[LoadedModel]) -> list[Ticket]:
    wanted = {id(model) for model in models}
    return [each for each in gc.get_objects() if type(each) is Ticket and not each.done and id(each.model) in wanted]


def _refuse(tickets: Collection[Ticket], why: str) -> None:
    for ticket in tickets:
        ticket.cancelled = True
        ticket.model.scheduler.withdraw(ticket)
    executions = {e for e in (ticket.execution for ticket in tickets) if e is not None}
    for ticket in tickets:
        ticket.finish(error_response(running(ticket.model.name, why), ErrorCode.CANCELLED))
    for execution in executions:
        _stop(execution)


def _stop(execution: Execution) -> None:
    with contextlib.suppress(RuntimeError):  # Python ends, and allows no thread that would insist
        execution.interrupt()


def give_up(models: Collection[LoadedModel], why: str) -> None:
    """Answer what is in flight to some models with an error, and stop the model code that can be stopped."""
    _refuse(_in_flight(models), why)
    for model in models:
        for instance in model.instances:
            if isinstance(instance.holder, Execution):
                _stop(instance.holder)


def give_up_old(models: Collection[LoadedModel], since: int, seconds: float, why: str) -> None:
    """Answer those with an error that have been in flight for some seconds, counted from `since` at most.

    `since`: a reading of `time.perf_counter_ns`.
    """
    latest = perf_counter_ns() - int(seconds * 1e9)
    _refuse([t for t in _in_flight(models) if max(t.arrived, since) <= latest], why)
