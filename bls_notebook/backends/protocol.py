"""What the engine asks of a backend. Adding a backend is one module that provides these."""

from __future__ import annotations

from typing import Any, Protocol

from bls_notebook.pb_utils.request import InferenceRequest

__all__ = ["BackendInstance"]


class BackendInstance(Protocol):
    """One loaded instance of a model."""

    is_async: bool

    def execute(self, requests: list[InferenceRequest]) -> Any:
        """Return a list of responses, None where they are sent another way, or a coroutine of these."""

    def finalize(self) -> None:
        """Let go of everything; called once, when no request is in flight."""

    def ready(self) -> bool:
        """Whether the instance says that it can serve."""
