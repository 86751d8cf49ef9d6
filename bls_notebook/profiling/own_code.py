"""Stacks of own code: of a model, a notebook or a script, without libraries.

A stack is a flat list of code objects, each with the offset of its instruction, innermost first. It keeps no frame
alive. For frames of another thread, use these functions only under `no_collection`. A worker runs this module, too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

_DEEP = 200  # frames to search
_BETWEEN = 12  # frames of libraries between own code, as of a decorator or a thread pool
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_PACKAGE = (str(Path(__file__).resolve().parents[1]) + os.sep, "<bls_notebook>/")  # in the kernel, and in a worker
_STANDARD = str(Path(os.__file__).parent) + os.sep
_WAITS = ("threading.py", "selectors.py", "socket.py", "ssl.py", "queue.py", "subprocess.py")
OWN, LIBRARY, WAIT, PACKAGE = range(4)
_kinds: dict[str, int] = {}  # by file


def kind_of(frame: FrameType) -> int:
    """Return the kind of code that a frame runs; WAIT is a module of the standard library that waits."""
    file = frame.f_code.co_filename
    kind = _kinds.get(file)
    if kind is None:
        kind = _kinds[file] = _kind(file)
    return kind


def _kind(file: str) -> int:
    if file.startswith(_PACKAGE):
        return PACKAGE
    if file.startswith(_STANDARD) and file[len(_STANDARD) :] in _WAITS:
        return WAIT
    return LIBRARY if file.startswith((_STANDARD, "<frozen")) or _INSTALLED in file else OWN


def own_stack(frame: FrameType | None) -> list[Any]:
    """Return the own code of a frame and its callers, up to the code of this package that called it."""
    stack: list[Any] = []
    last = _DEEP
    for left in range(_DEEP, 0, -1):
        if frame is None or (stack and last - left > _BETWEEN):
            break
        kind = kind_of(frame)
        if kind == OWN:
            stack += (frame.f_code, frame.f_lasti)
            last = left
        elif kind == PACKAGE and stack:
            break
        frame = frame.f_back
    return stack


def awaiting_stack(task: asyncio.Task[Any]) -> list[Any]:
    """Return the own code in which a task awaits; empty while the task runs."""
    stack: list[Any] = []
    if getattr(task.get_coro(), "cr_running", False):
        return stack
    for frame in _awaiting(task.get_coro()):
        if kind_of(frame) == OWN:
            stack[:0] = frame.f_code, frame.f_lasti
    return stack


def _awaiting(coroutine: object) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of the coroutines that it awaits, outermost first."""
    for _ in range(_DEEP):
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            return
        yield frame
        coroutine = getattr(coroutine, "cr_await", None)


def awaited_tasks(task: asyncio.Task[Any]) -> Iterator[tuple[asyncio.Task[Any], ...]]:
    """Yield the paths from a task to the innermost tasks that it awaits, through `gather`; at least itself."""
    todo: list[tuple[asyncio.Task[Any], ...]] = [(task,)]
    seen: set[asyncio.Task[Any]] = set()
    while todo:
        path = todo.pop()
        if path[-1] in seen:
            continue
        seen.add(path[-1])
        awaited = getattr(path[-1], "_fut_waiter", None)
        futures = getattr(awaited, "_children", None) or [awaited]  # of asyncio.gather
        inner = [f for f in islice(futures, _DEEP) if isinstance(f, asyncio.Task) and not f.done()]
        todo += [(*path, each) for each in inner]
        if not inner:
            yield path
