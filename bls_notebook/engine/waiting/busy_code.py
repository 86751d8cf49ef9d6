"""The line of running model code: the one that Ctrl-C interrupts, and a report of code that continues after it.

Guarantees: the line is read before the code is interrupted, so that it is the one that the user stopped. Code that
continues is reported once. All this costs nothing before Ctrl-C.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from time import perf_counter_ns
from types import FrameType
from typing import Any
from weakref import ref

from bls_notebook.backends.processes.backend import ModelProcess, ProcessInstance
from bls_notebook.engine.exception_text import frame_at, frame_in_process, home_of
from bls_notebook.records.errors import FrameRecord
from bls_notebook.records.remedy_words import remedy

from .clock import Clock, system_clock
from .parker import acting_for, blocked
from .stack_frames import frame_of, stack_of, variables_of
from .worker_threads import start_in_thread

REPORT_AFTER = 1.0
AT_ONCE = "To serve at once, run the model's cell again or reload it ({reload})."

log = logging.getLogger("bls_notebook")
clock: Clock = system_clock


def line_of(execution: Any) -> FrameRecord | None:
    """Return the line at which an execution's own code is, or None if its stack does not show it."""
    return _line(frames_of_task(execution.task) if is_suspended(execution) else stack_of(execution.thread))


def _line(frames: list[FrameType]) -> FrameRecord | None:
    lines = (frame_at(frame.f_code, frame.f_lineno or 0, home_of(frame.f_globals)) for frame in frames)
    return next(filter(None, lines), None) or next(filter(None, map(_line_in_process, frames)), None)


def _line_in_process(frame: FrameType) -> FrameRecord | None:
    """Return the line of a process that a frame waits for."""
    if frame.f_code is ModelProcess.run.__code__:
        place = variables_of(frame)["self"].place()
    elif frame.f_code is ProcessInstance._execute_async.__code__:
        place = variables_of(frame)["self"].process.place()
    else:
        return None
    return None if place is None else frame_in_process(*place)


def is_suspended(execution: Any) -> bool:
    """Return whether an async execution awaits."""
    task = execution.task
    return task is not None and asyncio.current_task(task.get_loop()) is not task


def frames_of_task(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames of a suspended task, innermost first."""
    frames: list[FrameType] = []
    awaited: Any = task.get_coro()
    while (frame := frame_of(awaited)) is not None:
        frames.insert(0, frame)
        awaited = getattr(awaited, "cr_await", None)
    return frames


def running_line(ticket: Any) -> FrameRecord:
    """Return the line of the code that a request waits for, its own model's or a callee's; line 0 if none is known."""
    execution = ticket.execution
    if execution is None:  # in a queue
        return FrameRecord(ticket.model.name)
    return line_below(execution) or line_of(execution) or FrameRecord(execution.model_name)


def line_below(execution: Any) -> FrameRecord | None:
    """Return the line of the code that an execution waits for; None if it does not wait for another model."""
    waits = execution.combined or execution.thread in blocked or is_suspended(execution)
    if not waits and execution.model is not None:
        return None
    lines = [running_line(child) for child in list(execution.children)]
    return next((line for line in lines if line.line), None)


def line_behind(thread: int) -> FrameRecord | None:
    """Return the line of the code that a thread waits for: of a request, or of a step of an operation."""
    waiting: Any = blocked.get(thread)
    if hasattr(waiting, "execution"):
        return running_line(waiting)
    others = [other for other, requester in list(acting_for.items()) if requester == thread]
    return next(filter(None, (line_behind(other) or _line(stack_of(other)) for other in others)), None)


def name_line(error: BaseException, line: FrameRecord | None) -> None:
    """Let a KeyboardInterrupt name the line that it interrupted: in its traceback, and as `interrupted_line`."""
    if line is None or not isinstance(error, KeyboardInterrupt) or interrupted_line(error) is not None:
        return
    error.interrupted_line = line  # type: ignore[attr-defined]
    text = f"interrupted in {place(line)}"
    if sys.version_info >= (3, 11):
        error.add_note(text)
    else:
        error.args = (text,)


def interrupted_line(error: BaseException) -> FrameRecord | None:
    """Return the line of a model at which Ctrl-C ended a wait."""
    return getattr(error, "interrupted_line", None)


def place(line: FrameRecord, code: bool = True) -> str:
    """Return a line in words: model, file, line and, with `code`, its text."""
    if not line.line:
        return f"model '{line.model}'"
    text = next((text.strip() for number, text in line.source if code and number == line.line), "")
    return f"model '{line.model}', {line.file}, line {line.line}" + (f": {text}" if text else "")


def report_if_busy(work: Any, step: str = "") -> None:
    """Report an interrupted execution, or the named step of a home, if it still runs after `REPORT_AFTER`."""
    report = partial(_report, ref(work), step)
    # In another thread, because an alarm must be short, and a handler of the log may not be.
    clock.call_at(clock.now() + int(REPORT_AFTER * 1e9), partial(start_in_thread, report))


def _report(reference: ref[Any], step: str) -> None:
    work = reference()
    if work is None or work.finished or not work.thread:
        return
    if step:
        line = _line(stack_of(work.thread))
        if line is not None:
            log.warning("%s of %s continues after an interrupt, in a thread of its own.", step, place(line))
    elif not work.inferred and work.server.find_key(work.model.name) is work.model:  # else a new version serves already
        log.warning("%s. It serves again when that code ends. %s", busy(work), remedy(AT_ONCE, name=work.model.name))


def busy(execution: Any) -> str:
    """Return the code that a cancelled execution still runs, and for how long."""
    seconds = (perf_counter_ns() - execution.started) / 1e9
    line = line_of(execution) or FrameRecord(execution.model_name)
    return f"{execution.instance_name} still runs a cancelled request, for {seconds:.1f} s, in {place(line)}"
