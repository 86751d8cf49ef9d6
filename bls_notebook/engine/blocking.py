"""Who waits for what, right now, and what is done about a wait that can never end.

Guarantees: a thread registers its wait before it sleeps, under one lock, and the wait graph is only
read under that lock, so the check sees no half-made wait: a request that only waits for its own
waiting ancestors gets an error at once, and no other request does. What cannot be seen (a lock, a
bare thread, a timer that may cancel) counts as able to move. A wait that lasts and that looks circular,
but cannot be proven so, is reported while it lasts. Ctrl-C ends any wait.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from .failures import HOME, error_response
from .futures import RequestFuture
from .loops import Job, job_of, loop_is_idle
from .messages import running
from .parking import Parker
from .ticket import Ticket
from .waits import ALL, ANY, LIVE, Need, is_stuck

if TYPE_CHECKING:
    from bls_notebook.pb_utils.request import InferenceRequest
    from bls_notebook.pb_utils.response import InferenceResponse

    from .execution import Execution
    from .instance import Instance
    from .model import LoadedModel

__all__ = ["describe_wait", "first_response", "look_at", "loop_goes_idle", "wait_for"]

REPORT_AFTER = 1.0

log = logging.getLogger("bls_notebook")
_lock = threading.Lock()
_blocked: dict[int, Ticket] = {}
_Node = Any  # a Ticket, an Execution, a future or a task


def wait_for(ticket: Ticket) -> None:
    """Wait until the ticket has a response, or an instance was granted to it.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C; the request has been interrupted then.
    """
    parker = ticket.parker()
    if parker is None:
        return
    thread = threading.get_ident()
    with _lock:
        outer = _blocked.get(thread)
        _blocked[thread] = ticket
        victim = _victim(ticket)
    try:
        if victim is not None:
            _refuse(victim)
        _park(ticket, parker)
    except BaseException:
        ticket.interrupt()
        raise
    finally:
        with _lock:
            if outer is None:
                _blocked.pop(thread, None)
            else:
                _blocked[thread] = outer


def first_response(ticket: Ticket) -> InferenceResponse:
    """Wait for the first response of a ticket."""
    while True:
        taken = ticket.take()
        if taken is not None:
            return taken[0]
        wait_for(ticket)


def _park(ticket: Ticket, parker: Parker) -> None:
    reported = False
    pause = REPORT_AFTER
    while not parker.park(pause):
        # Once more while it lasts: what looked able to move a moment ago may have settled since.
        with _lock:
            victim = _victim(ticket)
        if victim is not None:
            _refuse(victim)
        elif not reported and _looks_circular(ticket):
            log.warning(describe_wait(ticket))
            reported = True
        pause = min(pause * 2, 60.0)


def loop_goes_idle(executions: list[Execution]) -> None:
    """A loop is about to sleep: refuse a request that its executions wait for and cannot get."""
    with _lock:
        waiting = [t for e in executions for t in list(e.children)]
        if any(_has_jobs(e) for e in executions):
            # Also waits of other threads on its behalf: this loop looked busy when these began.
            waiting.extend(_blocked.values())
        victim = next((v for v in map(_victim, _each_kind(waiting)) if v is not None), None)
    if victim is not None:
        _refuse(victim)


def look_at(ticket: Ticket) -> None:
    """A request was queued behind the backs of those who wait: refuse what can never be served now."""
    with _lock:
        victim = _victim(ticket)
    if victim is not None:
        _refuse(victim)


def _has_jobs(execution: Execution) -> bool:
    """Whether the execution's loop may have calls under way in executors."""
    loop = None if execution.task is None else execution.task.get_loop()
    groups = getattr(loop, "_bls_jobs", None)
    if groups is None:
        return True
    return any(job.state == "running" for group in groups.values() for job in list(group))


