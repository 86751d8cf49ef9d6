"""Errors of models, wrong arguments and Ctrl-C in a cell: one display instead of a Python traceback."""

from __future__ import annotations

import asyncio
import signal
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any

import bls_notebook as bls
from bls_notebook import display as displays
from bls_notebook.backends.protocol import ModelError
from bls_notebook.engine.exception_text import internal_paths, traceback_of
from bls_notebook.engine.waiting.busy_code import interrupted_line, place
from bls_notebook.engine.waiting.interrupts import awaited, resume_debugged_threads
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.messages import MessageRecord
from bls_notebook.records.visible_text import first_line

from .notebook import Notebook

INTERRUPTS = (KeyboardInterrupt, asyncio.CancelledError)  # IPython cancels a cell that awaits


def hear_interrupts(notebook: Notebook) -> Callable[[], None]:
    """Make Ctrl-C end a cell that awaits at once, not only when the kernel's event loop next wakes up.

    Return a function that undoes this.
    """
    events = notebook.shell.events

    def before_cell(info: Any = None) -> None:
        awaited.clear()
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or before is signal.default_int_handler:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        # If Ctrl-C comes while the main thread waits for the GIL before a sleep, Python calls `handle` only after that
        # sleep. The signal itself must wake the loop.
        wakeup = getattr(loop, "_csock", None)
        if wakeup is not None:
            other = signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
            if other != -1:
                signal.set_wakeup_fd(other)

        def handle(number: int, frame: FrameType | None) -> None:
            awaited.set()
            resume_debugged_threads()  # a debugger may have paused the event loop
            if callable(before):
                before(number, frame)
            loop.call_soon_threadsafe(awaited.is_set)  # wakes up the loop

        signal.signal(signal.SIGINT, handle)  # the kernel restores its own handler after the cell

    def remove() -> None:
        if before_cell in events.callbacks["pre_run_cell"]:
            events.unregister("pre_run_cell", before_cell)

    if notebook.has_kernel:
        events.register("pre_run_cell", before_cell)
    return remove


def interrupt_display(notebook: Notebook, error: BaseException, tb: TracebackType | None) -> displays.Display | None:
    """Return the one-line display of an interrupt in this package or a model; None for other interrupts."""
    if not isinstance(error, KeyboardInterrupt) and not awaited.is_set():
        return None
    in_package = False
    while tb is not None:
        code, variables = tb.tb_frame.f_code, tb.tb_frame.f_globals
        if variables is notebook.shell.user_global_ns:
            in_package = False
        elif code.co_filename.startswith(internal_paths):
            in_package = True
        tb = tb.tb_next
    if not in_package:
        return None
    return notebook.draw(MessageRecord(f"interrupted{in_model(error)}; running requests were cancelled", "warning"))


def in_model(error: BaseException) -> str:
    """Return where Ctrl-C struck a model; empty if that is not known."""
    line = interrupted_line(error)
    return "" if line is None else f" in {place(line, code=False)}"


class CellInterrupted(bls.BLSError):
    """Ctrl-C interrupted a magic."""


class FailedRequest(bls.BLSError):
    """A request got an error response, and the setting `raise_errors` makes its cell fail."""


def fail_on(notebook: Notebook, errors: Sequence[str], shown: object) -> None:
    """Raise FailedRequest if there are errors and `raise_errors` is set; `shown` replaces its traceback."""
    if errors and notebook.settings.raise_errors:
        count = f"{len(errors)} requests failed: " if len(errors) > 1 else ""
        error = FailedRequest(count + first_line(errors[0].replace("[request id: <id_unknown>] ", "")))
        _mark(error, notebook.draw(shown))
        raise error


