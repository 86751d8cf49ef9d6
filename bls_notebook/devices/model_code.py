"""Which model instance's code runs on this thread, for whoever patches a library for models only.

`enter` marks the boundary between a model's code and any other. `install` registers a switch that is called
at each boundary: simulated GPUs turn PyTorch's CUDA on for models and off for all other code.

Guarantees: a thread that leaves a model's code has the library as it was before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Process:
    """The GPU state of one instance that would be its process's on Triton."""

    def __init__(self) -> None:
        self.default_device: Any = None  # what `torch.set_default_device` was given; None for the CPU


class _Here(threading.local):
    process: Process | None = None
    is_on = False


_here = _Here()
# Each returns the block of GPU memory that a tensor of a patched library is in, None for any other object.
foreign_blocks: list[Callable[[Any], Any]] = []
_switch: Callable[[bool], None] | None = None


def here() -> Process | None:
    """Return whose code runs on this thread; None for code of no model."""
    return _here.process


def enter(process: Process | None) -> Process | None:
    """Say whose code runs on this thread from now on; return whose did before."""
    before = _here.process
    _here.process = process
    if _switch is not None and (process is not None) is not _here.is_on:
        _here.is_on = process is not None
        _switch(_here.is_on)
    return before


def install(switch: Callable[[bool], None]) -> None:
    """Call `switch` with whether a model's code runs, at each boundary of any thread; here at once."""
    global _switch
    _switch = switch
    enter(_here.process)


def carried(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that another thread runs for whoever runs here; the same one for no model."""
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
