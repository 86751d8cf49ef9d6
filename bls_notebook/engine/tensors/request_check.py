"""Validate a request against the completed configuration, as Triton's core does before it queues the
request.

`RequestCheck` is made once for each model version and called for each request: a fast check first, and the
slow one that finds the words only if that fails. `Reshape` converts tensors between the shape of the request
and the shape that the model sees (config `reshape`). Mirrors core/src/infer_request.cc (Normalize) and
infer_response.cc (Output::Reshape).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from bls_notebook.engine import error_messages
from bls_notebook.engine.core.spec import ModelSpec, TensorSpec
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Reshape:
    """Sizes, without the batch's, before and after; those that vary keep their order.

    `batch`: how many dimensions in front are the batch's: 0 or 1. `before`, `after`: -1 where the size
    varies.
    """

    batch: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    def apply(self, tensor: Tensor) -> None:
        """Change a tensor's shape in place; one that has no such shape stays as it is."""
        wanted = self.of(tensor._array.shape)
        if wanted is not None:
            tensor._array = tensor._array.reshape(wanted)

    def back(self) -> Reshape:
        """The other way round."""
        return Reshape(self.batch, self.after, self.before)

    def of(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape that one becomes; None where it would not hold equally many elements."""
        batch, sizes = shape[: self.batch], shape[self.batch :]
        places = [i for i, size in enumerate(self.before) if size == -1]
        if len(batch) < self.batch or (places and places[-1] >= len(sizes)):
            return None
        varying = iter([sizes[i] for i in places])
        wanted = batch + tuple(next(varying) if size == -1 else size for size in self.after)
        return wanted if prod(wanted) == prod(shape) else None


def input_reshapes(specs: Mapping[str, TensorSpec]) -> dict[str, Reshape]:
    """Return what happens to inputs on their way to the model; empty where nothing does."""
    return {
        name: Reshape(len(s.shape) - len(s.dims), s.dims, s.reshape)
        for name, s in specs.items()
        if s.reshape is not None
    }


def output_reshapes(specs: Mapping[str, TensorSpec]) -> dict[str, Reshape]:
    """Return what happens to outputs on their way from the model; empty where nothing does."""
    return {name: there.back() for name, there in input_reshapes(specs).items()}


def reshape_all(tensors: Iterable[Tensor], reshapes: Mapping[str, Reshape]) -> None:
    """Give tensors of nobody else the shape that the other side expects."""
    for tensor in tensors:
        found = reshapes.get(tensor._name)
        if found is not None:
            found.apply(tensor)


_REQUEST_ID = re.compile(r"\[request id: .*?\] ")
_KEPT = 20  # different words


class RequestCheck:
    """Finds what is wrong with a request to one model version.

    `spec`: of the completed configuration; ``shape`` has the batch dimension in front, as -1.
    """

    __slots__ = ("_fixed", "_inputs", "_outputs", "_required", "_spec", "_total", "_unserved", "refused")

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self.refused: dict[str, int] = {}  # how often by which words, for those who ask what went wrong
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
        self._unserved = bool(spec.instances) and all(i.passive for i in spec.instances)
        self._fixed = (
            spec.max_batch_size == 0 and not self._unserved and not any(s.is_shape_tensor for s in spec.inputs.values())
        )

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
                return error_messages.unexpected_output(self._spec.name, min(set(request._requested) - self._outputs))
        return None

    def _explain(self, request: InferenceRequest) -> str | None:
        """Say what is wrong, and take note of it."""
        found = self._explained(request)
        if found is not None:
            words = _REQUEST_ID.sub("", found)
            if words in self.refused or len(self.refused) < _KEPT:
                self.refused[words] = self.refused.get(words, 0) + 1
        return found

    def _explained(self, request: InferenceRequest) -> str | None:
        """Check everything in the order of core/src/infer_request.cc, and say what is wrong."""
        spec, inputs = self._spec, request._inputs
        model, request_id = spec.name, request._options.request_id
        names = [t._name for t in inputs]
        for i, name in enumerate(names):
            if name in names[:i]:
                return error_messages.duplicate_input(model, request_id, name)
        for name in sorted(request._requested):
            if name not in self._outputs:
                return error_messages.unexpected_output(model, name)
        if not len(self._required) <= len(inputs) <= self._total:
            missing = [n for n in spec.inputs if n in self._required and n not in names]
            expected = (len(self._required), self._total)
            return error_messages.wrong_count(model, request_id, expected, names, missing)
        # The real server walks a hash table whose order is, in practice, the reverse of insertion.
        backwards = list(reversed(inputs))
        rows: int | None = None
        if spec.max_batch_size > 0:
            problem, rows = self._batch_problem(backwards, request_id)
            if problem is not None:
                return problem
        for tensor in backwards:
            wanted = spec.inputs.get(tensor._name)
            if wanted is None:
                return error_messages.unexpected_input(model, tensor._name)
            if tensor._datatype != wanted.datatype:
                return error_messages.wrong_datatype(model, request_id, tensor._name, tensor._datatype, wanted.datatype)
            shape = tensor._array.shape
            if len(shape) != len(wanted.shape) or any(
                w not in (-1, s) for w, s in zip(wanted.shape, shape, strict=True)
            ):
                return error_messages.wrong_shape(
                    model, request_id, tensor._name, shape, wanted.shape, spec.max_batch_size > 0
                )
            problem = None if rows is None else self._rows_problem(tensor, wanted, rows, request_id)
            if problem is not None:
                return problem
        missing = [n for n in spec.inputs if n in self._required and n not in names]
        if missing:  # the real server passes this one, and its model finds None
            expected = (len(self._required), self._total)
            return error_messages.wrong_count(model, request_id, expected, names, missing)
        if rows == 0:
            for tensor in backwards:
                if not spec.inputs[tensor._name].is_shape_tensor:
                    return error_messages.no_rows(model, request_id, tensor._name, tensor._array.shape)
            # The controls of a sequence are inputs too.
            if not inputs and spec.in_python and spec.scheduler != "sequence":
                return error_messages.NO_INPUTS
        return error_messages.only_passive(model) if self._unserved else None

    def _rows_problem(self, tensor: Tensor, wanted: TensorSpec, rows: int, request_id: str) -> str | None:
        """What is wrong with an input of no rows, in a batch of `rows`."""
        model, shape = self._spec.name, tensor._array.shape
        if wanted.is_shape_tensor or shape[0]:
            return None
        expected = max(1, rows) * prod(shape[1:])
        if not expected:  # nothing is missing, but it is wrong all the same
            return error_messages.batch_mismatch(model, request_id, tensor._name) if rows else None
        text = tensor._datatype == "BYTES"
        if not text:
            expected *= tensor._array.itemsize
        return error_messages.byte_size_mismatch(model, request_id, tensor._name, expected, text)

    def _batch_problem(self, inputs: list[Tensor], request_id: str) -> tuple[str | None, int]:
        """What is wrong with the batch, and its rows; as on the server, none are as good as not known."""
        spec = self._spec
        batch = 0
        for tensor in inputs:
            wanted = spec.inputs.get(tensor._name)
            if wanted is None:
                return error_messages.unexpected_input(spec.name, tensor._name), 0
            if wanted.is_shape_tensor:
                continue
            shape = tensor._array.shape
            if not shape:
                return error_messages.no_batch_dimension(spec.name, request_id, tensor._name), 0
            if batch and shape[0] != batch:
                return error_messages.batch_mismatch(spec.name, request_id, tensor._name), 0
            batch = shape[0]
        if batch > spec.max_batch_size:
            return error_messages.batch_too_large(spec.name, request_id, spec.max_batch_size), 0
        return None, batch
