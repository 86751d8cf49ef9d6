"""Lost response senders: collect garbage while requests wait for their senders.

Only a garbage collection notices a sender lost in a reference cycle, and none starts while every thread waits. So
while a request waits long for its senders, this module collects garbage regularly, at most a twentieth of the time.
A pdb in a model leaves its trace function on the thread, and with it the variables of `execute`: it is removed, too.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from weakref import WeakSet

from .ticket import Ticket
from .waiting.clock import NextAlarm, system_clock
from .waiting.stack_frames import walk_back
from .waiting.worker_threads import start_in_thread

FIRST_AFTER = 1.0
LONGEST_PAUSE = 60.0
SHARE = 20

_lock = threading.Lock()
_left: WeakSet[Ticket] = WeakSet()
_pause = FIRST_AFTER
_took = 0.0


def leave_to_senders(ticket: Ticket) -> None:
    """Register a request whose `execute`, on this thread, returned before its last response was sent."""
    global _pause
    _leave_pdb()
    with _lock:
        _left.add(ticket)
        _pause = FIRST_AFTER
        _set_alarm()


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


def _set_alarm() -> None:
    """Set the alarm for the next collection, unless an earlier one is set. Lock held."""
    _alarm.at_latest(system_clock.now() + int(max(_pause, SHARE * _took) * 1e9))


def _collect() -> None:
    global _pause, _took
    waiting = [ticket.model.server for ticket in list(_left) if not ticket.done]
    if waiting:
        began = time.monotonic()
        for server in waiting:
            server.last_failure = None  # its traceback keeps the variables of every frame alive
        gc.collect()
        _took = time.monotonic() - began
    with _lock:
        _alarm.rung()
        for ticket in [t for t in _left if t.done]:
            _left.discard(ticket)
        if _left:
            _pause = min(2 * _pause, LONGEST_PAUSE)
            _set_alarm()


_alarm = NextAlarm(system_clock, lambda: start_in_thread(_collect))
