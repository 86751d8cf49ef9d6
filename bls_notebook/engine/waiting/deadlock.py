"""Deadlock detection: registers waits, and refuses a request if a wait can never end otherwise.

Guarantees: a thread, or a loop that runs a model's code, registers its wait under a lock before it sleeps, and this
module reads the wait graph under that lock. So a request that only waits for its own waiting ancestors gets an error
at once, and no other request does. Whatever the engine cannot see (a lock, a bare thread, a timer that may cancel, a
future known outside its loop) counts as able to move. The log reports a long wait that may be a deadlock, but is not
proven to be one. Ctrl-C ends any wait.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.error_messages import running
from bls_notebook.engine.error_responses import error_response
from bls_notebook.engine.ticket import Ticket
from bls_notebook.pb_utils.response import InferenceResponse

from .event_loops import WatchedSelector, blocked, watch_callers
from .stack_frames import waits_for_threads
from .wait_graph import ANY, LIVE, Need, Node, candidates, deadlocked, forget_answers, look_closer, needs

SOON = 1 / 64
REPORT_AFTER = 1.0
LONGEST_PAUSE = 60.0

_Result = TypeVar("_Result")
log = logging.getLogger("bls_notebook")
lock = threading.Lock()
_get_ident = threading.get_ident
_reported: WeakSet[Ticket] = WeakSet()


def wait_for(ticket: Ticket) -> None:
    """Wait until the ticket has a response; on Ctrl-C, interrupt the request and raise KeyboardInterrupt."""
    parker = ticket.parker()
    if parker is None:
        return

    def wait() -> None:
        thread, pause = _get_ident(), REPORT_AFTER
        if any(_runs_unseen(e, thread) for e in _senders(ticket) if not e.bare):
            watch_callers(ticket.parent)
            pause = SOON
        while not parker.park(pause):
            if pause < REPORT_AFTER:
                watch_callers(ticket.parent)  # again: the stack of a running thread is not always readable
            else:
                _look_again(ticket)
            pause = min(pause * 2, LONGEST_PAUSE)

    try:
        known_to_wait(ticket, wait)
    except BaseException:
        ticket.interrupt()
        raise


def known_to_wait(waiting: Ticket | WatchedSelector, wait: Callable[[], _Result]) -> _Result:
    """Register a wait, refuse a request if the wait cannot end otherwise, and wait."""
    thread = _get_ident()
    outer = _waiting(thread)
    outer = None if outer is waiting else outer
    try:
        try:
            with lock:
                blocked[thread] = waiting
                victim = _victim_of(waiting)
            if victim is not None:
                _refuse(victim)
            return wait()
        finally:
            _no_longer(thread, outer)
    finally:  # once more: Ctrl-C may have interrupted the inner `finally`
        _no_longer(thread, outer)


def _waiting(thread: int) -> Ticket | WatchedSelector | None:
    """Return the wait of a thread; None if the entry is stale, because an exception kept it from being removed."""
    waiting = blocked.get(thread)
    if isinstance(waiting, Ticket):
        return None if waiting.done else waiting
    return waiting if waiting is not None and waiting.idle else None


def _no_longer(thread: int, outer: Ticket | WatchedSelector | None) -> None:
    with lock:
        if outer is None:
            blocked.pop(thread, None)
        else:
            blocked[thread] = outer


def _runs_unseen(execution: Execution, thread: int) -> bool:
    """Return whether a sync execution on another thread may wait in a loop that is not watched yet."""
    return execution.task is None and execution.thread != thread and not isinstance(_waiting(execution.thread), Ticket)


def first_response(ticket: Ticket) -> InferenceResponse:
    while True:
        taken = ticket.take()
        if taken is not None:
            return taken[0]
        wait_for(ticket)


def _sleep(watched: WatchedSelector, timeout: float | None) -> Any:
    """Let a loop sleep, after refusing a request whose response could never wake it."""
    end = None if timeout is None else time.monotonic() + timeout

    def wait() -> Any:
        pause = REPORT_AFTER
        while True:
            left = pause if end is None else end - time.monotonic()
            events = watched.wait(min(pause, max(left, 0.0)))
            if events or (left <= pause and end is not None):
                return events
            _look_again(watched)
            pause = min(pause * 2, LONGEST_PAUSE)

    return known_to_wait(watched, wait)


WatchedSelector.sleep = staticmethod(_sleep)


def _look_again(waiting: Ticket | WatchedSelector) -> None:
    """Check a long wait again: its state may have changed, or other threads may wait for the waiting ones."""
    with lock:
        joining = waits_for_threads(blocked.keys())
        for thread, other in joining.items():
            blocked[thread] = blocked[other]
        try:
            victim = _victim_of(waiting)
        finally:
            for thread in joining:
                blocked.pop(thread, None)
        reports = [] if victim is not None else [describe_wait(t) for t in _look_circular()]
    if victim is not None:
        _refuse(victim)
    for report in reports:
        log.warning(report)


def look_at(ticket: Ticket) -> None:
    """Refuse a request if a ticket, just queued by a thread that does not wait for it, can never be served."""
    with lock:
        victim = _victim([ticket])
    if victim is not None:
        _refuse(victim)


def _served_soon(ticket: Ticket) -> bool:
    """Return whether a request can move, judged by its own state and its instances alone. Lock held."""
    if not ticket.queued:
        return _acts(ticket.execution) if ticket.execution is not None else not ticket.model.is_async
    for instance in candidates(ticket):
        holder = instance.holder
        if holder is None:  # idle: an engine thread will begin the request
            if not instance.is_async or instance.loop_thread not in blocked:
                return True
        elif isinstance(holder, Ticket):  # just passed to a worker thread, which will begin it
            if not holder.queued and holder.execution is None and not instance.is_async:
                return True
        elif _acts(holder):
            return True
    return False


def _acts(execution: Execution | None) -> bool:
    """Return whether an execution is running on a thread that does not wait."""
    return (
        execution is not None and not execution.combined and not execution.finished and execution.thread not in blocked
    )


def _each_kind(waiting: Iterable[Ticket]) -> Iterator[Ticket]:
    """Yield one of the requests that wait for the same instances: the same holds for all of them."""
    kinds: set[object] = set()
    for ticket in waiting:
        kind = (id(ticket.model), ticket.bound, ticket.expires) if ticket.queued else id(ticket)
        if kind not in kinds:
            kinds.add(kind)
            yield ticket


def _victim_of(waiting: Ticket | WatchedSelector) -> Ticket | None:
    """Return the request to refuse so that a wait can end, or None. Lock held."""
    if isinstance(waiting, Ticket):
        return _victim([waiting])
    executions = list(waiting.executions)
    sent = list(_each_kind(t for e in executions for t in list(e.children)))
    # A request that will be served wakes the loop; the check comes again before it sleeps the next time.
    others = [] if any(map(_served_soon, sent)) else [waiting, *executions]
    return _victim([*sent, *others])


def _victim(starts: list[Node]) -> Ticket | None:
    """Return the request to refuse so that a node can move; None if all can, or if no refusal helps. Lock held."""
    starts = [node for node in starts if not (isinstance(node, Ticket) and _served_soon(node))]
    # Searching the heap for other objects that may answer a running request is slow, so it comes last.
    forget_answers()
    if deadlocked(starts, partial(needs, closer=False)).keys().isdisjoint(starts):
        return None
    look_closer()
    stuck = deadlocked(starts, needs)  # one snapshot, because running threads may change the next
    waiting = list(filter(_is_waiting, _reached([node for node in reversed(starts) if node in stuck], stuck)))
    if not waiting:
        return None
    # Refuse a request of the cycle, not one that waits behind it.
    in_circle = next((ticket for ticket in waiting if ticket in _reached(stuck[ticket], stuck)), None)
    victim: Ticket = in_circle or waiting[0]
    victim.circle = () if in_circle is None else _cycle(victim, stuck)
    victim.refused = True  # from now on, it and its waiters count as able to move
    return victim


def _reached(start: list[Node], needed: dict[Node, list[Node]]) -> Iterator[Node]:
    """Yield the `start` nodes and all nodes that they need, each once."""
    visited: set[Node] = set()
    todo = list(start)
    while todo:
        node = todo.pop()
        if node not in visited:
            visited.add(node)
            yield node
            todo.extend(needed[node])


def _is_waiting(node: Node) -> bool:
    return isinstance(node, Ticket) and (node.queued or node.execution is None)


def _senders(ticket: Ticket) -> Iterator[Execution]:
    """Yield the executions, and the senders of bare threads, on whose behalf a request was sent: innermost first."""
    execution = ticket.parent
    while execution is not None:
        if execution.model is not None or execution.bare:
            yield execution
        execution = execution.parent


def _cycle(ticket: Ticket, stuck: dict[Node, list[Node]]) -> list[str]:
    """Return the names of the models in the cycle that a queued request closes, its own model last."""
    names = [ticket.model.name]
    for execution in _senders(ticket):
        names.append(execution.model_name)
        if execution.model is ticket.model or (execution.bare and execution.model_name == ticket.model.name):
            return names[::-1]
    # Callers hold instances that other callers need: follow the holders instead.
    sender = ticket.parent
    names = [sender.model_name] if sender is not None and (sender.model or sender.bare) else []
    node: Node = ticket
    visited: set[Node] = set()
    while node not in visited:
        visited.add(node)
        if _is_waiting(node):
            names.append(node.model.name)
        node = next(iter(stuck[node]), node)
    return names if names[-1] == names[0] else [*names, names[0]]


def _refuse(ticket: Ticket) -> None:
    model = ticket.model
    count = len(model.instances)
    circle = " -> ".join(ticket.circle)
    held = "its only instance is" if count == 1 else f"all {count} of its instances are"
    remedy = f"instance_group.count = {count + 1} or more for '{model.name}' breaks this circle."
    if ticket.bound is not None:
        held = f"the instance that serves its sequence, '{ticket.bound[0].name}', is"
        remedy = "A sequence of its own, on another instance, breaks this circle."
    if ticket.circle:
        text = (
            f"circular BLS: {circle}. The request to '{model.name}' can never be served, because {held} held "
            f"by requests that wait for it (the real server would wait forever). {remedy}"
        )
    else:
        text = (
            f"the request to '{model.name}' can never be served, because {held} held by requests that wait "
            "for something that no code can do any more, such as set an event (the real server would wait forever)."
        )
    message = running(model.name, text)
    if model.scheduler.withdraw(ticket) or ticket.execution is None:
        ticket.cancelled = True  # a worker that has taken it, but not begun it, skips it
        ticket.finish(error_response(message))


def _look_circular() -> list[Ticket]:
    """Return queued requests that only cancelled requests hold up, or that may be deadlocked: their senders may wait
    for them in ways the graph cannot see. The log reports each once.
    """
    known: set[Ticket] = set()
    todo: list[Ticket] = []
    for waiting in list(blocked.values()):
        if isinstance(waiting, Ticket):
            todo.append(waiting)
        else:
            todo.extend(t for e in list(waiting.executions) for t in list(e.children))
    while todo:
        ticket = todo.pop()
        known.add(ticket)
        if ticket.execution is not None and ticket.execution.combined:  # an ensemble waits for its steps
            todo.extend(ticket.execution.waits_for(blocked))
    sent: dict[Any, list[Ticket]] = {}
    for ticket in known:
        for execution in _senders(ticket):
            sent.setdefault(execution.model_name if execution.bare else execution, []).append(ticket)

    def may_need(node: Node) -> Need:
        if isinstance(node, Ticket):
            free = node.done or node.expires or node.cancelled or node.refused
            if free or not node.queued:
                return (LIVE, ()) if free or node.execution is None else (ANY, [node.execution])
            holders = [i.holder for i in candidates(node)]
            return (ANY, holders) if all(holders) else (LIVE, ())
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
        name = getattr(getattr(holder, "model", None), "name", "?")
        started = getattr(holder, "started", 0) or getattr(getattr(holder, "execution", None), "started", 0)
        since = f" for {(now - started) / 1e9:.1f} s" if started else ""
        parent = getattr(getattr(holder, "parent", None), "model", None)
        caller = f" called by '{parent.name}'" if parent is not None else ""
        holders.append(f"{instance.name} is held by a {'cancelled ' * cancelled}request to '{name}'{caller}{since}")
    sender = None if ticket.parent is None else ticket.parent.model_name
    verdict = (
        "If one of these waits for this request, and without a time limit, neither will ever end; interrupt (Ctrl-C) "
        "to get out. bls_notebook cannot decide this: threads, locks and futures of the model may be part of the wait."
    )
    if cancelled:
        verdict = "That code is still running; this request is served when it ends."
    return (
        f"A request from '{sender}' to '{ticket.model.name}' has been waiting for "
        f"{(now - ticket.queued_at) / 1e9:.1f} s: {'; '.join(holders)}. {verdict}"
    )
