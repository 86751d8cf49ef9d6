"""``%blsreplay --debug``: run the `execute` of a recorded request again, and stop in a debugger."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

import bls_notebook as bls
from bls_notebook.magics import Notebook

_KEYS = "; n: next line, s: step into a call, p VALUE: print, c: continue, q: quit"

_Result = TypeVar("_Result")
_SKIPPED = ["bls_notebook.*", "asyncio.*", "concurrent.*", "contextlib", "numpy.*"]  # modules that stepping skips


def debug_request(notebook: Notebook, file: str, at: int, model: str | None = None, only: str | None = None) -> object:
    """Run the `execute` of a recorded request again, in the debugger."""
    __tracebackhide__ = True
    from .recording import load_recording
    from .replaying import recorded_execution

    recording = load_recording(file)
    receiver = recording.request(at).model
    if only not in (None, receiver):
        raise bls.BLSError(f"--debug {at} is a request to {receiver!r}, but --only is {only!r}; use the same model")
    execution = recorded_execution(recording, at, model, only is not None)
    inputs = ", ".join(f"{t.name} {t.datatype}{list(t.shape)} {t.preview}" for t in recording.request(at).kept.inputs)
    notebook.say(
        f"request {at} to {execution.model}: {inputs}", "info",
        hint="the variable `requests` has it" + _KEYS * (not _has_frontend(notebook)),
    )  # fmt: skip
    responses = _stopped_in(notebook, execution.code, execution.run)
    return responses[0] if len(responses) == 1 else responses


def _has_frontend(notebook: Notebook) -> bool:
    kernel: Any = getattr(notebook.shell, "kernel", None)
    return bool(getattr(getattr(kernel, "debugger", None), "is_started", False))


def _stopped_in(notebook: Notebook, code: CodeType, run: Callable[[], _Result]) -> _Result:
    """Call `run`, and open the debugger when it first enters the function with this `code`.

    If JupyterLab's debugger is on, execution stops there as at a breakpoint.
    """
    __tracebackhide__ = True
    if _has_frontend(notebook):
        return _traced(code, run, _stop_in_frontend)
    kernel: Any = getattr(notebook.shell, "kernel", None)
    is_kernels = builtins.input == getattr(kernel, "raw_input", None)  # a script may answer the prompts
    if kernel is not None and is_kernels and not getattr(kernel, "_allow_stdin", True):
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
