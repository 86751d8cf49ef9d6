"""*Step in* of pydevd (JupyterLab's, VS Code's and PyCharm's debugger) from a caller into `execute`, and back.

pydevd keeps a step with its thread, and `execute` runs on another thread than its caller. So the step of a sender's
thread is copied to the home before `execute`. After `execute`, the sender continues the step if the user steps on.

Guarantees: without a debugger, this costs the check of `attached`. With a version of pydevd that keeps steps in another
way, *step in* is *step over*.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from .waiting.interrupts import may_be_interrupted

attached = "pydevd" in sys.modules  # a notebook's debugger, which starts later, sets this

# pydevd takes a *step out* of the outermost visible frame for *continue*, so another frame must be visible.
_below: Callable[[Callable[[], Any]], Any] = FunctionType(
    (lambda call: call()).__code__.replace(
        co_filename="<caller>", co_name="caller in another thread", co_firstlineno=1
    ),
    {},
)


def stepping_in(sender: int, call: Callable[[], Any]) -> Any:
    """Return `call()`. If the sender's thread is at a *step in*, this thread continues that step."""
    commands: Any = sys.modules.get("_pydevd_bundle.pydevd_comm_constants")
    debugger: Any = getattr(sys.modules.get("pydevd"), "get_global_debugger", lambda: None)()
    there: Any = getattr(threading._active.get(sender), "additional_info", None)  # type: ignore[attr-defined]
    here: Any = getattr(threading.current_thread(), "additional_info", None)
    step = getattr(there, "pydev_step_cmd", -1) if hasattr(there, "update_stepping_info") else -1
    if None in (commands, debugger, here) or step not in (commands.CMD_STEP_INTO, commands.CMD_STEP_INTO_MY_CODE):
        return call()

    def stepped() -> Any:
        _set(here, step, there.step_in_initial_location)
        debugger.set_trace_for_frame_and_parents(threading.get_ident(), sys._getframe())
        try:
            return call()
        finally:
            if here.pydev_step_cmd != -1:  # else the user has chosen *continue*
                _set(there, step, here.step_in_initial_location)  # it has changed if this thread has stopped
                _set(here, -1, None)

    return _below(stepped)


def _set(info: Any, command: int, started_at: Any) -> None:
    info.pydev_original_step_cmd = info.pydev_step_cmd = command
    info.pydev_step_stop = None
    info.step_in_initial_location = started_at
    info.update_stepping_info()


for _code in (stepping_in.__code__, *stepping_in.__code__.co_consts):  # also of `stepped`
    if isinstance(_code, CodeType):
        may_be_interrupted(_code)
