"""`OwnGPU`: the GPU state of a model instance, as if the instance were in a process of its own.

On Triton each instance starts with the first GPU as its current one, and keeps what it makes current. Here
instances share threads, so this state is set when a model's code is entered, and taken back when it is left.
`enter` marks that boundary; `install` registers a switch that is called there: simulated GPUs turn PyTorch's
CUDA on for models and off for all other code. With one CUDA GPU or none, `execute` stays the model's own
function.

Guarantees: a thread that leaves a model's code has the library as it was before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from .registry import gpu_count, gpus, simulated_gpus


class _Here(threading.local):
    process: OwnGPU | None = None
    is_on = False


_here = _Here()
# Each returns the block of GPU memory that a tensor of a patched library is in, None for any other object.
foreign_blocks: list[Callable[[Any], Any]] = []
_switch: Callable[[bool], None] | None = None


def here() -> OwnGPU | None:
    """Return the state of the model whose code runs on this thread, or None."""
    return _here.process


def enter(process: OwnGPU | None) -> OwnGPU | None:
    """Set the model whose code runs on this thread from now on; return the one before."""
    before = _here.process
    _here.process = process
    if _switch is not None and (process is not None) is not _here.is_on:
        _here.is_on = process is not None
        _switch(_here.is_on)
    return before


def install(switch: Callable[[bool], None]) -> None:
    """Call `switch` at once, and at each boundary of any thread, with whether a model's code runs."""
    global _switch
    _switch = switch
    enter(_here.process)


def carried(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs on another thread for the model of this thread."""
    process = _here.process
    if process is None:
        return call

    def run(*args: Any, **kwargs: Any) -> Any:
        before = enter(process)
        try:
            return call(*args, **kwargs)
        finally:
            enter(before)

    return run


class OwnGPU:
    """Of one instance; it is for the GPUs that there are when it is made."""

    def __init__(self) -> None:
        self.default_device: Any = None  # what `torch.set_default_device` was given; None for the CPU
        self._index = 0
        self._needed = gpu_count() > 1 or simulated_gpus() > 0

    def current(self) -> AbstractContextManager[None]:
        """Make the instance's GPU the thread's current one; remember what the model makes current."""
        return self._current() if self._needed else nullcontext()

    @contextmanager
    def _current(self) -> Iterator[None]:
        there = gpus()
        if there is None or self._index >= there.count:  # simulated ones were taken away
            yield
            return
        before, inside = there.current(), here()
        there.set_current(self._index)
        try:
            if there.simulated:
                enter(self)
            yield
        finally:
            if there.simulated:
                enter(inside)
            self._index = there.current()
            there.set_current(before)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs on the instance's GPU."""
        if not self._needed:
            return function

        def call(*args: Any) -> Any:
            with self._current():
                return function(*args)

        return call

    def into(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """As `around`, for a coroutine function: the thread of its loop belongs to the instance and stays there."""
        if not self._needed:
            return function

        def start(*args: Any) -> Any:
            there = gpus()
            if there is not None and self._index < there.count:
                there.set_current(self._index)
            enter(self if there is not None and there.simulated else None)
            return function(*args)

        return start
