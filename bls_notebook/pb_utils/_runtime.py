"""The one way from `pb_utils` up to the engine: a context variable that the engine sets.

Guarantees: `current_caller()` never blocks and needs no lock. A context variable follows tasks and
`asyncio.to_thread`; a bare thread carries none, so there the registered finders look for the model
whose code is on the stack, or who started the thread.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import Any, Protocol

from .errors import TritonModelException

NO_CALLER = (
    "BLS is only supported during the 'execute' function. "
    "Outside a model, use ModelRepository.infer, ModelRepository.run(function), or %%bls in a notebook."
)


class Caller(Protocol):
    """What executes model code, and sends its BLS requests."""

    server: Any  # the engine's; loads models and makes metrics for them

    @property
    def instance_name(self) -> str:
        """Name of the instance that runs."""

    @property
    def directory(self) -> str:
        """Folder of the running model's version."""

    def exec(self, request: Any, decoupled: bool, given: bool) -> Any:
        """Serve a request and wait; `given`: nobody else holds it."""

    def async_exec(self, request: Any, decoupled: bool, given: bool) -> asyncio.Future[Any]:
        """Serve a request in the background."""

    def bare_caller(self) -> Caller:
        """Return who sends requests of the same model from a thread that carries no context."""

    def log(self, level: str, message: str, file: str, line: int) -> None:
        """Write to the server's log."""

    def model_directory(self) -> str:
        """Folder of the version of the model that is running."""


# Put back by `set`, never by `reset`: until Python 3.12 a collection of garbage that happens while a variable
# leaves its context, and a destructor in it that reads the variable, leave a dangling pointer behind.
caller_var: ContextVar[Caller | None] = ContextVar("bls_caller", default=None)
finders: list[Callable[[FrameType | None], Caller | None]] = []
# Makes the metric families of code that no repository runs: a model that a test calls directly.
loose_family: Callable[[str, str, str], Any]


def find_caller(frame: FrameType | None) -> Caller | None:
    """Return the model that code runs for, if any, by its innermost frame: for threads without context."""
    for finder in finders:
        found = finder(frame)
        if found is not None:
            return found
    return None


def current_caller(maker: Caller | None = None) -> Caller:
    """Return the caller, or raise TritonModelException if no model runs here.

    `maker` made the request that is sent: in a bare thread, it is sent on behalf of the same model.
    """
    caller = caller_var.get() or find_caller(sys._getframe(1))
    if caller is not None:
        return caller
    if maker is not None:
        return maker.bare_caller()
    raise TritonModelException(NO_CALLER)
