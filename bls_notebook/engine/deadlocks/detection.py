"""Deadlock detection: refuse a request when a wait begins that would never end.

Guarantees: a thread that waits for a request, and a loop of an instance that falls asleep, first check the wait graph.
So a request that only waits for its own waiting ancestors gets an error at once, and no other request does. A wait that
lasts is checked again after 1 s, and then less and less often; the log reports one that may be a deadlock, but is not
proven to be one. Ctrl-C ends any wait.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from bls_notebook.engine.core.rate_limiter import LimitedInstance
from bls_notebook.engine.error_responses import error_response
from bls_notebook.engine.errors import running
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.clock import LONGEST_PAUSE
from bls_notebook.engine.waiting.event_loops import WatchedSelector

from . import reports
from .wait_graph import Node, candidates, deadlocked, lock, needs


def check(starts: Iterable[Node]) -> bool:
    """Refuse a request if one of the `starts` can never move otherwise; return whether that was so."""
    with lock:
        victim = _victim(list(starts))
    if victim is not None:
        _refuse(*victim)
    return victim is not None


def check_again(starts: Iterable[Node]) -> None:
    """Check a wait that lasts: its state may have changed. Report long waits that may be deadlocks."""
    if not check(starts):
        reports.report_long_waits()


def _sleep(selector: WatchedSelector, timeout: float | None) -> Any:
    """Let a loop sleep, after refusing a request whose response could never wake it."""
    end = None if timeout is None else time.monotonic() + timeout
    pause = reports.REPORT_AFTER
    try:
        with lock:
            selector.idle = True
        check(selector.executions)
        while True:
            left = pause if end is None else end - time.monotonic()
            events = selector.wait(min(pause, max(left, 0.0)))
            if events or (left <= pause and end is not None):
                return events
            check_again(selector.executions)
            pause = min(pause * 2, LONGEST_PAUSE)
    finally:
        with lock:
            selector.idle = False


WatchedSelector.sleep = staticmethod(_sleep)


def _victim(starts: list[Node]) -> tuple[Ticket, list[str]] | None:
    """Return the request to refuse so that one of the `starts` can move, and the names of the models in its cycle.

    None if all can move, or if no refusal helps. Lock held.
    """
    stuck = deadlocked(starts, needs)
    waiters = [node for node in starts if node in stuck]
    for node in (*waiters, *(_in_a_cycle(waiter, stuck) for waiter in waiters[:1])):
        cycle = _cycle_through(node, stuck)
        waiting = [each for each in cycle if isinstance(each, Ticket) and (each.queued or each.execution is None)]
        if waiting:
            waiting[0].refused = True  # from now on, it and its waiters count as able to move
            return waiting[0], _names(waiting)
    return None


def _in_a_cycle(node: Node, stuck: dict[Node, list[Node]]) -> Node:
    """Return a node that needs itself and that `node` waits for: a chain of needs ends there."""
    visited: set[Node] = set()
    while node not in visited and stuck[node]:
        visited.add(node)
        node = stuck[node][0]
    return node


def _cycle_through(node: Node, stuck: dict[Node, list[Node]]) -> list[Node]:
    """Return a shortest cycle of needs from a node back to itself, in order; empty if there is none."""
    users: dict[Node, Node] = {}
    todo = deque([node])
    while todo:
        user = todo.popleft()
        for needed in stuck[user]:
            if needed not in users:
                users[needed] = user
                todo.append(needed)
    cycle = [node] if node in users else []
    while cycle and users[cycle[-1]] is not node:
        cycle.append(users[cycle[-1]])
    return cycle[:1] + cycle[:0:-1]


def _names(waiting: list[Ticket]) -> list[str]:
    """Return the names of the models in a cycle, by its waiting requests: the model of the first one comes last."""
    ticket = waiting[0]
    names = [ticket.model.name]
    for execution in reports.senders(ticket):
        names.append(execution.model_name)
        if execution.model is ticket.model:
            return names[::-1]
    # Callers hold instances that other callers need: name the models of the requests that wait.
    sender = ticket.parent
    names = [sender.model_name] if sender is not None and sender.model else []
    names += [each.model.name for each in waiting]
    return names if names[-1] == names[0] else [*names, names[0]]


def _refuse(ticket: Ticket, names: list[str]) -> None:
    model = ticket.model
    count = len(model.instances)
    held = "its only instance is" if count == 1 else f"all {count} of its instances are"
    again = any(execution.model is model for execution in reports.senders(ticket))
    remedy = f"instance_group.count = {count + 1} or more for '{model.name}' breaks this circle"
    remedy += ", unless the request to it leads to another one." if again else "."
    if ticket.bound is not None:
        held = f"the instance that serves its sequence, '{ticket.bound[0].name}', is"
        remedy = "A sequence of its own, on another instance, breaks this circle."
    if any(isinstance(instance.holder, LimitedInstance) for instance in candidates(ticket)):
        held = "the rate limiter's resources that it needs are"
        remedy = f"Another resource in the rate_limiter of '{model.name}', or more of it, breaks this circle."
    text = (
        f"circular BLS: {' -> '.join(names)}. The request to '{model.name}' can never be served, because "
        f"{held} held by requests that wait for it (the real server would wait forever). {remedy}"
    )
    message = running(model.name, text)
    if model.scheduler.withdraw(ticket) or ticket.execution is None:
        ticket.interrupted = True  # a worker that has taken it, but not begun it, skips it
        ticket.finish(error_response(message))
