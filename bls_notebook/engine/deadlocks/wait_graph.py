"""The wait graph: what each request, execution, task and request future needs, and which of them can never move.

A node is *live* if it may move: it, or something that it needs, is not known to wait. A queued request needs any of
the executions that hold an instance for it; a running request needs its execution; a sync execution needs the request
that its thread waits for; an async execution needs any of its tasks and requests.

Guarantees: the graph contains only the engine's own objects. Locks, events, executors, threads and loops of models,
timers and connections count as able to move, and so do requests that they may help: one whose response sender another
thread may have. So there are no false alarms. Nodes that wait only for each other are not live.
A search visits each node once, no node that it does not reach, and stops once its starts are known to be live. This
module only reads; the caller holds `lock`, under which waits begin and end, so the view is consistent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.rate_limiter import LimitedInstance
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.event_loops import RequestFuture
from bls_notebook.engine.waiting.parker import blocked

Node = Any  # a Ticket, an Execution, a future or a task
NeedKind = Literal["live", "any", "all"]
Need = tuple[NeedKind, Iterable[Node]]

LIVE: NeedKind = "live"
ANY: NeedKind = "any"
ALL: NeedKind = "all"
_MOVES: Need = (LIVE, ())

lock = threading.Lock()


def deadlocked(starts: Iterable[Node], needs: Callable[[Node], Need]) -> dict[Node, list[Node]]:
    """Return the nodes that can never move among `starts` and their direct and indirect needs, with the needs of each.

    The result is empty if all `starts` can move. `needs(node)` is called once for each node. It returns
    ``("live", ())`` for a node that may move by itself, ``("any", nodes)`` for one that moves once any of the nodes
    moves, and ``("all", nodes)`` for one that needs all. (A least fixpoint, linear in the number of edges.)
    """
    edges: dict[Node, list[Node]] = {}
    missing: dict[Node, int] = {}  # how many needs of a node must still be found to be live
    users: dict[Node, list[Node]] = {}
    live: set[Node] = set()
    undecided = set(starts)
    todo = list(undecided)
    while todo and undecided:
        node = todo.pop()
        if node in edges:
            continue
        mode, needed = needs(node)
        edges[node] = list(dict.fromkeys(needed))
        missing[node] = {LIVE: 0, ANY: 1, ALL: len(edges[node])}[mode]
        for child in edges[node]:
            users.setdefault(child, []).append(node)
            missing[node] -= child in live
        found = [node] if missing[node] <= 0 else []
        if not found:
            todo.extend(edges[node])
        while found:
            mover = found.pop()
            live.add(mover)
            undecided.discard(mover)
            for user in users.get(mover, ()):
                missing[user] -= 1
                if missing[user] == 0:
                    found.append(user)
    if not undecided:
        return {}
    return {node: [n for n in needed if n not in live] for node, needed in edges.items() if node not in live}


def needs(node: Node) -> Need:
    """Return the needs of a node before it can move (see `deadlocked`). Lock held."""
    if isinstance(node, Ticket):
        return _needs_of_ticket(node)
    if isinstance(node, Execution):
        return _needs_of_execution(node)
    if isinstance(node, LimitedInstance):
        return needs_of_staged(node)
    return _needs_of_future(node)


def needs_of_staged(instance: LimitedInstance) -> Need:
    """Return the needs of an instance that waits for the rate limiter."""
    blockers = instance.limiter.blockers(instance)
    return (ANY, blockers) if blockers and all(blockers) else _MOVES


def candidates(ticket: Ticket) -> tuple[Instance, ...]:
    return ticket.bound or ticket.model.instances


def _needs_of_ticket(ticket: Ticket) -> Need:
    if ticket.ready or ticket.interrupted or ticket.refused or (ticket.queued and ticket.expires):
        return _MOVES
    execution, sender = ticket.execution, ticket.parent
    if ticket.model.decoupled and not ticket.queued and sender is not None and _has_threads(sender):
        return _MOVES  # a thread may cancel the iterator, which ends no wait in a queue
    if execution is None or ticket.queued:
        return _needs_of_waiting(ticket)
    if _has_threads(execution) and (ticket.model.decoupled or any(r._response_sender for r in execution.requests)):
        return _MOVES  # a thread may have the response sender
    if ticket.model.decoupled and execution.task is not None and execution.thread not in blocked:
        return _MOVES  # so may the code of other requests in the same loop
    return ALL, [execution]


def _needs_of_waiting(ticket: Ticket) -> Need:
    """Return the needs of a request that no instance has begun: in a queue, or just being passed to an instance."""
    nodes: list[Node] = []
    for instance in candidates(ticket):
        if ticket.queued or instance.holder is ticket:
            # A sync exec may stop the loop of an idle instance, which then cannot begin the request.
            stopped = blocked.get(instance.loop_thread)
            if stopped is None and instance.holder in (None, ticket):
                return _MOVES
            nodes.append(stopped or instance.holder)
    return (ANY, nodes) if nodes else _MOVES


def _has_threads(execution: Execution) -> bool:
    """Return whether a thread or an executor's job that the model's code started may still run."""
    return execution.bare or (execution.modules is not None and execution.modules.has_threads())


def _needs_of_execution(execution: Execution) -> Need:
    if execution.finished:
        return _MOVES
    if execution.combined:
        return ALL, list(execution.children)
    if execution.stalled is not None and execution.children and execution.stalled():
        return ANY, list(execution.children)
    waiting = blocked.get(execution.thread)
    if waiting is not None:  # also for a coroutine: a wait of its thread stops the whole loop
        return ALL, [waiting]
    task = execution.task
    if task is None or _has_threads(execution):
        return _MOVES
    loop: Any = task.get_loop()
    if not loop.selector.idle or loop.selector.listens or loop._ready or any(map(_acts, list(loop._scheduled))):
        return _MOVES
    # A task that can move may help the others, and so may a callback of a response.
    movers = [*(task for task in list(execution.tasks or ()) if not task.done()), *execution.children]
    return (ANY, movers) if movers else _MOVES


def _acts(timer: Any) -> bool:
    """Return whether a timer of a loop does more than end an `asyncio.sleep`."""
    return not timer.cancelled() and getattr(timer._callback, "__name__", "") != "_set_result_unless_cancelled"


def _needs_of_future(future: asyncio.Future[Any]) -> Need:
    if future.done():
        return _MOVES
    if isinstance(future, RequestFuture):
        return ALL, [future.ticket]
    if isinstance(future, asyncio.Task):
        waiter = getattr(future, "_fut_waiter", None)
        return _MOVES if waiter is None else (ALL, [waiter])
    children = getattr(future, "_children", ())  # of asyncio.gather, which an exception of any of them would end
    known = all(isinstance(c, RequestFuture | asyncio.Task) or hasattr(c, "_children") for c in children)
    return (ALL, children) if children and known else _MOVES
