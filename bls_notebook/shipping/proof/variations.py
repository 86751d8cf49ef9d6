"""Variations of requests: which of them a proof sent, and which it never sent."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.engine import ModelSpec

from .requests import ProofCase

TOGETHER = "two requests in one execution"
PARALLEL = "parallel requests"


def variations_of(spec: ModelSpec, case: ProofCase) -> Iterator[str]:
    """Yield the variations that a case has."""
    for request in case:
        arrays = [tensor._array for tensor in request.inputs.values()]
        if 0 < len(request.outputs) < len(spec.outputs):
            yield "some of the outputs"
        if request.inputs.keys() < spec.inputs.keys():
            yield "absent optional inputs"
        if spec.max_batch_size and any(array.ndim and len(array) > 1 for array in arrays):
            yield "batches of several rows"
        if any(array.size == 0 for array in arrays):
            yield "empty tensors"
        if request.request_id:
            yield "request IDs"
        if request.correlation_id:
            yield "correlation IDs"
        if request.timeout:
            yield "timeouts"
        if request.parameters:
            yield "parameters"
        if "priority" in request.parameters:
            yield "priorities"


def possible_variations(spec: ModelSpec) -> Iterator[str]:
    """Yield the variations that requests to a model may have."""
    if len(spec.outputs) > 1:
        yield "some of the outputs"
    if any(tensor.optional for tensor in spec.inputs.values()):
        yield "absent optional inputs"
    if spec.max_batch_size > 1:
        yield "batches of several rows"
    if any(-1 in tensor.dims for tensor in spec.inputs.values()):
        yield "empty tensors"
    yield from ("request IDs", "timeouts", "parameters")
    if spec.scheduler != "sequence":
        yield "correlation IDs"
    if spec.config.dynamic_batching.priority_levels:
        yield "priorities"
    if spec.config.HasField("dynamic_batching") and spec.max_batch_size > 1:
        yield TOGETHER
    yield from (PARALLEL, "cancelled requests")
