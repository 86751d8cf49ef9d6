"""The wait graph: the needs of each waiting request, execution and future, and the nodes that can never move.

A node is *live* if something outside the graph may still move it. A queued request is live if a live execution
holds an instance that could serve it; a waiting execution is live if the request or future it waits for is live.
Whatever the engine cannot see (a lock, a bare thread, a timer that may cancel) counts as live, so there are no false
alarms. Nodes that wait only for each other are not live, so no deadlock among known waits is missed.

Guarantees: this module only reads. The caller holds the lock under which waits are registered in `blocked`, so the
view is consistent. The search of the heap happens only if all other evidence says that a request is stuck.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal
from weakref import ref

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.exception_text import home_of
from bls_notebook.engine.ticket import Ticket
from bls_notebook.pb_utils.request import InferenceRequest

from .event_loops import Job, RequestFuture, WatchedSelector, blocked, job_of
from .object_reachability import can_be_reached
from .stack_frames import frame_of, stack_of, stacks, variables_of

Node = Any  # a Ticket, an Execution, a loop that sleeps, a future, a task or an executor's job
Mode = Literal["live", "any", "all"]
Need = tuple[Mode, Iterable[Node]]

LIVE: Mode = "live"
ANY: Mode = "any"
ALL: Mode = "all"


def deadlocked(starts: Iterable[Node], needs: Callable[[Node], Need]) -> dict[Node, list[Node]]:
    """Return the nodes that can never move among `starts` and their direct and indirect needs, with the needs of each.

    `needs(node)` is called once for each node. It returns ``("live", ())`` for a node that may move by itself,
    ``("any", nodes)`` for one that moves once any of the nodes moves, and ``("all", nodes)`` for one that needs all.
    (A least fixpoint of liveness, linear in the number of edges.)
    """
    edges: dict[Node, list[Node]] = {}
    waiting: dict[Node, int] = {}
    users: dict[Node, list[Node]] = {}
    live: list[Node] = []
    todo = list(starts)
    while todo:
        node = todo.pop()
        if node in edges:
            continue
        mode, needed = needs(node)
        edges[node] = children = list(dict.fromkeys(needed)) if mode != LIVE else []
        if mode == LIVE or (mode == ALL and not children):
            live.append(node)
            continue
        waiting[node] = len(children) if mode == ALL else 1
        for child in children:
            users.setdefault(child, []).append(node)
            todo.append(child)
    while live:
        node = live.pop()
        if edges.pop(node, None) is None:
            continue
        for user in users.get(node, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                live.append(user)
    return {node: [n for n in children if n in edges] for node, children in edges.items()}


def needs(node: Node, closer: bool = True) -> Need:
    """Return the needs of a node before it can move (see `deadlocked`). Lock held.

    Without `closer`, assume that only its own execution can answer a running request or cancel the requests that it
    sent, and that only its own loop can complete a future.
    """
    if isinstance(node, Ticket):
        return _needs_of_ticket(node, closer)
    if isinstance(node, asyncio.Future):
        return _needs_of_future(node, closer)
    if isinstance(node, Job):
        return _needs_of_job(node)
    if isinstance(node, WatchedSelector):
        return _needs_of_loop(node.loop, _movers(node)) if node.idle else (LIVE, ())
    return _needs_of_execution(node)


def _needs_of_ticket(ticket: Ticket, closer: bool) -> Need:
    if ticket.ready or ticket.cancelled or ticket.refused:
        return LIVE, ()
    if ticket.execution is None or ticket.queued:
        return _needs_of_waiting(ticket, closer)
    if not closer and ticket.execution.task is not None:
        _questions.append(ref(ticket))
    if not ticket.execution.combined:
        if not closer:
            _running.append(ref(ticket))
        elif _answerable_elsewhere(ticket):
            return LIVE, ()
    return ALL, [ticket.execution]


def candidates(ticket: Ticket) -> tuple[Instance, ...]:
    return ticket.bound or ticket.model.instances


def _needs_of_waiting(ticket: Ticket, closer: bool) -> Need:
    """Return the needs of a request that no instance has begun: in a queue, or just being passed to an instance."""
    if ticket.queued and ticket.expires:
        return LIVE, ()
    reader = ticket.parent.model if closer and ticket.model.decoupled and ticket.parent else None
    if _bare_thread_of(reader):
        return LIVE, ()  # it may cancel the iterator
    if ticket.ready or ticket.cancelled:  # it may just have cancelled it
        return LIVE, ()
    instances = candidates(ticket)
    if not ticket.queued:
        instances = tuple(i for i in instances if i.holder is ticket)
    nodes: list[Node] = []
    for instance in instances:
        # A sync exec may stop the loop of an idle instance, which then cannot begin the request.
        stopped = blocked.get(instance.loop_thread) if instance.loop_thread else None
        if stopped is not None and stopped is instance.loop.selector:
            stopped = None
        holder = stopped or instance.holder
        if holder is None or (holder is ticket and stopped is None):
            return LIVE, ()
        nodes.append(holder)
    return (ANY, nodes) if nodes else (LIVE, ())


def _request_in(execution: Execution, ticket: Ticket) -> InferenceRequest | None:
    if execution.request is not None:
        return execution.request
    for other, request in zip(execution.tickets, execution.requests, strict=False):
        if other is ticket:
            return request
    return None


# Assumptions of the quick check, and the results of checking them, for one search for a victim: may code elsewhere
# complete this future, or answer this running request? Lock held.
_questions: list[ref[Any]] = []
_running: list[ref[Ticket]] = []  # running requests: one search of the heap answers for all
walked: dict[int, bool] = {}


def forget_answers() -> None:
    """Begin a new search, with the quick check. Lock held."""
    _questions.clear()
    _running.clear()
    walked.clear()


def look_closer() -> None:
    """Check the assumptions of the quick check, after its own references are gone."""
    for question in _questions:
        kind = type(question())
        if issubclass(kind, asyncio.Future):
            walked[id(question())] = _completed_elsewhere(question)
        elif issubclass(kind, Ticket) and not _leaves_its_tasks(question):
            walked[id(question())] = False


def _completed_elsewhere(question: ref[asyncio.Future[Any]]) -> bool:
    """Return whether anything but the sleeping tasks of its loop may complete a future."""
    future = question()
    loop: Any = None if future is None else future.get_loop()
    if future is None or loop is None:
        return True
    del future
    watched = loop.bls_selector
    inside = _movers(watched)
    holders: list[Any] = list(watched.executions)
    for ticket in [one.ticket for one in inside if isinstance(one, RequestFuture)]:
        holders.append(ticket)
        inside.append(ticket.on_response)
    for execution in list(watched.executions):
        model, instance = execution.model, execution.instance
        if instance is not None and instance.holder is execution and not (model and model.decoupled):
            # No other thread runs the model's code meanwhile.
            holders += _backends(instance)
            inside.append(instance.execute)
    frames = _held_by_frames(next((t for t, w in blocked.items() if w is watched), 0))
    holders += (frames, frames)  # the list, and the frames themselves
    reachable = can_be_reached([id(question())], inside, holders)
    future = question()
    return reachable or future is None or future.done() or bool(loop._ready)


def _backends(instance: Instance) -> list[Any]:
    """Return the engine's own objects that refer to the model's object."""
    referrers: list[Any] = [instance]
    backend: Any = instance.backend
    while backend is not None:
        referrers += [backend, *(one for one in gc.get_referents(backend) if type(one) is dict)]
        backend = getattr(backend, "_inner", None)
    return referrers


def _held_by_frames(thread: int) -> list[Any]:
    """Return the variables of asyncio's functions that run a thread's loop."""
    values: list[Any] = []
    for frame in stack_of(thread):
        if str(frame.f_globals.get("__name__")).startswith("asyncio."):
            variables = variables_of(frame)
            values.extend(variables.values())
            if isinstance(variables, dict):  # a copy that the frame keeps, with references of its own
                variables.clear()
        elif values:
            break
    return values


def _leaves_its_tasks(question: ref[Ticket]) -> bool:
    """Return whether code outside the sleeping tasks of its execution can reach a request or its response sender."""
    ticket = question()
    execution = None if ticket is None else ticket.execution
    if ticket is None or execution is None or execution.task is None or not execution.requests:
        return True
    if blocked.get(execution.thread) is not getattr(execution.task.get_loop(), "bls_selector", None):
        return True
    request = _request_in(execution, ticket)
    targets = [id(request), id(None if request is None else request._response_sender)]
    del request
    reachable = can_be_reached(targets, list(execution.tasks or ()), (execution, execution.requests))
    reader = None if ticket.parent is None else ticket.parent.model
    bare = ticket.model.decoupled and _bare_thread_of(reader)
    return reachable or bare or ticket.ready or ticket.cancelled


def _answerable_elsewhere(ticket: Ticket) -> bool:
    """Return whether an object outside its execution may hold a running request or its sender, and so answer it."""
    if id(ticket) not in walked:
        tickets = {t for t in (ticket, *(running() for running in _running)) if t is not None and id(t) not in walked}
        requests = [_request_in(one.execution, one) for one in tickets if one.execution is not None]
        senders = [one._response_sender for one in requests if one is not None]
        means = tuple(one for one in (*requests, *senders) if one is not None)  # whoever has one can answer
        own = {id(requests), id(senders), id(means)}
        holders: dict[int, list[Any]] = {id(one): [] for one in means}
        for holder in gc.get_referrers(*means):  # once, because it visits all objects
            if id(holder) not in own:
                held = holders.keys() & map(id, gc.get_referents(holder))
                for number in held or holders:  # all, if it has just passed its reference on
                    holders[number].append(holder)
        walked.update({id(one): _find_elsewhere(one, holders) for one in tickets})
    return walked[id(ticket)]


def _bare_thread_of(model: LoadedModel | None) -> bool:
    """Return whether a thread that the model started itself runs its code now; its references are unknown."""
    if model is None:
        return False
    known = {threading.get_ident(), *blocked}
    for instance in model.instances:
        known.add(instance.loop_thread)
        known.add(getattr(instance.holder, "thread", 0))
    return any(
        (home := home_of(frame.f_globals)) and home.owner is model
        for thread, stack in stacks().items()
        if thread not in known
        for frame in stack
    )


def _find_elsewhere(ticket: Ticket, holders: Mapping[int, list[Any]]) -> bool:
    """Return whether one of the `holders` of a request or its sender, by their IDs, is outside its execution."""
    execution = ticket.execution
    request = None if execution is None else _request_in(execution, ticket)
    if execution is None or request is None or execution.finished:
        return True
    means = [id(one) for one in (request, request._response_sender) if one is not None]
    if not set(means) <= holders.keys():  # they have changed since the search
        return True
    together = execution.requests
    own = {id(execution), id(getattr(execution, "__dict__", None)), id(request), id(together)}
    for task in list(execution.tasks or ()):
        coroutine = task.get_coro()
        while coroutine is not None:
            own.add(id(coroutine))
            own.add(id(frame_of(coroutine)))
            coroutine = getattr(coroutine, "cr_await", None)  # type: ignore[assignment]
    own.update(map(id, stack_of(execution.thread)))
    for holder in [holder for each in means for holder in holders[each]]:
        received = isinstance(holder, list) and _all_among(holder, together or (request,))
        frame = frame_of(holder)  # of a running coroutine
        if id(holder) not in own and not received and (frame is None or id(frame) not in own):
            return True
    reader = None if ticket.parent is None else ticket.parent.model
    bare = _bare_thread_of(ticket.model) or (ticket.model.decoupled and _bare_thread_of(reader))
    return bare or ticket.ready or ticket.cancelled  # the last, because a former holder may have answered meanwhile


def _all_among(things: list[Any], requests: Sequence[Any]) -> bool:
    """Return whether a list contains only these requests, like the argument of `execute`."""
    # This must not be a closure over the request, which would be one more reference to it.
    ids = {id(r) for r in requests}
    return all(id(thing) in ids for thing in things)


def _needs_of_execution(execution: Execution) -> Need:
    if execution.finished:
        return LIVE, ()
    if execution.combined:
        return ALL, execution.waits_for(blocked)
    waiting = blocked.get(execution.thread)
    if waiting is None:
        return LIVE, ()
    loop = None if execution.task is None else execution.task.get_loop()
    if loop is None or waiting is not getattr(loop, "bls_selector", None):
        return ALL, [waiting]  # also for a coroutine: a wait of its thread stops the whole loop
    # A task that can move may help the others, so the execution moves once any of its tasks does.
    return _needs_of_loop(loop, [t for t in list(execution.tasks or ()) if not t.done()])


def _needs_of_loop(loop: Any, movers: list[Node]) -> Need:
    return (LIVE, ()) if not movers or loop._ready or _timer_may_act(loop) else (ANY, movers)


def _movers(watched: WatchedSelector) -> list[Node]:
    """Return the nodes that may wake a sleeping loop: its tasks, and the requests sent from there."""
    loop = watched.loop
    movers: list[Node] = [] if loop is None else [t for t in asyncio.all_tasks(loop) if not t.done()]
    for execution in list(watched.executions):
        for ticket in list(execution.children):
            future = getattr(ticket.on_response, "__self__", None)
            if isinstance(future, RequestFuture) and future.get_loop() is loop:
                movers.append(future)
    return movers


def _timer_may_act(loop: Any) -> bool:
    """Return whether a timer of the loop does more than end an `asyncio.sleep`."""
    return any(
        getattr(handle._callback, "__name__", "") != "_set_result_unless_cancelled"
        for handle in list(loop._scheduled)
        if not handle.cancelled()
    )


def _is_timed(future: asyncio.Future[Any], loop: Any) -> bool:
    return any(future in (handle._args or ()) for handle in list(loop._scheduled) if not handle.cancelled())


def _needs_of_future(future: asyncio.Future[Any], closer: bool) -> Need:
    if future.done():
        return LIVE, ()
    if isinstance(future, RequestFuture):
        return ALL, [future.ticket]
    if isinstance(future, asyncio.Task):
        waiter = getattr(future, "_fut_waiter", None)
        return (LIVE, ()) if waiter is None else (ALL, [waiter])
    children = getattr(future, "_children", None)
    if children:  # of asyncio.gather
        return ALL, list(children)
    job = job_of(future)
    if job is not None:
        return ALL, [job]
    # A future of a lock, an event, a queue, of shield or wait: some task of its loop completes it, unless code
    # outside the loop may, or it stands for an external event.
    loop: Any = future.get_loop()
    watched = getattr(loop, "bls_selector", None)
    if watched is None or not watched.idle or loop._ready or watched.listens or _is_timed(future, loop):
        return LIVE, ()
    if not closer:
        _questions.append(ref(future))
    elif walked.get(id(future), True):
        return LIVE, ()
    return ANY, _movers(watched)


def _needs_of_job(job: Job) -> Need:
    if job.state == "waiting":  # until its executor has a free thread
        running = [j for j in list(job.peers) if j.state == "running"]
        return (ANY, running) if running else (LIVE, ())
    waiting = blocked.get(job.thread) if job.thread else None
    return (LIVE, ()) if waiting is None else (ALL, [waiting])
