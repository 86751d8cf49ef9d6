"""Who waits for what, right now, and what is done about a wait that can never end.

Guarantees: a thread registers its wait before it sleeps, under one lock, and the wait graph is only
read under that lock, so the check sees no half-made wait: a request that only waits for its own
waiting ancestors gets an error at once, and no other request does. What cannot be seen (a lock, a
bare thread, a timer that may cancel) counts as able to move. A wait that lasts and that looks circular,
but cannot be proven so, is reported while it lasts. Ctrl-C ends any wait.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .failures import error_response
from .messages import running
from .parking import Parker
from .ticket import Ticket
from .wait_view import Node, blocked, candidates, needs, needs_at_most, walked
from .waits import LIVE, is_stuck

if TYPE_CHECKING:
    from bls_notebook.pb_utils.response import InferenceResponse

    from .execution import Execution

__all__ = ["describe_wait", "first_response", "look_at", "loop_goes_idle", "wait_for"]

REPORT_AFTER = 1.0

log = logging.getLogger("bls_notebook")
_lock = threading.Lock()


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
        outer = blocked.get(thread)
        blocked[thread] = ticket
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
                blocked.pop(thread, None)
            else:
                blocked[thread] = outer


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
            waiting.extend(blocked.values())
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
    for instance in candidates(ticket):
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
        and execution.thread not in blocked
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
    if not is_stuck(ticket, needs_at_most):
        return None
    walked.clear()
    if not is_stuck(ticket, needs):
        return None
    seen: set[int] = set()
    todo: list[Node] = [ticket]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if _is_waiting(node):
            node.circle = _cycle(node)
            node.refused = True  # from here on it can move, and so can who waits for it
            return node  # type: ignore[no-any-return]
        mode, needed = needs(node)
        if mode != LIVE:
            todo.extend(n for n in needed if is_stuck(n, needs))
    return None


def _is_waiting(node: Node) -> bool:
    """Whether a node is a request that no instance has begun."""
    return isinstance(node, Ticket) and (node.queued or node.execution is None)


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
    node: Node = ticket
    seen: set[int] = set()
    while id(node) not in seen:
        seen.add(id(node))
        if _is_waiting(node):
            names.append(node.model.name)
        needed = [n for n in needs(node)[1] if is_stuck(n, needs)]
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
    if not ticket.queued or ticket.expires or any(i.holder is None for i in candidates(ticket)):
        return False
    if ticket.parent is None or ticket.parent.bare:
        return True
    ancestors = _ancestors(ticket)
    return all(i.holder in ancestors for i in candidates(ticket))


def describe_wait(ticket: Ticket) -> str:
    """Return one line on a queued request: what it waits for, who holds it, and since when."""
    holders = []
    for instance in candidates(ticket):
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
