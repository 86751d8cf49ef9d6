"""JupyterLab's debugger in cells of models: stepping from the notebook into a model skips the engine's frames.

The debugger neither steps through nor shows frames of this package, NumPy and asyncio. While it is on, cell magics
below empty lines still work. The debugger of ``%debug`` names a model's cell as its errors do.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy

import bls_notebook
from bls_notebook.engine import debugged_steps
from bls_notebook.engine.exception_text import label_of

from .notebook import Notebook

# NumPy and asyncio too, because this package calls them; Ctrl-C cannot end a thread that is paused in asyncio.
_FOLDERS = [os.path.dirname(str(package.__file__)) for package in (bls_notebook, numpy, asyncio)]
_BETWEEN = tuple(map(os.path.normcase, [*_FOLDERS, "<%bls"]))


def help_debugger(notebook: Notebook) -> Callable[[], None]:
    """Make the debugger skip this package, and find cell magics below empty lines; return a function to undo it."""
    shell: Any = notebook.shell
    debugger = getattr(getattr(shell, "kernel", None), "debugger", None)
    transforms: list[Any] = shell.input_transformer_manager.cleanup_transforms

    def before_cell(info: Any = None) -> None:
        if getattr(debugger, "is_started", False):
            debugged_steps.attached = True
            _skip_internal_frames()
            _trace_again()

    transforms.insert(0, _from_magic_on)
    shell.events.register("pre_run_cell", before_cell)
    tracebacks = shell.InteractiveTB
    before, tracebacks.pdb = tracebacks.debugger_cls, None
    tracebacks.debugger_cls = with_cells = _with_cells(before)

    def remove() -> None:
        for callbacks, own in ((transforms, _from_magic_on), (shell.events.callbacks["pre_run_cell"], before_cell)):
            if own in callbacks:
                callbacks.remove(own)
        if tracebacks.debugger_cls is with_cells:
            tracebacks.debugger_cls, tracebacks.pdb = before, None

    return remove


def _with_cells(debugger: type) -> type:
    """Return a class of debuggers that shows ``Cell In[3]`` instead of the file of the cell."""

    class WithCells(debugger):  # type: ignore[misc]
        def format_stack_entry(self, frame_lineno: Any, *arguments: Any, **options: Any) -> str:
            entry: str = super().format_stack_entry(frame_lineno, *arguments, **options)
            file = frame_lineno[0].f_code.co_filename
            return entry.replace(self.canonic(file), label_of(file), 1)

    return WithCells


def _from_magic_on(lines: list[str]) -> list[str]:
    """Drop the empty lines above a cell magic: ipykernel keeps them while it debugs, and then misses the magic."""
    first = next((n for n, line in enumerate(lines) if line.strip()), 0)
    return lines[first:] if lines and lines[first].startswith("%%") else lines


def _skip_internal_frames() -> None:
    """Add this package's folders to the files that pydevd (the engine of debugpy) neither traces nor shows."""
    pydevd: Any = sys.modules.get("pydevd")
    api: Any = sys.modules.get("_pydevd_bundle.pydevd_api")
    try:
        running = pydevd.get_global_debugger()
        skipped = getattr(running.dont_trace_external_files, "start_patterns", ())
        ends = getattr(running.dont_trace_external_files, "end_patterns", ())
        if not set(_BETWEEN) <= set(skipped):
            api.PyDevdAPI().set_dont_trace_start_end_patterns(running, (*skipped, *_BETWEEN), ends)
    except AttributeError:  # no debugger, or another version: stepping then passes through the engine
        pass


def _trace_again() -> None:
    """Make pydevd trace this thread again: before Python 3.12, an interrupt in pydevd removed the trace function."""
    debugpy: Any = sys.modules.get("debugpy")
    if sys.version_info < (3, 12) and sys.gettrace() is None and hasattr(debugpy, "trace_this_thread"):
        debugpy.trace_this_thread(True)
