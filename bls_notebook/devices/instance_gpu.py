"""`OwnGPU`: the current GPU of a model instance, as if each instance were a process.

On Triton, each instance starts with the first GPU as its current one, and its choice of another persists. Here
instances share threads, so this state is set when a thread enters a model's code, and restored when it leaves.
`enter` marks that boundary; `install` registers a function that is called there: simulated GPUs turn PyTorch's
CUDA on for models and off for all other code. With at most one CUDA GPU and no simulated ones, `execute` is not
wrapped.

Guarantees: when a thread leaves a model's code, its current GPU and the libraries are in the same state as before.
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
# Each returns the GPU memory block of a tensor of a patched library, None for any other object.
foreign_blocks: list[Callable[[Any], Any]] = []
_switch: Callable[[bool], None] | None = None


def here() -> OwnGPU | None:
    """Return the state of the model whose code runs on this thread, or None."""
    return _here.process


def enter(process: OwnGPU | None) -> OwnGPU | None:
    """Set the model whose code runs on this thread from now on; return the previous one."""
    before = _here.process
    _here.process = process
    if _switch is not None and (process is not None) is not _here.is_on:
        _here.is_on = process is not None
        _switch(_here.is_on)
    return before


def install(switch: Callable[[bool], None]) -> None:
    """Call `switch(inside_model)` now and whenever a thread enters or leaves a model's code."""
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
    """The GPU state of one instance. It has no effect if there was only one GPU, or none, when it was made."""

    def __init__(self) -> None:
        self.default_device: Any = None  # argument of the last `torch.set_default_device`; None for the CPU
        self._index = 0
        self._needed = gpu_count() > 1 or simulated_gpus() > 0

    def current(self) -> AbstractContextManager[None]:
        """Make the instance's GPU the thread's current one, and afterwards record the model's current GPU."""
        return self._current() if self._needed else nullcontext()

    @contextmanager
    def _current(self) -> Iterator[None]:
        there = gpus()
        if there is None or self._index >= there.count:  # simulated GPUs have been removed
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
        """As `around`, for a coroutine function; its loop's thread belongs to the instance and is not restored."""
        if not self._needed:
            return function

        def start(*args: Any) -> Any:
            there = gpus()
            if there is not None and self._index < there.count:
                there.set_current(self._index)
            enter(self if there is not None and there.simulated else None)
            return function(*args)

        return start
