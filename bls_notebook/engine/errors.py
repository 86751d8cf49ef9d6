"""Exceptions for misuse of this package's API.

An error *response* is data (`Response.error`) and never raised.
"""

from __future__ import annotations

from bls_notebook.records.errors import BLSError as BLSError
from bls_notebook.records.errors import ErrorRecord


class ConfigError(BLSError):
    """A model configuration that Triton would reject; `reason` is Triton's message, if known."""

    reason: str = ""


class ForkedError(BLSError):
    """The repository belongs to the process that this one was forked from."""


class InvalidNameError(BLSError):
    """An invalid model name, version or file name; `reason` is Triton's message, if known."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class ModelNotFoundError(BLSError):
    """No such model, or no such version of it."""


class ModelLoadError(BLSError):
    """A model could not be loaded. The version that was in service stays in service.

    Attributes
    ----------
    model, reason : str
        Name of the model, and Triton's message.
    record : ErrorRecord or None
        The failure with the frames of the model's code.
    """

    def __init__(self, message: str, model: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.model = model
        self.reason = reason or message
        self.record: ErrorRecord | None = None


class RepositoryClosedError(BLSError):
    """The repository has been closed."""
