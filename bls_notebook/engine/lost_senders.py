"""Lost response senders: collect garbage while requests wait for their senders.

Only a garbage collection notices a sender lost in a reference cycle, and none starts while every thread waits. So
while a request waits long for its senders, this module collects garbage regularly, at most a twentieth of the time.
A pdb in a model leaves its trace function on the thread, and with it the variables of `execute`: it is removed, too.
"""

from __future__ import annotations

import gc
import sys

from .ticket import Ticket
from .waiting.clock import Recheck
from .waiting.stack_frames import walk_back

FIRST_AFTER = 1.0


def leave_to_senders(ticket: Ticket) -> None:
    """Register a request whose `execute`, on this thread, returned before its last response was sent."""
    _leave_pdb()
    _left.add(ticket, FIRST_AFTER)


def _leave_pdb() -> None:
    """Remove what pdb traces on this thread: its breakpoints end with the `execute` that left a request unanswered."""
    bdb = sys.modules.get("bdb")
    if bdb is None:
        return
    if isinstance(getattr(sys.gettrace(), "__self__", None), bdb.Bdb):
        sys.settrace(None)
    for frame in walk_back(sys._getframe()):
        if isinstance(getattr(frame.f_trace, "__self__", None), bdb.Bdb):
            frame.f_trace = None


def _collect() -> None:
    for ticket in _left.watched():
        ticket.model.server.last_failure = None  # its traceback keeps the variables of every frame alive
    gc.collect()


_left = Recheck(_collect)
