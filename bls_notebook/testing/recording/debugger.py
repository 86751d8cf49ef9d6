"""Open a debugger at the first line of a function: JupyterLab's if it is on, else the one of ``%debug``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

import bls_notebook as bls
from bls_notebook.magics.notebook import Notebook

_Result = TypeVar("_Result")
_SKIPPED = ["bls_notebook.*", "asyncio.*", "concurrent.*", "contextlib", "numpy.*"]  # modules that stepping skips


def has_frontend(notebook: Notebook) -> bool:
    """Return whether JupyterLab's debugger is on."""
    kernel: Any = getattr(notebook.shell, "kernel", None)
    return bool(getattr(getattr(kernel, "debugger", None), "is_started", False))


def stopped_in(notebook: Notebook, code: CodeType, run: Callable[[], _Result]) -> _Result:
    """Call `run`, and open the debugger when it first enters the function with this `code`.

    If JupyterLab's debugger is on, execution stops there as at a breakpoint.
    """
    __tracebackhide__ = True
    if has_frontend(notebook):
        return _traced(code, run, _stop_in_frontend)
    kernel: Any = getattr(notebook.shell, "kernel", None)
    if kernel is not None and not getattr(kernel, "_allow_stdin", True):
        raise bls.BLSError("no debugger can open: this notebook runs without input (nbconvert, papermill or nbval)")
    debugger: Any = notebook.shell.InteractiveTB.debugger_cls(skip=_SKIPPED)
    stops = debugger.stop_here

    def stop_here(frame: FrameType) -> bool:  # does not report skipped frames: an await has hundreds
        return not debugger.is_skipped_module(str(frame.f_globals.get("__name__"))) and stops(frame)

    debugger.stop_here = stop_here
    debugger.report_skipped = False

    def stop(frame: FrameType) -> Any:
        debugger.set_trace(frame)
        return debugger.trace_dispatch

    return _traced(code, run, stop)


def _traced(code: CodeType, run: Callable[[], _Result], stop: Callable[[FrameType], Any]) -> _Result:
    __tracebackhide__ = True  # hides the frames between the cell and the model
    before = sys.gettrace()
    stopped = False

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal stopped
        if stopped or event != "call" or frame.f_code is not code:
            return None
        stopped = True
        sys.settrace(before)
        return stop(frame)  # the debugger's trace function takes over

    sys.settrace(entered)
    try:
        return run()
    finally:
        sys.settrace(before)


def _stop_in_frontend(frame: FrameType) -> Any:
    """Let pydevd, on which debugpy is built, stop at the next line of a frame."""
    pydevd: Any = sys.modules["pydevd"]
    pydevd.settrace(suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame)
    return frame.f_trace
