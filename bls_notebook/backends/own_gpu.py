"""`OwnGPU`: the current GPU of a model's instance is its own, as in a process of its own.

On Triton each instance starts with the first GPU as its current one, and keeps what it makes current. Here
instances share threads, so the current GPU is put in place when a model is entered. Only where there is more
than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bls_notebook.devices.registry import gpus

__all__ = ["OwnGPU"]


class OwnGPU:
    """The current GPU of one instance."""

    def __init__(self) -> None:
        self._index = 0

    @staticmethod
    def needed() -> bool:
        """Whether there is more than one GPU."""
        found = gpus()
        return found is not None and found.count > 1

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it the thread's current one; what the model makes current is remembered."""
        there = gpus()
        if there is None or self._index >= there.count:  # simulated ones were taken away
            yield
            return
        before = there.current()
        there.set_current(self._index)
        try:
            yield
        finally:
            self._index = there.current()
            there.set_current(before)

    def around(self, execute: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
        """Return an `execute` that works on the instance's GPU."""

        def call(requests: Any) -> Any:
            with self.current():
                return execute(requests)

        def start(requests: Any) -> Any:
            there = gpus()
            if there is not None and self._index < there.count:
                there.set_current(self._index)  # and it stays: the thread is the instance's own
            return execute(requests)

        return start if is_async else call
