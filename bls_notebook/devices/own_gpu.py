"""`OwnGPU`: what a model's instance has of the GPUs, as if it were in a process of its own.

On Triton each instance starts with the first GPU as its current one, and keeps what it makes current. Here
instances share threads, so this is put in place when a model's code is entered, and taken away when it is
left; with it PyTorch's view of simulated GPUs. Where nothing has to be put in place, because there is one
GPU of CUDA or none, `execute` stays the model's own function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from . import model_code
from .registry import gpu_count, gpus, simulated_gpus


class OwnGPU(model_code.Process):
    """Of one instance; it is for the GPUs that there are when it is made."""

    def __init__(self) -> None:
        super().__init__()
        self._index = 0
        self._needed = gpu_count() > 1 or simulated_gpus() > 0

    def current(self) -> AbstractContextManager[None]:
        """Make it the thread's current one; what the model makes current is remembered."""
        return self._current() if self._needed else nullcontext()

    @contextmanager
    def _current(self) -> Iterator[None]:
        there = gpus()
        if there is None or self._index >= there.count:  # simulated ones were taken away
            yield
            return
        before, inside = there.current(), model_code.here()
        there.set_current(self._index)
        try:
            if there.simulated:
                model_code.enter(self)
            yield
        finally:
            if there.simulated:
                model_code.enter(inside)
            self._index = there.current()
            there.set_current(before)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that works on the instance's GPU."""
        if not self._needed:
            return function

        def call(*args: Any) -> Any:
            with self._current():
                return function(*args)

        return call

    def into(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """As `around`, of a coroutine function: the thread of its loop is the instance's own and stays so."""
        if not self._needed:
            return function

        def start(*args: Any) -> Any:
            there = gpus()
            if there is not None and self._index < there.count:
                there.set_current(self._index)
            model_code.enter(self if there is not None and there.simulated else None)
            return function(*args)

        return start