def _served_soon(ticket: Ticket) -> bool:
    """Whether a request is plainly able to move, without a look at the rest of the graph. Lock held."""
    if not ticket.queued:
        return _acts(ticket.execution) if ticket.execution is not None else not ticket.model.is_async
    for instance in _candidates(ticket):
        holder = instance.holder
        if isinstance(holder, Ticket):  # on its way to a worker thread, which nothing keeps from it
            if not holder.queued and holder.execution is None and not instance.is_async:
                return True
        elif _acts(holder):
            return True
    return False


def _acts(execution: Execution | None) -> bool:
    """Whether an execution runs on a thread that does not wait."""
    return (
        execution is not None
        and execution.task is None
        and execution.nested_loop is None
        and execution.thread not in _blocked
        and not execution.finished
    )


def _each_kind(waiting: list[Ticket]) -> Iterator[Ticket]:
    """One of the requests that wait for the same instances: what holds for it holds for all of them."""
    seen: set[object] = set()
    for ticket in waiting:
        kind = (id(ticket.model), ticket.bound, ticket.expires) if ticket.queued else id(ticket)
        if kind not in seen:
            seen.add(kind)
            yield ticket


def _victim(ticket: Ticket) -> Ticket | None:
    """The request to refuse so that `ticket` can move; None where it can. Lock held."""
    if _served_soon(ticket):
        return None
    # Who else may answer a running request takes a walk over the heap, so it is asked last.
    if not is_stuck(ticket, _needs_at_most):
        return None
    _walked.clear()
    if not is_stuck(ticket, _needs):
        return None
    seen: set[int] = set()
    todo: list[_Node] = [ticket]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if _is_waiting(node):
            node.circle = _cycle(node)
            node.refused = True  # from here on it can move, and so can who waits for it
            return node  # type: ignore[no-any-return]
        mode, needed = _needs(node)
        if mode != LIVE:
            todo.extend(n for n in needed if is_stuck(n, _needs))
    return None


def _is_waiting(node: _Node) -> bool:
    """Whether a node is a request that no instance has begun."""
    return isinstance(node, Ticket) and (node.queued or node.execution is None)


# -- the live view of the graph ------------------------------------------------------------------


def _needs(node: _Node) -> Need[_Node]:
    """What a node needs before it can move (see `waits.is_stuck`). Lock held."""
    if isinstance(node, Ticket):
        return _needs_of_ticket(node)
    if isinstance(node, asyncio.Future):
        return _needs_of_future(node)
    if isinstance(node, Job):
        return _needs_of_job(node)
    return _needs_of_execution(node)


def _needs_at_most(node: _Node) -> Need[_Node]:
    """As `_needs`, as if only its execution could answer a running request."""
    if isinstance(node, Ticket) and node.execution is not None and not node.queued:
        free = node.ready or node.granted is not None or node.cancelled or node.refused
        return (LIVE, ()) if free else (ALL, [node.execution])
    return _needs(node)


def _needs_of_ticket(ticket: Ticket) -> Need[Ticket | Execution]:
    if ticket.ready or ticket.granted is not None or ticket.cancelled or ticket.refused:
        return LIVE, ()
    if ticket.execution is None or ticket.queued:
        return _needs_of_waiting(ticket)
    if not ticket.execution.combined and _answerable_elsewhere(ticket):
        return LIVE, ()
    return ALL, [ticket.execution]


def _candidates(ticket: Ticket) -> tuple[Instance, ...]:
    """The instances that a queued request may run on."""
    return ticket.bound or ticket.model.instances


def _needs_of_waiting(ticket: Ticket) -> Need[Ticket | Execution]:
    """A request that no instance has begun: one in a queue, or one that is just being handed over."""
    if ticket.queued and ticket.expires:
        return LIVE, ()
    if ticket.model.decoupled and ticket.parent is not None and _bare_thread_of(ticket.parent.model):
        return LIVE, ()  # it may cancel the iterator
    if ticket.ready or ticket.cancelled:  # or it just has
        return LIVE, ()
    instances = _candidates(ticket)
    if not ticket.queued:
        instances = tuple(i for i in instances if i.holder is ticket)
    nodes: list[Ticket | Execution] = []
    for instance in instances:
        # Also an instance that nobody holds may be kept from work: by its loop, stopped by a sync exec.
        blocked = _blocked.get(instance.loop_thread) if instance.loop_thread else None
        holder = blocked or instance.holder
        if holder is None or (holder is ticket and blocked is None):
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
_walked: dict[int, bool] = {}


