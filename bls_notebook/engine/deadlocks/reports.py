"""The log's reports of long waits that may be deadlocks, but are not proven to be.

Guarantees: a request that has waited for a second is reported once, if its senders may wait for it in ways that the
wait graph does not know: in a lock, a thread, an executor, or a loop that the model runs itself. Reports cost nothing
until a wait lasts that long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.rate_limiter import LimitedInstance
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.busy_code import AT_ONCE, busy
from bls_notebook.engine.waiting.clock import Recheck
from bls_notebook.engine.waiting.event_loops import loops
from bls_notebook.engine.waiting.parker import blocked
from bls_notebook.records.remedy_words import remedy

from .wait_graph import ANY, LIVE, Need, Node, candidates, deadlocked, lock, needs_of_staged

REPORT_AFTER = 1.0

log = logging.getLogger("bls_notebook")
_reported: WeakSet[Ticket] = WeakSet()


def report_if_long(ticket: Ticket) -> None:
    """Look for long waits as long as a request is unanswered, although no thread or watched loop waits for it."""
    _unseen.add(ticket, REPORT_AFTER)


def report_long_waits() -> None:
    """Log each request once that has waited long and may be part of a deadlock."""
    with lock:
        reports = [describe_wait(ticket) for ticket in _suspects()]
    for report in reports:
        log.warning(report)


# Requests whose waiters the engine cannot see, as they wait in a loop that a model runs itself.
_unseen = Recheck(report_long_waits)


def senders(ticket: Ticket) -> Iterator[Execution]:
    """Yield the executions, and the senders of bare threads, on whose behalf a request was sent: innermost first."""
    execution = ticket.parent
    while execution is not None:
        if execution.model is not None or execution.bare:
            yield execution
        execution = execution.parent


def _suspects() -> list[Ticket]:
    """Return queued requests that only cancelled requests hold up, or that may be deadlocked. Lock held."""
    known: set[Ticket] = set()
    todo: list[Ticket] = [*blocked.values(), *_unseen.watched()]
    for loop in loops():
        if loop.selector.idle:
            todo.extend(ticket for execution in list(loop.executions) for ticket in list(execution.children))
    while todo:
        ticket = todo.pop()
        known.add(ticket)
        if ticket.execution is not None and ticket.execution.combined:  # an ensemble waits for its steps
            todo.extend(list(ticket.execution.children))
    sent: dict[Any, list[Ticket]] = {}
    for ticket in known:
        for execution in senders(ticket):
            sent.setdefault(execution.model_name if execution.bare else execution, []).append(ticket)

    def may_need(node: Node) -> Need:
        if isinstance(node, Ticket):
            free = node.done or node.expires or node.interrupted or node.refused
            if free or not node.queued:
                return (LIVE, ()) if free or node.execution is None else (ANY, [node.execution])
            holders = [i.holder for i in candidates(node)]
            return (ANY, holders) if all(holders) else (LIVE, ())
        if isinstance(node, LimitedInstance):
            return needs_of_staged(node)
        awaited = sent.get(node, []) + sent.get(node.model_name, [])
        return (ANY, awaited) if awaited and not node.finished else (LIVE, ())

    queued = [ticket for ticket in known if ticket.queued and ticket not in _reported]
    stuck = deadlocked(queued, may_need)
    suspects = [ticket for ticket in queued if ticket in stuck or _cancelled(ticket)]
    _reported.update(suspects)
    return suspects


def _cancelled(ticket: Ticket) -> bool:
    """Return whether all instances that could serve a request still run cancelled requests."""
    holders = [(i.holder, getattr(i.holder, "execution", None)) for i in candidates(ticket)]
    return bool(holders) and all(any(getattr(each, "cancelled", False) for each in holder) for holder in holders)


def describe_wait(ticket: Ticket) -> str:
    """Return one line on a queued request: the instances that it waits for, their holders, and the times."""
    now, cancelled = time.perf_counter_ns(), _cancelled(ticket)
    holders = []
    for instance in candidates(ticket):
        holder = instance.holder
        execution = getattr(holder, "execution", holder)
        if cancelled and isinstance(execution, Execution):
            holders.append(busy(execution))
            continue
        if isinstance(holder, LimitedInstance):
            holders.append(f"{instance.name} waits for the rate limiter")
            continue
        name = getattr(getattr(holder, "model", None), "name", "?")
        started = getattr(holder, "started", 0) or getattr(getattr(holder, "execution", None), "started", 0)
        since = f" for {(now - started) / 1e9:.1f} s" if started else ""
        parent = getattr(getattr(holder, "parent", None), "model", None)
        caller = f" called by '{parent.name}'" if parent is not None else ""
        holders.append(f"{instance.name} is held by a request to '{name}'{caller}{since}")
    sender = None if ticket.parent is None else ticket.parent.model_name
    verdict = (
        "If one of these waits for this request, and without a time limit, neither will ever end; interrupt (Ctrl-C) "
        "to get out. bls_notebook cannot decide this: threads, locks and futures of the model may be part of the wait."
    )
    if cancelled:
        verdict = f"This request is served when that code ends. {remedy(AT_ONCE, name=ticket.model.name)}"
    return (
        f"A request from '{sender}' to '{ticket.model.name}' has been waiting for "
        f"{(now - ticket.queued_at) / 1e9:.1f} s: {'; '.join(holders)}. {verdict}"
    )
