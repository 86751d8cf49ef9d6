"""Debuggers in cells of models: stepping from the notebook into a model skips the engine's frames.

Frames of this package, NumPy and asyncio are neither stepped through nor shown. While JupyterLab's
debugger is on, a cell whose magic follows empty lines runs too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy

import bls_notebook

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