def _answerable_elsewhere(ticket: Ticket) -> bool:
    """Whether somebody beside its execution may hold the means to answer a running request."""
    found = _walked.get(id(ticket))
    if found is None:
        found = _walked[id(ticket)] = _find_elsewhere(ticket)
    return found


def _bare_thread_of(model: LoadedModel | None) -> bool:
    """Whether a thread that the model started itself runs its code now: what it holds is not known."""
    if model is None:
        return False
    known = {threading.get_ident(), *_blocked}
    for instance in model.instances:
        known.add(instance.loop_thread)
        known.add(getattr(instance.holder, "thread", 0))
    for thread, innermost in sys._current_frames().items():
        frame: FrameType | None = None if thread in known else innermost
        while frame is not None:
            if getattr(frame.f_globals.get(HOME), "owner", None) is model:
                return True
            frame = frame.f_back
    return False


def _find_elsewhere(ticket: Ticket) -> bool:
    execution = ticket.execution
    request = None if execution is None else _request_in(execution, ticket)
    if execution is None or request is None or execution.finished:
        return True
    means = (request, request._sender)
    together = execution.requests
    own = {id(execution), id(vars(execution)), id(request), id(means), id(together)}
    for task in list(execution.tasks or ()):
        coroutine = task.get_coro()
        while coroutine is not None:
            own.add(id(coroutine))
            own.add(id(getattr(coroutine, "cr_frame", None)))
            coroutine = getattr(coroutine, "cr_await", None)  # type: ignore[assignment]
    frame = sys._current_frames().get(execution.thread)
    while frame is not None:
        own.add(id(frame))
        frame = frame.f_back
    for thing in means:
        if thing is None:
            continue
        for holder in gc.get_referrers(thing):
            received = isinstance(holder, list) and _all_among(holder, together or (request,))
            if id(holder) not in own and not received:
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


def _needs_of_execution(execution: Execution) -> Need[_Node]:
    if execution.finished:
        return LIVE, ()
    if execution.combined:
        return ALL, execution.waits_for(_blocked)
    waiting = _blocked.get(execution.thread)
    if execution.task is None and execution.nested_loop is not None and waiting is None:
        return _needs_of_loop(execution.nested_loop, asyncio.all_tasks(execution.nested_loop))
    if execution.task is None:
        return (LIVE, ()) if waiting is None else (ALL, [waiting])
    if waiting is not None:  # sync exec inside a coroutine stops its whole loop
        return ALL, [waiting]
    return _needs_of_loop(execution.task.get_loop(), execution.tasks or ())


def _needs_of_loop(loop: Any, tasks: Iterable[asyncio.Task[Any]]) -> Need[_Node]:
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


def _needs_of_future(future: asyncio.Future[Any]) -> Need[_Node]:
    if future.done():
        return LIVE, ()
    if isinstance(future, RequestFuture) and future.ticket is not None:
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


def _completers(future: asyncio.Future[Any]) -> list[_Node]:
    """The requests and tasks that complete a plain future, as those of shield and as_completed."""
    known: list[Any] = []
    for execution in list(getattr(future.get_loop(), "bls_executions", ())):
        known.extend(t for t in list(execution.tasks or ()) if not t.done())
        for ticket in list(execution.children):
            known.append(getattr(ticket.on_response, "__self__", None))
    found = []
    for one in known:
        for callback, *_ in getattr(one, "_callbacks", None) or ():
            for cell in getattr(callback, "__closure__", None) or ():
                content = cell.cell_contents
                if content is future or (
                    isinstance(content, asyncio.Queue) and future in getattr(content, "_getters", ())
                ):
                    found.append(one)
    return found