@contextmanager
def reported(notebook: Notebook, model: str = "") -> Iterator[None]:
    """Show errors of the public API as a display instead of a traceback; the cell fails.

    If a `model` is being defined or loaded, the display says whether an older version is in service.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        loading = f" while loading {model!r}" if model else ""
        error = CellInterrupted(f"interrupted{loading}{in_model(interrupt)}")
        _mark(error, notebook.draw(_record_of(error, model)))
        raise error from None
    except bls.BLSError as error:
        if display_of(error) is None:
            _mark(error, notebook.draw(_record_of(error, model)))
            if isinstance(error, bls.ModelLoadError) and error.__cause__ is not None:
                debug_later(notebook, error.__cause__)
        raise


def _mark(error: Any, display: displays.Display) -> None:
    error._display = display
    # For shells in which other code has replaced our exception handler.
    error._render_traceback_ = display.text.splitlines


def display_of(error: BaseException) -> displays.Display | None:
    """Return the display that replaces an error's traceback, or None."""
    return getattr(error, "_display", None)


def _record_of(error: bls.BLSError, model: str) -> ErrorRecord | MessageRecord:
    hint = _still_serving(model) if model else ""
    if isinstance(error, bls.ModelLoadError) and error.record is not None:
        opens = bool(error.__cause__ is not None and error.record.frames)
        apart = isinstance(error.__cause__, ModelError)
        return replace(
            error.record, debug=opens, process=apart, hint="\n".join(filter(None, (str(error.record.hint), hint)))
        )
    return MessageRecord(str(error), "warning" if isinstance(error, CellInterrupted) else "error", hint)


def _still_serving(model: str) -> str:
    try:
        record = bls.current_repository().model(model)
    except bls.BLSError:
        return ""
    return f"correct the cell and run it again; version {record.version} of {model!r} stays in service until then"


def debug_later(notebook: Notebook, error: BaseException) -> None:
    """Make ``%debug`` open in the frame of the model that raised this exception."""
    traceback = traceback_of(error)  # not error.__traceback__, which a model's class may override
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, traceback
    sys.last_exc = error  # type: ignore[attr-defined,unused-ignore]  # new in Python 3.12
    notebook.shell.InteractiveTB.tb = traceback


def _drop_machinery(error: BaseException) -> None:
    """Drop the error's cause if all its frames are in this package, Python's library or installed packages."""
    folders = (*internal_paths, *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
    cause = error.__cause__
    if cause is not None and all(
        frame.f_code.co_filename.startswith(folders) for frame, _ in walk_tb(cause.__traceback__)
    ):
        error.__cause__, error.__suppress_context__ = None, True


def _down_to_the_caller(tb: TracebackType) -> TracebackType:
    """Return a traceback without its last frames if these are in this package."""
    above = list(walk_tb(tb))
    while above and above[-1][0].f_code.co_filename.startswith(internal_paths):
        above.pop()
    shown: TracebackType | None = None
    for frame, line in reversed(above):
        shown = TracebackType(shown, frame, frame.f_lasti, line)
    return shown or tb


def add_handler(notebook: Notebook) -> Callable[[], None]:
    """Install an exception handler in the shell; it passes other exceptions to the handler before it.

    Return a function that restores the earlier handler, unless other code has replaced ours since.
    """
    shell: Any = notebook.shell
    before = (shell.custom_exceptions, shell.CustomTB)

    def handle(
        _shell: Any, kind: type[BaseException], error: Any, tb: TracebackType, tb_offset: int | None = None
    ) -> list[str]:
        display = display_of(error)
        if display is None and isinstance(error, INTERRUPTS):
            display = interrupt_display(notebook, error, tb)
        if display is not None:
            shell._last_traceback = display.text.splitlines()  # a kernel sends it in its reply
            notebook.publish(display)
            if notebook.settings.raise_errors:  # nbconvert and papermill look for an error output
                shell._showtraceback(kind, error, [f"{kind.__name__}: {first_line(str(error))}"])
        elif isinstance(error, before[0]):
            return list(before[1](kind, error, tb, tb_offset=tb_offset))
        else:
            if isinstance(error, bls.BLSError):
                _drop_machinery(error)
                tb = _down_to_the_caller(tb)
            shell.showtraceback((kind, error, tb), tb_offset=tb_offset, running_compiled_code=True)
        return []

    shell.set_custom_exc((bls.BLSError, *INTERRUPTS, *before[0]), handle)
    installed = shell.CustomTB

    def restore() -> None:
        if shell.CustomTB is installed:
            shell.custom_exceptions, shell.CustomTB = before

    return restore
