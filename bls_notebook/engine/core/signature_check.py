"""Checks of requests and responses against the completed configuration, and config `reshape`.

`RequestCheck` validates a request as Triton's core does before it queues one. A fast check comes first; only if it
fails, a slow one finds the message. `OutputCheck` compares a model's outputs with its configuration, which Triton does
not do. Most responses have the shapes of the one before, so `shape` and `has_seen` remember correct ones. Mirrors
core/src/infer_request.cc (Normalize) and infer_response.cc (Output::Reshape).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from sys import intern

from bls_notebook.engine.core.hash_order import hash_order
from bls_notebook.engine.core.model_spec import ModelSpec, TensorSpec
from bls_notebook.engine.errors import of_request, running
from bls_notebook.pb_utils.dtypes import DataType
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.models import fits


@dataclass(frozen=True, slots=True)
class Reshape:
    """A change of shape after `batch` (0 or 1) dimensions; -1 is a varying size, and varying sizes keep their order."""

    batch: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    def apply(self, tensor: Tensor) -> None:
        """Change a tensor's shape in place, if it has the expected one."""
        wanted = self.of(tensor._array.shape)
        if wanted is not None:
            tensor._array = tensor._array.reshape(wanted)

    def back(self) -> Reshape:
        return Reshape(self.batch, self.after, self.before)

    def of(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the shape after the change; None if it would have another number of elements."""
        batch, sizes = shape[: self.batch], shape[self.batch :]
        places = [i for i, size in enumerate(self.before) if size == -1]
        if len(batch) < self.batch or (places and places[-1] >= len(sizes)):
            return None
        varying = iter([sizes[i] for i in places])
        wanted = batch + tuple(next(varying) if size == -1 else size for size in self.after)
        return wanted if prod(wanted) == prod(shape) else None


def input_reshapes(specs: Mapping[str, TensorSpec]) -> dict[str, Reshape]:
    """Return the reshapes of inputs on their way to the model, by name."""
    return {
        name: Reshape(len(s.shape) - len(s.dims), s.dims, s.reshape)
        for name, s in specs.items()
        if s.reshape is not None
    }


def output_reshapes(specs: Mapping[str, TensorSpec]) -> dict[str, Reshape]:
    """Return the reshapes of outputs on their way from the model, by name."""
    return {name: there.back() for name, there in input_reshapes(specs).items()}


def reshape_all(tensors: Iterable[Tensor], reshapes: Mapping[str, Reshape]) -> None:
    """Reshape tensors in place; no other code may refer to them."""
    for tensor in tensors:
        reshape = reshapes.get(tensor._name)
        if reshape is not None:
            reshape.apply(tensor)


def first_by_name(outputs: Iterable[Tensor]) -> dict[str, Tensor]:
    """Return outputs by name; of outputs of one name, a server passes on the first."""
    by_name: dict[str, Tensor] = {}
    for tensor in outputs:
        by_name.setdefault(tensor._name, tensor)
    return by_name


_REQUEST_ID = re.compile(r"\[request id: .*?\] ")
_KEPT = 20  # distinct messages to keep


class RequestCheck:
    """Validates requests to one model version."""

    __slots__ = ("_corrid", "_fixed", "_inputs", "_outputs", "_required", "_spec", "_total", "_unserved", "refused")

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self.refused: dict[str, int] = {}  # counts of refused requests by message, for displays
        self._outputs = frozenset(spec.outputs)
        self._required = spec.required
        self._total = spec.declared
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
        # The control input with the correlation ID, and its data type.
        self._corrid = next(
            (
                (tensor.name, DataType(control.data_type).name)
                for tensor in spec.config.sequence_batching.control_input
                for control in tensor.control
                if control.kind == control.CONTROL_SEQUENCE_CORRID
            ),
            None,
        )
        self._unserved = bool(spec.instances) and all(i.passive for i in spec.instances)
        self._fixed = (
            spec.max_batch_size == 0 and not self._unserved and not any(s.is_shape_tensor for s in spec.inputs.values())
        )

    def problem(self, request: InferenceRequest, wrong_data: Mapping[str, str] | None = None) -> str | None:
        """Return Triton's message for an invalid request, or None.

        `wrong_data` has messages about inputs whose data do not have the size of their shape, by name.
        """
        if wrong_data:
            return self._explain(request, wrong_data)
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
        if self._corrid is not None and self._correlation_problem(request) is not None:
            return self._explain(request)
        for name in request._requested:
            if name not in self._outputs:
                return self._unexpected("output", min(set(request._requested) - self._outputs))
        return None

    def _explain(self, request: InferenceRequest, wrong_data: Mapping[str, str] | None = None) -> str | None:
        """Return the message for an invalid request, and count it; None for a valid one."""
        message = self._explained(request, wrong_data or {})
        if message is not None:
            text = _REQUEST_ID.sub("", message)
            if text in self.refused or len(self.refused) < _KEPT:
                self.refused[text] = self.refused.get(text, 0) + 1
        return message

    def _explained(self, request: InferenceRequest, wrong_data: Mapping[str, str]) -> str | None:
        """Check everything in the order of core/src/infer_request.cc."""
        spec, inputs = self._spec, request._inputs
        names = [t._name for t in inputs]
        refuse = partial(of_request, spec.name, request._options.request_id)
        for i, name in enumerate(names):
            if name in names[:i]:
                return refuse(f"input '{name}' already exists in request")
        for name in sorted(request._requested):
            if name not in self._outputs:
                return self._unexpected("output", name)
        if not len(self._required) <= len(inputs) <= self._total:
            return refuse(self._wrong_count(names))
        by_name = {tensor._name: tensor for tensor in inputs}
        in_order = [by_name[name] for name in hash_order(names)]
        rows: int | None = None
        if spec.max_batch_size > 0:
            problem, rows = self._batch_problem(in_order, refuse)
            if problem is not None:
                return problem
        for tensor in in_order:
            wanted = spec.inputs.get(tensor._name)
            if wanted is None:
                return self._unexpected("input", tensor._name)
            problem = self._tensor_problem(tensor, wanted, rows)
            if problem is not None:
                return refuse(problem)
            if tensor._name in wrong_data:
                return wrong_data[tensor._name]
        problem = self._correlation_problem(request)
        if problem is not None:
            return refuse(problem)
        if not set(self._required).issubset(names):  # the real server accepts this request, and the model gets None
            return refuse(self._wrong_count(names))
        if rows == 0:
            for tensor in in_order:
                if not spec.inputs[tensor._name].is_shape_tensor:
                    return refuse(
                        f"input '{tensor._name}' for model '{spec.name}' has shape "
                        f"[{','.join(map(str, tensor._array.shape))}]: a batch needs one row at least. "
                        "(The real server would keep the caller waiting forever, or drop the batch dimension.)"
                    )
            # A sequence model always has inputs: its controls.
            if not inputs and spec.in_python and spec.scheduler != "sequence":
                return "out of bounds index 0: request has 0 inputs"  # Triton reads the rows of the first input
        if not self._unserved:
            return None
        return running(
            spec.name,
            f"every instance of model '{spec.name}' is passive, and those are handed no requests (the real server "
            "would wait forever). An instance_group without `passive: true` serves them.",
        )

    def _correlation_problem(self, request: InferenceRequest) -> str | None:
        """Return the message for a text as correlation ID if the model expects a number, and the reverse, or None."""
        if self._corrid is None:
            return None
        name, expected = self._corrid
        is_text = isinstance(request._options.correlation_id, str)
        if is_text == (expected == "BYTES"):
            return None
        got = "BYTES" if is_text else "UINT64"
        return (
            f"sequence batching control '{name}' data-type is '{got}', but model '{self._spec.name}' expects "
            f"'{expected}'"
        )

    def _unexpected(self, kind: str, name: str) -> str:
        return running(self._spec.name, f"unexpected inference {kind} '{name}' for model '{self._spec.name}'")

    def _wrong_count(self, names: list[str]) -> str:
        least, most = len(self._required), self._total
        wanted = f"{most} inputs" if least == most else f"number of inputs between {least} and {most}"
        listed = ",".join(f"'{n}'" for n in hash_order(names))
        absent = ",".join(f"'{n}'" for n in self._required if n not in names)
        absent = f"[{absent}]" if absent else "]"  # the real server also omits the opening bracket
        return (
            f"expected {wanted} but got {len(names)} inputs for model '{self._spec.name}'. Got input(s) [{listed}], "
            f"but missing required input(s) {absent}. Please provide all required input(s)."
        )

    def _tensor_problem(self, tensor: Tensor, wanted: TensorSpec, rows: int | None) -> str | None:
        model, name, shape = self._spec.name, tensor._name, tensor._array.shape
        if tensor._datatype != wanted.datatype:
            return (
                f"inference input '{name}' data-type is '{tensor._datatype}', but model '{model}' expects "
                f"'{wanted.datatype}'"
            )
        if not fits(shape, wanted.shape):
            dims, got = (",".join(map(str, s)) for s in (wanted.shape, shape))
            note = (
                "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
                "prepended to each input shape. If you want to specify the full shape including the batch dim in "
                "your input dims config, try setting max_batch_size to zero. See the model configuration docs for "
                "more info on max_batch_size."
            )
            problem = f"unexpected shape for input '{name}' for model '{model}'. Expected [{dims}], got [{got}]. "
            return problem + note * (self._spec.max_batch_size > 0)
        if rows is None or wanted.is_shape_tensor or shape[0]:
            return None
        expected = max(1, rows) * prod(shape[1:])
        if not expected:  # the byte size is right, but the number of rows is not
            return f"input '{name}' batch size does not match other inputs for '{model}'" if rows else None
        if tensor._datatype == "BYTES":
            return f"expected {expected} string elements for inference input '{name}' for model '{model}', got 0"
        expected *= tensor._array.itemsize
        return f"input byte size mismatch for input '{name}' for model '{model}'. Expected {expected}, got 0"

    def _batch_problem(self, inputs: list[Tensor], refuse: Callable[[str], str]) -> tuple[str | None, int]:
        """Return the message for an invalid batch, or None, and its rows; 0 for unknown, as in Triton."""
        model, batch = self._spec.name, 0
        for tensor in inputs:
            wanted, shape = self._spec.inputs.get(tensor._name), tensor._array.shape
            if wanted is None:
                return self._unexpected("input", tensor._name), 0
            if wanted.is_shape_tensor:
                continue
            if not shape:
                problem = f"input '{tensor._name}' has no shape but model requires batch dimension for '{model}'"
                return refuse(problem), 0
            if batch and shape[0] != batch:
                return refuse(f"input '{tensor._name}' batch size does not match other inputs for '{model}'"), 0
            batch = shape[0]
        if batch > self._spec.max_batch_size:
            return refuse(f"inference request batch-size must be <= {self._spec.max_batch_size} for '{model}'"), 0
        return None, batch


class OutputCheck:
    """Compares the outputs of one model version with its configuration."""

    __slots__ = ("_decoupled", "_seen", "_spec", "datatype", "found", "noted", "reshapes", "shape", "strict")

    def __init__(self, spec: ModelSpec, strict: bool = False) -> None:
        self.strict = strict
        self.reshapes = output_reshapes(spec.outputs)  # of outputs on their way from the model
        self._spec = spec
        self._decoupled = spec.decoupled
        only = next(iter(spec.outputs.values())) if len(spec.outputs) == 1 else None
        self.datatype = "" if only is None else intern(only.datatype)  # interned, so that comparing is fast
        self.shape: tuple[int, ...] | None = None  # of the only output, in the last correct response
        self.noted = False  # whether an execution of the model had a warning that is not about its outputs
        self.found: dict[str, None] = {}  # all distinct warnings, for displays
        self._seen: dict[str, tuple[str, tuple[int, ...]]] = {}

    def has_seen(self, tensors: Sequence[Tensor]) -> bool:
        """Return whether each output has the data type and shape of the last correct one of its name."""
        if self.noted:
            return False
        seen = self._seen
        return all(seen.get(t._name) == (t._datatype, t._array.shape) for t in tensors)

    def warnings(self, tensors: Sequence[Tensor], requested: tuple[str, ...]) -> tuple[str, ...]:
        """Return a line for each difference; of outputs of one name, the first counts.

        An empty line at the end means that the execution may have other warnings: see `note`.
        """
        by_name = first_by_name(tensors)
        lines = []
        for name, tensor in by_name.items():
            problems = self._problems(tensor)
            if not problems:
                self._seen[name] = (tensor._datatype, tensor._array.shape)
                if self.datatype:
                    self.shape = tensor._array.shape
                if self.noted:
                    self.shape = None
            lines += [f"model '{self._spec.name}', output '{name}': {problem}" for problem in problems]
        if tensors or not self._decoupled:  # the last response of a stream may have no outputs
            lines += [
                f"model '{self._spec.name}', output '{name}': missing, though it was asked for and the "
                "configuration declares it"
                for name in requested
                if name not in by_name
            ]
        self._keep(lines)
        return (*lines, "") if self.noted else tuple(lines)

    def noted_warnings(self, problems: Iterable[str]) -> tuple[str, ...]:
        """Return warnings for problems that are not about the configuration."""
        lines = [f"model '{self._spec.name}', {problem}" for problem in problems]
        self._keep(lines)
        return tuple(lines)

    def _keep(self, lines: list[str]) -> None:
        if lines and len(self.found) < _KEPT:
            self.found.update(dict.fromkeys(lines))

    def note(self) -> None:
        """Check every response from now on: its execution may have warnings."""
        self.noted, self.shape = True, None

    def _problems(self, tensor: Tensor) -> list[str]:
        spec = self._spec.outputs.get(tensor._name)
        if spec is None:
            declared = ", ".join(self._spec.outputs) or "none"
            return [f"not in the configuration, so it is dropped; outputs declared there: {declared}"]
        problems = []
        if tensor._datatype != spec.datatype:
            problems.append(
                f"got {tensor._datatype}, the configuration says {spec.datatype}; Triton passes it on, so "
                "convert the array or change data_type"
            )
        shape, wanted = tensor._array.shape, spec.model_shape
        if not fits(shape, wanted):
            batch = " (the first is the batch)" if self._spec.max_batch_size else ""
            source, advice = "configuration", "Triton passes it on, so change the array or dims"
            reshape = self.reshapes.get(tensor._name)
            if reshape is not None and reshape.of(shape) is None:
                source = "configuration's reshape"
                advice = (
                    "Triton cuts such an output off, or fills it up with other memory, so change the array or reshape"
                )
            problems.append(f"got shape {list(shape)}, the {source} says {list(wanted)}{batch}; {advice}")
        return problems
