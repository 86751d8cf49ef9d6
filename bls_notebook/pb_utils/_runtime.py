"""The link from `pb_utils` to the engine: a context variable that the engine sets to the current caller.

Guarantees: `current_caller()` never blocks and needs no lock. A context variable follows tasks and
`asyncio.to_thread`. A bare thread carries none; there, the registered finders look for the model whose code is on the
stack or started the thread.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from types import FrameType
from typing import Any, Protocol

from .errors import TritonModelException, in_model

NO_CALLER = (
    "BLS is only supported during the 'execute' function. "
    "Outside a model, use ModelRepository.infer, ModelRepository.run(function), or %%bls in a notebook."
)


class Caller(Protocol):
    """An execution of model code, and the sender of its BLS requests."""

    server: Any  # the engine's `Server`, which loads models and makes metrics

    @property
    def instance_name(self) -> str:
        """Name of the running instance."""

    @property
    def directory(self) -> str:
        """Folder of the running model's version."""

    def exec(self, request: Any, decoupled: bool, given: bool) -> Any:
        """Serve a request and wait; `given`: the caller has no other reference to it."""

    def async_exec(self, request: Any, decoupled: bool, given: bool) -> asyncio.Future[Any]:
        """Serve a request in the background."""

    def bare_caller(self) -> Caller:
        """Return the sender for bare threads of the same model."""

    def log(self, level: str, message: str, file: str, line: int) -> None:
        """Write to the server's log."""

    def note_warnings(self, warnings: Iterable[str]) -> None:
        """Add warnings to the responses of this execution."""

    def model_directory(self) -> str:
        """Return the folder of the running model's version; TritonModelException if no model is running."""


# Restore it by `set`, never by `reset`: until Python 3.12, a garbage collection during `reset` may run a destructor
# that reads the variable, which leaves a dangling pointer.
caller_var: ContextVar[Caller | None] = ContextVar("bls_caller", default=None)
in_model[0] = lambda: caller_var.get() is not None
finders: list[Callable[[FrameType | None], Caller | None]] = []
# Makes the metric families of code outside a repository, such as a model that a test calls directly.
loose_family: Callable[[str, str, str], Any]


def find_caller(frame: FrameType | None) -> Caller | None:
    """Return the caller for code in a bare thread, by its innermost frame; None if no model's code runs there."""
    return next((caller for finder in finders if (caller := finder(frame)) is not None), None)


def current_caller(maker: Caller | None = None) -> Caller:
    """Return the caller, or raise TritonModelException if no model runs here.

    `maker` is the caller that made the request to send; in a bare thread, the request is sent for the same model.
    """
    caller = caller_var.get() or find_caller(sys._getframe(1))
    if caller is not None:
        return caller
    if maker is not None:
        return maker.bare_caller()
    raise TritonModelException(NO_CALLER)
