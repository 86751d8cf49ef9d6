"""`breakpoint()` in a model's code: stop there, with whatever debugger is at hand.

A kernel loads debugpy, whose hook ignores `breakpoint()` until a frontend attaches its debugger. In a model, pdb's
prompt opens then, as `pdb.set_trace()` would open it.

Guarantees: other code keeps Python's `breakpoint`, because only models' modules have these built-ins. Without debugpy,
models have it too.
"""

from __future__ import annotations

import inspect
import os
import sys
from types import FrameType
from typing import Any


def breakpoint_builtin() -> dict[str, Any]:
    """Return the `breakpoint` to add to the built-ins of a model's modules, by name; empty if Python's own will do."""
    return {"breakpoint": model_breakpoint} if _is_debugpys(sys.breakpointhook) else {}


def model_breakpoint(*args: Any, **kws: Any) -> Any:
    """Stop in the calling frame."""
    hook, frame = sys.breakpointhook, sys._getframe(1)
    if not _is_debugpys(hook):
        return hook(*args, **kws)
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*args, **kws)  # noqa: T100
    if _debugger_is_attached():
        return _stop_for_debugger(frame)
    return _open_prompt(frame, *args, **kws)


def _is_debugpys(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).partition(".")[0] == "debugpy"


def _debugger_is_attached() -> bool:
    attached: Any = getattr(sys.modules.get("debugpy"), "is_client_connected", None)
    return bool(attached is not None and attached())


def _stop_for_debugger(frame: FrameType) -> None:
    """Do what debugpy's hook does, which knows only the frame that calls it."""
    pydevd: Any = sys.modules["pydevd"]
    pydevd.settrace(
        suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame,
        notify_stdin=False,
    )  # fmt: skip


def _open_prompt(frame: FrameType, *args: Any, **kws: Any) -> None:
    import pdb  # noqa: T100 - takes time to import

    set_trace: Any = pdb.set_trace  # a kernel replaces it with IPython's
    if "frame" in inspect.signature(set_trace).parameters:
        set_trace(frame, *args, **kws)
        return
    debugger = pdb.Pdb()
    if kws.get("header") is not None:
        debugger.message(kws["header"])
    debugger.set_trace(frame)
