"""Triton's words for errors that several modules report (core/src/infer_request.cc and others)."""

from __future__ import annotations

POLL_FAILED = "failed to load '{name}', failed to poll from model repository"


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
