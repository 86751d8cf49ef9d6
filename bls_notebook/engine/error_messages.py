"""Triton's words for errors that several modules report (core/src/infer_request.cc and others)."""

from __future__ import annotations


def running(model: str, message: str) -> str:
    """Return an error of sending a BLS request, as the sender sees it."""
    return f"Model {model} - Error when running inference: {message}"


def without_running(message: str) -> str:
    """Return the text that `running` was called with; any other message unchanged."""
    head, found, tail = message.partition(" - Error when running inference: ")
    return tail if found and head.startswith("Model ") and "\n" not in head else message


def of_request(model: str, request_id: str, message: str) -> str:
    """Return an error of sending a BLS request that names the request."""
    return running(model, f"[request id: {request_id or '<id_unknown>'}] {message}")


def not_ready(model: str) -> str:
    """Return the error of a request to a model without a ready version."""
    model = model.partition("\0")[0]  # a name in C there
    return running(model, f"Failed for execute the inference request. Model '{model}' is not ready.")


def execute_failed(instance: str, message: str) -> str:
    """Return the error of an `execute` that raised, or returned what it must not."""
    return f"Failed to process the request(s) for model '{instance}', message: {message}"
