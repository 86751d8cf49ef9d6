"""Exceptions for misuse of this package's API, and Triton's words for errors that several modules report.

An error *response* is data (`Response.error`) and never raised. The words come from core/src/infer_request.cc and
others.
"""

from __future__ import annotations

from collections.abc import Collection

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
    """Return the error of a BLS request to a model whose `is_ready` does not return True."""
    return running(model, f"Failed for execute the inference request. Model '{model}' is not ready.")


def unknown_model(model: str, version: int, known: Collection[int]) -> str:
    """Return the error for a version that does not serve; `known`: the versions that were ever loaded or tried.

    The words are those of core/src/model_repository_manager/model_lifecycle.cc. (Before 26.07, a BLS caller got
    `not_ready` instead.)
    """
    problem = "is not found"
    if version in known:
        problem = f"version {version} is not at ready state"
    elif known:
        problem = "has no available versions" if version == -1 else f"version {version} is not found"
    return f"Request for unknown model: '{c_text(model)}' {problem}"


def unidentified(model: str, identifiers: Collection[str]) -> str:
    """Return the error for a name that identifies no model any more, or those of several namespaces."""
    if not identifiers:
        return f"Identifier of model '{model}' is not found in global map"
    return (
        f"There are {len(identifiers)} identifiers of model '{model}' in global map, model namespace must be provided "
        "to resolve ambiguity."
    )


def c_text(text: str) -> str:
    """Return a text as C reads it: up to the first NUL."""
    return text.partition("\0")[0]


def execute_failed(instance: str, message: str) -> str:
    """Return the error of an `execute` that raised an exception or returned an invalid value."""
    return f"Failed to process the request(s) for model '{instance}', message: {message}"