def _needs_of_job(job: Job) -> Need[_Node]:
    if job.state == "waiting":  # for a thread of its executor
        running = [j for j in list(job.peers) if j.state == "running"]
        return (ANY, running) if running else (LIVE, ())
    waiting = _blocked.get(job.thread) if job.thread else None
    return (LIVE, ()) if waiting is None else (ALL, [waiting])


def _needs_of_helper(coroutine: Any) -> Need[_Node] | None:
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


# -- words ---------------------------------------------------------------------------------------


def _ancestors(ticket: Ticket) -> list[Execution]:
    out = []
    execution = ticket.parent
    while execution is not None:
        if execution.model is not None:
            out.append(execution)
        execution = execution.parent
    return out


def _cycle(ticket: Ticket) -> list[str]:
    """Names of the models of the circle that a queued request closes, its own model last."""
    names = [ticket.model.name]
    for execution in _ancestors(ticket):
        names.append(execution.model.name)  # type: ignore[union-attr]
        if execution.model is ticket.model:
            return names[::-1]
    # Two callers that hold what the other needs: follow the holders around instead.
    names = [ticket.parent.model.name] if ticket.parent and ticket.parent.model else []
    node: _Node = ticket
    seen: set[int] = set()
    while id(node) not in seen:
        seen.add(id(node))
        if _is_waiting(node):
            names.append(node.model.name)
        needed = [n for n in _needs(node)[1] if is_stuck(n, _needs)]
        if not needed:
            break
        node = needed[0]
    return names


def _refuse(ticket: Ticket) -> None:
    """Answer a queued request that can never be served."""
    model = ticket.model
    count = len(model.instances)
    circle = " -> ".join(ticket.circle)
    held = "its only instance is" if count == 1 else f"all {count} of its instances are"
    remedy = f"instance_group.count = {count + 1} or more for '{model.name}' breaks this circle."
    if ticket.bound is not None:
        held = f"the instance that serves its sequence, '{ticket.bound[0].name}', is"
        remedy = "A sequence of its own, on another instance, breaks this circle."
    message = running(
        model.name,
        f"circular BLS: {circle}. The request to '{model.name}' can never be served, because {held} held by "
        f"requests that wait for it (the real server would wait forever). {remedy}",
    )
    if model.scheduler.withdraw(ticket) or ticket.execution is None:
        ticket.cancelled = True  # one that was handed over but not begun is skipped then
        ticket.finish(error_response(message))


def _looks_circular(ticket: Ticket) -> bool:
    """Whether a wait that lasts deserves a word: nobody can tell whether it will end."""
    if not ticket.queued or ticket.expires or any(i.holder is None for i in _candidates(ticket)):
        return False
    if ticket.parent is None or ticket.parent.bare:
        return True
    ancestors = _ancestors(ticket)
    return all(i.holder in ancestors for i in _candidates(ticket))


def describe_wait(ticket: Ticket) -> str:
    """Return one line on a queued request: what it waits for, who holds it, and since when."""
    holders = []
    for instance in _candidates(ticket):
        holder = instance.holder
        name = getattr(getattr(holder, "model", None), "name", "?")
        started = getattr(holder, "started", 0)
        since = f" for {(time.perf_counter_ns() - started) / 1e9:.1f} s" if started else ""
        parent = getattr(getattr(holder, "parent", None), "model", None)
        caller = f" called by '{parent.name}'" if parent is not None else ""
        holders.append(f"{instance.name} is held by a request to '{name}'{caller}{since}")
    sender = ticket.parent.model.name if ticket.parent and ticket.parent.model else None
    who = f" from '{sender}'" if sender else ""
    return (
        f"A request{who} to '{ticket.model.name}' (thread "
        f"{threading.current_thread().name!r}) is still waiting: "
        f"{'; '.join(holders)}. If one of these waits for this thread, neither will ever end; interrupt "
        "(Ctrl-C) to get out. Threads that carry the BLS context (asyncio.to_thread) are checked exactly."
    )
