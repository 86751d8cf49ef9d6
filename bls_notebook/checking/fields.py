"""Fields of a configuration that do nothing, or nothing without an option of the server."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.records.advice.known import nearest

from .material import Material
from .records import Finding

# Parameters that the Python backend itself reads.
_PARAMETERS = ("EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS", "TRITON_BATCH_STRATEGY_PATH")


def field_findings(model: Material) -> Iterator[Finding]:
    """Yield fields that are without effect."""
    given = model.given
    yield from _of_queues(model)
    if given.response_cache.enable:
        yield model.in_config(
            "note", "field-cache", "response_cache",
            "its responses are cached only where the server has a cache",
            "A server without one answers every request anew.",
            "Start it with `--cache-config local,size=104857600` (bytes, for all models together).",
        )  # fmt: skip
    for group in given.instance_group:
        if group.HasField("rate_limiter"):
            yield model.in_config(
                "note", "field-rate-limiter", "instance_group.rate_limiter",
                "its rate_limiter counts only where the server limits rates",
                "By default a server ignores it.",
                "Start it with `--rate-limit=execution_count`.",
            )  # fmt: skip
            break
    groups = given.instance_group
    if groups and all(group.passive for group in groups):
        yield model.in_config(
            "error", "instances-passive", "instance_group", "all of its instance groups are passive",
            "No instance serves requests: whoever sends one waits, or is refused.",
            "Leave `passive` out of one of them.",
        )  # fmt: skip
    if model.is_python:
        yield from _of_python(model)
        yield from _of_environment(model)


def _of_queues(model: Material) -> Iterator[Finding]:
    batching = model.given.dynamic_batching
    if batching.priority_queue_policy and not batching.priority_levels:
        yield model.in_config(
            "warning", "field-idle", "dynamic_batching.priority_queue_policy",
            "priority_queue_policy does nothing: there are no priority_levels",
            "All requests share one queue.",
            "Set priority_levels and default_priority_level, or use default_queue_policy.",
        )  # fmt: skip
    policies = [("default_queue_policy", batching.default_queue_policy)]
    policies += [("priority_queue_policy", policy) for policy in batching.priority_queue_policy.values()]
    for name, policy in policies:
        if policy.allow_timeout_override and not policy.default_timeout_microseconds:
            yield model.in_config(
                "warning", "field-idle", f"dynamic_batching.{name}",
                "allow_timeout_override does nothing: there is no default_timeout_microseconds",
                "A request's timeout may only shorten that of the policy, which is none.",
                "Set default_timeout_microseconds to the longest that a request may wait.",
            )  # fmt: skip
            break


def _of_environment(model: Material) -> Iterator[Finding]:
    """An environment that is looked for in the model's folder and is not there."""
    beside = "$$TRITON_MODEL_DIRECTORY/"
    if "EXECUTION_ENV_PATH" not in model.given.parameters or model.place is not None:
        return
    path = model.given.parameters["EXECUTION_ENV_PATH"].string_value
    if path.startswith(beside) and not (model.folder / path.removeprefix(beside)).exists():
        yield model.in_config(
            "error", "environment-missing", "parameters.value.string_value",
            f"its environment {path.removeprefix(beside)} is not in the model's folder",
            "The server unpacks it before it starts the model, which does not load without.",
            "Pack one by `conda pack`, for the Python of the server's stub, and put it there.", value=path,
        )  # fmt: skip


def _of_python(model: Material) -> Iterator[Finding]:
    optimization = model.given.optimization
    for name in ("execution_accelerators", "cuda", "graph"):
        if optimization.HasField(name):
            yield model.in_config(
                "note", "field-idle", f"optimization.{name}", f"optimization.{name} does nothing",
                "The Python backend does not look at it.", "Leave it out.",
            )  # fmt: skip
    code = model.newest()
    for key in model.given.parameters:
        meant = nearest(key, _PARAMETERS)
        if (
            meant
            and key not in _PARAMETERS
            and len(key) > 8
            and not (code is not None and code.mentions(key))
        ):
            yield model.in_config(
                "warning", "field-parameter", "parameters.key",
                f"parameter {key!r} means nothing to the Python backend (is {meant!r} meant?)",
                "It hands parameters that it does not know to the model, whose code does not mention "
                "this one.",
                f"Write {meant!r}.", value=key,
            )  # fmt: skip
    own = None if code is None or code.mistake or code.siblings else code.model_class
    if (
        own is None
        or code is None
        or own.bases
        or code.mentions("get_response_sender")
        or not model.decoupled
    ):
        return
    yield model.in_config(
        "error", "decoupled-returns", "model_transaction_policy",
        "it is decoupled, and its code never asks for a response sender",
        "A decoupled model answers by `request.get_response_sender()`; responses that `execute` returns are "
        "refused.",
        "Send the responses, or take `decoupled: true` out.",
    )  # fmt: skip
