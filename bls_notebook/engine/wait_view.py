"""The wait graph as it is right now: what each waiting request, execution and future needs to move.

Guarantees: reads only; the caller holds the lock under which waits are registered in `blocked`, so the
view is consistent. What cannot be seen (a lock, a bare thread, a timer that may cancel) counts as able
to move. Takes a walk over the heap only where everything else says that a request is stuck.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .description import home_of
from .frames import NoFrameError, walk_back
from .futures import RequestFuture
from .loops import Job, job_of, loop_is_idle
from .ticket import Ticket
from .waits import ALL, ANY, LIVE, Need

if TYPE_CHECKING:
    from bls_notebook.pb_utils.request import InferenceRequest

    from .execution import Execution
    from .instance import Instance
    from .model import LoadedModel

__all__ = ["Node", "blocked", "candidates", "needs", "needs_at_most", "walked"]

Node = Any  # a Ticket, an Execution, a future, a task or an executor's job

# Threads that sleep in a wait, and the request whose response (or turn) they wait for.
blocked: dict[int, Ticket] = {}


def needs(node: Node) -> Need[Node]:
    """What a node needs before it can move (see `waits.is_stuck`). Lock held."""
    if isinstance(node, Ticket):
        return _needs_of_ticket(node)
    if isinstance(node, asyncio.Future):
        return _needs_of_future(node)
    if isinstance(node, Job):
        return _needs_of_job(node)
    return _needs_of_execution(node)


def needs_at_most(node: Node) -> Need[Node]:
    """As `needs`, as if only its execution could answer a running request, or cancel those it sent."""
    if isinstance(node, Ticket) and node.execution is not None and not node.queued:
        free = node.ready or node.granted is not None or node.cancelled or node.refused
        return (LIVE, ()) if free else (ALL, [node.execution])
    return _needs_of_waiting(node, False) if isinstance(node, Ticket) else needs(node)


def _needs_of_ticket(ticket: Ticket) -> Need[Ticket | Execution]:
    if ticket.ready or ticket.granted is not None or ticket.cancelled or ticket.refused:
        return LIVE, ()
    if ticket.execution is None or ticket.queued:
        return _needs_of_waiting(ticket)
    if not ticket.execution.combined and _answerable_elsewhere(ticket):
        return LIVE, ()
    return ALL, [ticket.execution]


def candidates(ticket: Ticket) -> tuple[Instance, ...]:
    """The instances that a queued request may run on."""
    return ticket.bound or ticket.model.instances


def _needs_of_waiting(ticket: Ticket, all_of_it: bool = True) -> Need[Ticket | Execution]:
    """A request that no instance has begun: one in a queue, or one that is just being handed over."""
    if ticket.queued and ticket.expires:
        return LIVE, ()
    reader = ticket.parent.model if all_of_it and ticket.model.decoupled and ticket.parent else None
    if _bare_thread_of(reader):
        return LIVE, ()  # it may cancel the iterator
    if ticket.ready or ticket.cancelled:  # or it just has
        return LIVE, ()
    instances = candidates(ticket)
    if not ticket.queued:
        instances = tuple(i for i in instances if i.holder is ticket)
    nodes: list[Ticket | Execution] = []
    for instance in instances:
        # Also an instance that nobody holds may be kept from work: by its loop, stopped by a sync exec.
        stopped = blocked.get(instance.loop_thread) if instance.loop_thread else None
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


# Answers of walks over the heap, kept for the moment in which one victim is looked for. Lock held.
walked: dict[int, bool] = {}


def _answerable_elsewhere(ticket: Ticket) -> bool:
    """Whether somebody beside its execution may hold the means to answer a running request."""
    found = walked.get(id(ticket))
    if found is None:
        found = walked[id(ticket)] = _find_elsewhere(ticket)
    return found


def _bare_thread_of(model: LoadedModel | None) -> bool:
    """Whether a thread that the model started itself runs its code now: what it holds is not known."""
    if model is None:
        return False
    known = {threading.get_ident(), *blocked}
    for instance in model.instances:
        known.add(instance.loop_thread)
        known.add(getattr(instance.holder, "thread", 0))
    for thread, innermost in sys._current_frames().items():
        if thread in known:
            continue
        try:
            if any((home := home_of(f.f_globals)) and home.owner is model for f in walk_back(innermost)):
                return True
        except NoFrameError:
            return True  # it may be
    return False


def _find_elsewhere(ticket: Ticket) -> bool:
    execution = ticket.execution
    request = None if execution is None else _request_in(execution, ticket)
    if execution is None or request is None or execution.finished:
        return True
    means = (request, request._sender)
    together = execution.requests
    own = {id(execution), id(getattr(execution, "__dict__", None)), id(request), id(means), id(together)}
    for task in list(execution.tasks or ()):
        coroutine = task.get_coro()
        while coroutine is not None:
            own.add(id(coroutine))
            own.add(id(getattr(coroutine, "cr_frame", None)))
            coroutine = getattr(coroutine, "cr_await", None)  # type: ignore[assignment]
    try:
        own.update(map(id, walk_back(sys._current_frames().get(execution.thread))))
    except NoFrameError:
        return True
    for thing in means:
        if thing is None:
            continue
        for holder in gc.get_referrers(thing):
            received = isinstance(holder, list) and _all_among(holder, together or (request,))
            frame = getattr(holder, "cr_frame", None)  # of a coroutine that runs just now
            if id(holder) not in own and not received and (frame is None or id(frame) not in own):
                return True
    reader = None if ticket.parent is None else ticket.parent.model
    if _bare_thread_of(ticket.model) or (ticket.model.decoupled and _bare_thread_of(reader)):
        return True
    # Asked last: who held it a moment ago has answered, if nobody holds it any more.
    return ticket.ready or ticket.cancelled


def _all_among(things: list[Any], requests: tuple[Any, ...]) -> bool:
    """Whether a list holds these requests only: it is what `execute` received, or as good as that."""
    # A function of its own: a closure over the request would be one more holder of it.
    ids = {id(r) for r in requests}
    return all(id(thing) in ids for thing in things)


def _needs_of_execution(execution: Execution) -> Need[Node]:
    if execution.finished:
        return LIVE, ()
    if execution.combined:
        return ALL, execution.waits_for(blocked)
    waiting = blocked.get(execution.thread)
    if execution.task is None and execution.nested_loop is not None and waiting is None:
        return _needs_of_loop(execution.nested_loop, asyncio.all_tasks(execution.nested_loop))
    if execution.task is None:
        return (LIVE, ()) if waiting is None else (ALL, [waiting])
    if waiting is not None:  # sync exec inside a coroutine stops its whole loop
        return ALL, [waiting]
    return _needs_of_loop(execution.task.get_loop(), execution.tasks or ())


def _needs_of_loop(loop: Any, tasks: Iterable[asyncio.Task[Any]]) -> Need[Node]:
    if not loop_is_idle(loop) or _timer_may_cancel(loop):
        return LIVE, ()
    unfinished = [t for t in list(tasks) if not t.done()]
    # Any task of the execution that can move may help the others: it moves once any of them does.
    return (ANY, unfinished) if unfinished else (LIVE, ())


def _timer_may_cancel(loop: Any) -> bool:
    """Whether a timer of the loop does something else than to end an `asyncio.sleep`."""
    for handle in getattr(loop, "_scheduled", ()):
        callback = getattr(handle, "_callback", None)
        if not handle.cancelled() and (getattr(callback, "__name__", "") != "_set_result_unless_cancelled"):
            return True
    return False


def _needs_of_future(future: asyncio.Future[Any]) -> Need[Node]:
    if future.done():
        return LIVE, ()
    if isinstance(future, RequestFuture):
        return ALL, [future.ticket]
    if isinstance(future, asyncio.Task):
        waiter = getattr(future, "_fut_waiter", None)
        if waiter is None:
            return LIVE, ()
        return _needs_of_helper(future.get_coro()) or (ALL, [waiter])
    children = getattr(future, "_children", None)
    if children:  # of asyncio.gather
        return ALL, list(children)
    job = job_of(future)
    if job is not None:
        return ALL, [job]
    completers = _completers(future)
    return (ANY, completers) if completers else (LIVE, ())


def _completers(future: asyncio.Future[Any]) -> list[Node]:
    """The requests and tasks that complete a plain future, as those of shield and as_completed."""
    known: list[Any] = []
    for execution in list(getattr(future.get_loop(), "bls_executions", ())):
        known.extend(t for t in list(execution.tasks or ()) if not t.done())
        for ticket in list(execution.children):
            known.append(getattr(ticket.on_response, "__self__", None))
    found = []
    for one in known:
        for callback, *_ in getattr(one, "_callbacks", None) or ():
            for content in _contents(callback):
                if content is future or (
                    isinstance(content, asyncio.Queue) and future in getattr(content, "_getters", ())
                ):
                    found.append(one)
    return found


def _contents(callback: Any) -> list[Any]:
    """What a callback of asyncio's works on: by its closure, or (as_completed, from 3.13 on) its object."""
    cells = getattr(callback, "__closure__", None) or ()
    owner = getattr(callback, "__self__", None)
    return [*(cell.cell_contents for cell in cells), getattr(owner, "_done", None)]


def _needs_of_job(job: Job) -> Need[Node]:
    if job.state == "waiting":  # for a thread of its executor
        running = [j for j in list(job.peers) if j.state == "running"]
        return (ANY, running) if running else (LIVE, ())
    waiting = blocked.get(job.thread) if job.thread else None
    return (LIVE, ()) if waiting is None else (ALL, [waiting])


def _needs_of_helper(coroutine: Any) -> Need[Node] | None:
    """What a coroutine waits for inside asyncio's own TaskGroup or wait; None for anything else.

    These wait on a future of their own, which tells nothing of what will complete it.
    """
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            return None
        module = frame.f_globals.get("__name__")
        if module == "asyncio.taskgroups":
            group = frame.f_locals.get("self")
            return ALL, [t for t in getattr(group, "_tasks", ()) if not t.done()]
        if module == "asyncio.tasks" and frame.f_code.co_name == "_wait":
            waiting = frame.f_locals
            if waiting.get("timeout") is not None:
                return LIVE, ()
            mode = ALL if waiting.get("return_when") == asyncio.ALL_COMPLETED else ANY
            return mode, list(waiting.get("fs") or ())
        coroutine = getattr(coroutine, "cr_await", None)
    return None
