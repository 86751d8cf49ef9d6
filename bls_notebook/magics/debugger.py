"""Debuggers in cells of models: step from the notebook into a model, and stop where a function of a model
begins.

Frames of this package, NumPy and asyncio are neither stepped through nor shown. While the frontend's
debugger is on, a cell whose magic is below empty lines runs too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

import numpy

import bls_notebook
import bls_notebook as bls

from .notebook import Notebook

# With what this package calls on the way; a thread that is held in asyncio could not be interrupted, either.
_FOLDERS = [os.path.dirname(str(package.__file__)) for package in (bls_notebook, numpy, asyncio)]
_BETWEEN = tuple(map(os.path.normcase, [*_FOLDERS, "<%bls"]))


def help_debugger(notebook: Notebook) -> Callable[[], None]:
    """Have the debugger pass over this package, and find cell magics below empty lines; return what undoes
    it.
    """
    shell: Any = notebook.shell
    debugger = getattr(getattr(shell, "kernel", None), "debugger", None)
    transforms: list[Any] = shell.input_transformer_manager.cleanup_transforms

    def before_cell(info: Any = None) -> None:
        if getattr(debugger, "is_started", False):
            _pass_over()
            _trace_again()

    transforms.insert(0, _from_magic_on)
    shell.events.register("pre_run_cell", before_cell)

    def take_back() -> None:
        for added, one in ((transforms, _from_magic_on), (shell.events.callbacks["pre_run_cell"], before_cell)):
            if one in added:
                added.remove(one)

    return take_back


def _from_magic_on(lines: list[str]) -> list[str]:
    """Drop the empty lines above a cell magic; ipykernel keeps them while it debugs, and finds none then."""
    first = next((n for n, line in enumerate(lines) if line.strip()), 0)
    return lines[first:] if lines and lines[first].startswith("%%") else lines


def _pass_over() -> None:
    """Have pydevd, debugpy's heart, neither trace nor show what lies between; the second time, nothing."""
    pydevd: Any = sys.modules.get("pydevd")
    api: Any = sys.modules.get("_pydevd_bundle.pydevd_api")
    try:
        running = pydevd.get_global_debugger()
        passed = getattr(running.dont_trace_external_files, "start_patterns", ())
        ends = getattr(running.dont_trace_external_files, "end_patterns", ())
        if not set(_BETWEEN) <= set(passed):
            api.PyDevdAPI().set_dont_trace_start_end_patterns(running, (*passed, *_BETWEEN), ends)
    except AttributeError:  # there is none, or it is another: stepping is longer
        pass


def _trace_again() -> None:
    """Have pydevd trace this thread again where, before Python 3.12, an interrupt in it freed that."""
    debugpy: Any = sys.modules.get("debugpy")
    if sys.version_info < (3, 12) and sys.gettrace() is None and hasattr(debugpy, "trace_this_thread"):
        debugpy.trace_this_thread(True)


_Result = TypeVar("_Result")
_SKIPPED = ["bls_notebook.*", "asyncio.*", "concurrent.*", "contextlib", "numpy.*"]  # no place to step to


def has_frontend(notebook: Notebook) -> bool:
    """Whether the frontend's own debugger is on."""
    kernel: Any = getattr(notebook.shell, "kernel", None)
    return bool(getattr(getattr(kernel, "debugger", None), "is_started", False))


def stopped_in(notebook: Notebook, code: CodeType, run: Callable[[], _Result]) -> _Result:
    """Call `run`, and open the debugger where that enters a function, by its `code`, for the first time.

    Where the frontend's own debugger is on, it stops there as at a breakpoint; else it is that of ``%debug``.
    """
    __tracebackhide__ = True
    if has_frontend(notebook):
        return _traced(code, run, _stop_in_frontend)
    kernel: Any = getattr(notebook.shell, "kernel", None)
    if kernel is not None and not getattr(kernel, "_allow_stdin", True):
        raise bls.BLSError("no debugger can open: whoever runs this notebook cannot be asked anything")
    debugger: Any = notebook.shell.InteractiveTB.debugger_cls(skip=_SKIPPED)
    stops = debugger.stop_here

    def stop_here(frame: FrameType) -> bool:  # each of those frames would be told of: hundreds at an await
        return not debugger.is_skipped_module(str(frame.f_globals.get("__name__"))) and stops(frame)

    debugger.stop_here = stop_here
    debugger.report_skipped = False

    def stop(frame: FrameType) -> Any:
        debugger.set_trace(frame)
        return debugger.trace_dispatch

    return _traced(code, run, stop)


def _traced(code: CodeType, run: Callable[[], _Result], stop: Callable[[FrameType], Any]) -> _Result:
    __tracebackhide__ = True  # what is between the cell and the model is no part of the stack
    before = sys.gettrace()
    came = False

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal came
        if came or event != "call" or frame.f_code is not code:
            return None
        came = True
        sys.settrace(before)
        return stop(frame)  # who is told of the lines from here on

    sys.settrace(entered)
    try:
        return run()
    finally:
        sys.settrace(before)


def _stop_in_frontend(frame: FrameType) -> Any:
    """Have pydevd, debugpy's heart, stop at the next line of a frame."""
    pydevd: Any = sys.modules["pydevd"]
    pydevd.settrace(suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame)
    return frame.f_trace
