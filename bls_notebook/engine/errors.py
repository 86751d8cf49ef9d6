"""Exceptions for misuse of this package's API, and Triton's words for errors that several modules report.

An error *response* is data (`Response.error`) and never raised. The words come from core/src/infer_request.cc and
others.
"""

from __future__ import annotations

from bls_notebook.records.errors import BLSError as BLSError
from bls_notebook.records.errors import ErrorRecord

POLL_FAILED = "failed to load '{name}', failed to poll from model repository"


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


def running(model: str, message: str) -> str:
    """Return the error of a BLS request that could not be served, as its sender sees it."""
    return f"Model {model} - Error when running inference: {message}"


def without_running(message: str) -> str:
    """Return the text that `running` was called with; any other message unchanged."""
    head, separator, tail = message.partition(" - Error when running inference: ")
    return tail if separator and head.startswith("Model ") and "\n" not in head else message


def of_request(model: str, request_id: str, message: str) -> str:
    """As `running`, with the request's ID."""
    return running(model, f"[request id: {request_id or '<id_unknown>'}] {message}")


def not_ready(model: str) -> str:
    """Return the error of a request to a model without a ready version."""
    model = model.partition("\0")[0]  # a C string in Triton, which ends at a NUL
    return running(model, f"Failed for execute the inference request. Model '{model}' is not ready.")


def execute_failed(instance: str, message: str) -> str:
    """Return the error of an `execute` that raised an exception or returned an invalid value."""
    return f"Failed to process the request(s) for model '{instance}', message: {message}"
