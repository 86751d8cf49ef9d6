"""Whose code runs on this thread while GPUs are simulated, as far as PyTorch has to know it.

A model's code sees PyTorch's CUDA on the simulated GPUs, all other code sees PyTorch as it is. Entering and
leaving a model's code is what `enter` does, also where PyTorch is not imported yet: the switch is put in
place when it is (`torch.importing`), and until then this costs two steps.

Guarantees: a thread that leaves has PyTorch as it was before, whatever the model has put on top.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Process:
    """What a model's instance has of the GPUs that would be its process's on Triton."""

    def __init__(self) -> None:
        self.default_device: Any = None  # what `torch.set_default_device` was given; None for the CPU


class _Here(threading.local):
    process: Process | None = None
    is_on = False


_here = _Here()
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
    """Turn PyTorch's CUDA on and off for a thread by this from now on; on this thread at once."""
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
