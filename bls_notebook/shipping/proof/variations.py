"""Variations of requests: which of them a proof sent, and which it never sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from bls_notebook.engine import ModelSpec

from .requests import ProofCase, ProofRequest

TOGETHER = "two requests in one execution"
PARALLEL = "parallel requests"


class _Variation(NamedTuple):
    """Whether requests to a model can have a variation, and whether one request has it."""

    is_possible: Callable[[ModelSpec], bool]
    is_in: Callable[[ModelSpec, ProofRequest], bool] = lambda spec, request: False


# The proof itself knows whether it sent those without a test of a request.
_VARIATIONS = {
    "some of the outputs": _Variation(
        lambda spec: len(spec.outputs) > 1, lambda spec, request: 0 < len(request.outputs) < len(spec.outputs)
    ),
    "absent optional inputs": _Variation(
        lambda spec: any(tensor.optional for tensor in spec.inputs.values()),
        lambda spec, request: request.inputs.keys() < spec.inputs.keys(),
    ),
    "batches of several rows": _Variation(
        lambda spec: spec.max_batch_size > 1,
        lambda spec, request: (
            spec.max_batch_size > 0 and any(t._array.ndim and len(t._array) > 1 for t in request.inputs.values())
        ),
    ),
    "empty tensors": _Variation(
        lambda spec: any(-1 in tensor.dims for tensor in spec.inputs.values()),
        lambda spec, request: any(tensor._array.size == 0 for tensor in request.inputs.values()),
    ),
    "request IDs": _Variation(lambda spec: True, lambda spec, request: bool(request.request_id)),
    "timeouts": _Variation(lambda spec: True, lambda spec, request: bool(request.timeout)),
    "parameters": _Variation(lambda spec: True, lambda spec, request: bool(request.parameters)),
    "correlation IDs": _Variation(
        lambda spec: spec.scheduler != "sequence", lambda spec, request: bool(request.correlation_id)
    ),
    "priorities": _Variation(
        lambda spec: bool(spec.config.dynamic_batching.priority_levels),
        lambda spec, request: "priority" in request.parameters,
    ),
    TOGETHER: _Variation(lambda spec: spec.config.HasField("dynamic_batching") and spec.max_batch_size > 1),
    PARALLEL: _Variation(lambda spec: True),
    "cancelled requests": _Variation(lambda spec: True),
}


def variations_of(spec: ModelSpec, case: ProofCase) -> Iterator[str]:
    """Yield the variations that the requests of a case have."""
    yield from (name for name, each in _VARIATIONS.items() if any(each.is_in(spec, request) for request in case))


def possible_variations(spec: ModelSpec) -> Iterator[str]:
    """Yield the variations that requests to a model may have."""
    yield from (name for name, each in _VARIATIONS.items() if each.is_possible(spec))
