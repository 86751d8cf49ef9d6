"""`OwnGPU`: simulated GPUs in PyTorch, for the code of models only.

`enter` marks that a thread runs a model's code; `install` registers a function that is called there: it turns
PyTorch's CUDA on for models and off for all other code. Without simulated GPUs, `execute` is not wrapped. The current
GPU is each thread's own, and so each instance's.

Guarantees: when a thread leaves a model's code, the libraries are in the same state as before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from .registry import simulated_gpus


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
    """The simulated GPUs as one instance sees them. It has no effect if there were none when it was made."""

    def __init__(self) -> None:
        self.default_device: Any = None  # argument of the last `torch.set_default_device`; None for the CPU
        self.allocators: dict[int, Any] = {}  # what PyTorch has allocated for the instance, by GPU
        self._needed = simulated_gpus() > 0

    def current(self) -> AbstractContextManager[None]:
        """Mark this thread as running the instance's code."""
        return self._current() if self._needed else nullcontext()

    @contextmanager
    def _current(self) -> Iterator[None]:
        before = self._enter()
        try:
            yield
        finally:
            enter(before)

    def _enter(self) -> OwnGPU | None:
        return enter(self if simulated_gpus() else None)  # they may have been removed

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs as the instance's code."""
        return self._current()(function) if self._needed else function

    def into(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """As `around`, for a coroutine function; its loop's thread belongs to the instance and is not restored."""
        if not self._needed:
            return function

        def start(*args: Any) -> Any:
            self._enter()
            return function(*args)

        return start
