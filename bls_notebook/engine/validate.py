"""Checks a request against the completed configuration, as Triton's core does before queueing it.

`RequestCheck` is made once a model version and is called for each request: a fast look that says
"fine" or "not fine", and only then the slow one that finds the words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bls_notebook.pb_utils.request import InferenceRequest

from . import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bls_notebook.engine.spec import ModelSpec

__all__ = ["RequestCheck"]


class RequestCheck:
    """Finds what is wrong with a request to one model version.

    Parameters
    ----------
    spec : ModelSpec
        Of the completed configuration; ``shape`` has the batch dimension in front, as -1.
    """

    __slots__ = ("_fixed", "_inputs", "_outputs", "_required", "_spec", "_total")

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._outputs = frozenset(spec.outputs)
        self._required = frozenset(spec.required)
        self._total = len(spec.inputs)
        # name -> (datatype, rank, exact shape or None, positions with a fixed size)
        self._inputs = {
            s.name: (
                s.datatype,
                len(s.shape),
                s.shape if -1 not in s.shape else None,
                tuple((i, d) for i, d in enumerate(s.shape) if d != -1),
            )
            for s in spec.inputs.values()
        }
        self._fixed = spec.max_batch_size == 0 and not any(s.is_shape_tensor for s in spec.inputs.values())

    def problem(self, request: InferenceRequest) -> str | None:
        """Return Triton's message for what is wrong with the request, None where nothing is."""
        inputs = request._inputs
        count = len(inputs)
        if self._fixed and count == self._total:
            known = self._inputs
            for tensor in inputs:
                spec = known.get(tensor._name)
                if spec is None or spec[0] != tensor._datatype:
                    return self._explain(request)
                shape = tensor._array.shape
                if shape != spec[2]:
                    if spec[2] is not None or len(shape) != spec[1]:
                        return self._explain(request)
                    for i, size in spec[3]:
                        if shape[i] != size:
                            return self._explain(request)
            if count > 1 and len({t._name for t in inputs}) != count:
                return self._explain(request)
        else:
            problem = self._explain(request)
            if problem is not None:
                return problem
        for name in request._requested:
            if name not in self._outputs:
                return messages.unexpected_output(self._spec.name, name)
        return None

    def _explain(self, request: InferenceRequest) -> str | None:
        """Check everything in Triton's order, and say what is wrong."""
        spec, inputs = self._spec, request._inputs
        model, request_id = spec.name, request._options.request_id
        names = [t._name for t in inputs]
        for i, name in enumerate(names):
            if name in names[:i]:
                return messages.duplicate_input(model, request_id, name)
        missing = [n for n in spec.inputs if n in self._required and n not in names]
        if len(inputs) > self._total or len(inputs) < len(self._required):
            return messages.wrong_count(model, request_id, self._total, names, missing)
        for name in names:
            if name not in spec.inputs:
                return messages.unexpected_input(model, name)
        if missing:
            return messages.wrong_count(model, request_id, self._total, names, missing)
        # The real server walks a hash table whose order is, in practice, the reverse of insertion.
        for tensor in reversed(inputs):
            wanted = spec.inputs[tensor._name].datatype
            if tensor._datatype != wanted:
                return messages.wrong_datatype(model, request_id, tensor._name, tensor._datatype, wanted)
        return self._shape_problem(request)

    def _shape_problem(self, request: InferenceRequest) -> str | None:
        spec = self._spec
        model, request_id = spec.name, request._options.request_id
        batched = spec.max_batch_size > 0
        batch: int | None = None
        for tensor in reversed(request._inputs):
            wanted: Sequence[int] = spec.inputs[tensor._name].shape
            shape = tensor._array.shape
            if len(shape) != len(wanted) or any(w not in (-1, s) for w, s in zip(wanted, shape, strict=True)):
                return messages.wrong_shape(model, request_id, tensor._name, shape, wanted, batched)
            if batched and not spec.inputs[tensor._name].is_shape_tensor:
                if batch is not None and shape[0] != batch:
                    return messages.running(
                        model,
                        f"[request id: {request_id or '<id_unknown>'}] input '{tensor._name}' batch size "
                        "does not "
                        f"match other inputs for '{model}'",
                    )
                batch = shape[0]
        if batch is not None and batch > spec.max_batch_size:
            return messages.batch_too_large(model, request_id, spec.max_batch_size)
        return None
