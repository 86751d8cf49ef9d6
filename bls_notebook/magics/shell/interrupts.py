"""An interrupt of a cell that waits for a model: at once, and told in one line."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from bls_notebook.engine.exception_text import home_of, internal_paths, label_of
from bls_notebook.engine.waiting.ctrl_c import awaited, resume_debugged_threads
from bls_notebook.magics.notebook import Notebook

if TYPE_CHECKING:
    from bls_notebook.display import Display

INTERRUPTS = (KeyboardInterrupt, asyncio.CancelledError)  # the second where a cell awaits


def hear_interrupts(notebook: Notebook) -> Callable[[], None]:
    """Have a cell that awaits end when it is interrupted, and not when the kernel's loop wakes up next.

    What is returned undoes that.
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

        def handle(number: int, frame: FrameType | None) -> None:
            awaited.set()
            resume_debugged_threads()  # the loop too, which a debugger may hold
            if callable(before):
                before(number, frame)
            loop.call_soon_threadsafe(awaited.is_set)  # wakes it up

        signal.signal(signal.SIGINT, handle)  # the kernel sets its own again after the cell

    def take_back() -> None:
        if before_cell in events.callbacks["pre_run_cell"]:
            events.unregister("pre_run_cell", before_cell)

    if notebook.has_kernel:
        events.register("pre_run_cell", before_cell)
    return take_back


def told_in_one_line(notebook: Notebook, error: BaseException, tb: TracebackType | None) -> Display | None:
    """Return what is shown of an interrupt that struck this package or a model; None for any other."""
    from bls_notebook.records.repository import MessageRecord  # first needed here

    if not isinstance(error, KeyboardInterrupt) and not awaited.is_set():
        return None
    ours, where = False, ""
    while tb is not None:
        code, variables = tb.tb_frame.f_code, tb.tb_frame.f_globals
        if variables is notebook.shell.user_global_ns:
            ours = False
        elif code.co_filename.startswith(internal_paths):
            ours = True
        elif home_of(variables) is not None:
            where = f" in {label_of(code.co_filename)}, line {tb.tb_lineno}"
        tb = tb.tb_next
    if not ours:
        return None
    return notebook.draw(MessageRecord(f"interrupted{where}; what was under way was cancelled", "warning"))
