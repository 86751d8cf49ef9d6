"""The flow of one request through an ensemble's steps, without threads, models or a clock.

`EnsemblePlan` has the steps as plain data and is made once for each model version. `EnsembleFlow` is the progress of
one request. A step can run as soon as all its inputs exist. Responses of a decoupled step are numbered, and tensors
made from a response carry its number, so a step never gets tensors from different responses.

Guarantees: the flow drops each tensor when its last reader gets it, so that reader can receive the memory without a
copy. After a failure, no step starts. The caller must serialize calls.
Mirrors core/src/ensemble_scheduler/ensemble_scheduler.cc.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from bls_notebook.engine.core.hash_order import hash_order
from bls_notebook.engine.core.model_spec import ModelSpec
from bls_notebook.engine.core.signature_check import first_by_name, output_reshapes, reshape_all
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.models import fits


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One step: a model, and the ensemble's tensors by the model's input and output names. Version -1 is the newest."""

    model: str
    version: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


class EnsemblePlan:
    """The steps and models of an ensemble, the order of its outputs, and the steps that read each tensor."""

    def __init__(self, spec: ModelSpec, keys: Mapping[str, str] = MappingProxyType({})) -> None:
        self.spec = spec
        self.steps = tuple(
            EnsembleStep(keys.get(s.model_name, s.model_name), s.model_version, dict(s.input_map), dict(s.output_map))
            for s in spec.config.ensemble_scheduling.step
        )
        self.models = tuple(dict.fromkeys((step.model, step.version) for step in self.steps))
        self.reshapes = output_reshapes(spec.outputs)
        self.outputs = hash_order([*spec.outputs])
        self.readers: dict[str, tuple[int, ...]] = {}
        self._writer: dict[str, int] = {}
        for number, step in enumerate(self.steps):
            for tensor in dict.fromkeys(step.inputs.values()):
                self.readers[tensor] = (*self.readers.get(tensor, ()), number)
            self._writer.update(dict.fromkeys(step.outputs.values(), number))
        self._remaining: dict[frozenset[str], frozenset[int]] = {}

    def remaining(self, requested: frozenset[str]) -> frozenset[int]:
        """Return the steps that Triton runs for a request for these outputs.

        Triton leaves out a step when it has counted as many unwanted tensors against it as it has outputs. Outputs that
        are not requested are unwanted, even if a step reads them, and so is a tensor when all of its readers are left
        out, even if it is requested. A tensor may count twice. An input of the ensemble counts against the first step.
        """
        remaining = self._remaining.get(requested)
        if remaining is None:
            left_out: set[int] = set()
            counts = [len(step.outputs) for step in self.steps]
            unwanted = self.spec.outputs.keys() - requested
            while unwanted:
                unread: set[str] = set()
                for tensor in unwanted:
                    number = self._writer.get(tensor, 0)
                    counts[number] -= 1
                    if counts[number] == 0:
                        left_out.add(number)
                        unread.update(self.steps[number].inputs.values())
                unwanted = {tensor for tensor in unread if left_out.issuperset(self.readers[tensor])}
            remaining = self._remaining[requested] = frozenset(range(len(self.steps))) - left_out
        return remaining

    def starves(self, requested: frozenset[str]) -> bool:
        """Return whether a request for these outputs gets none of them, because steps that they need are left out."""
        made = {*self.spec.inputs}
        steps = self.remaining(requested)
        while ready := [n for n in steps if made.issuperset(self.steps[n].inputs.values())]:
            steps = steps.difference(ready)
            made.update(tensor for n in ready for tensor in self.steps[n].outputs.values())
        return not made.issuperset(requested)


SEQUENCE_START, SEQUENCE_END = 1, 2


@dataclass(frozen=True, slots=True)
class Membership:
    """The sequence that a request or a tensor belongs to."""

    correlation_id: int | str
    flags: int


@dataclass(slots=True)
class Launch:
    """A step that can run now."""

    step: int
    iteration: int
    tensors: list[Tensor]
    sequence: Membership


@dataclass(slots=True)
class _Value:
    """A tensor of the ensemble; `tensor` is None for an optional one that is absent."""

    tensor: Tensor | None
    batch: int
    sequence: Membership | None
    readers: int


class EnsembleFlow:
    """The progress of one request; `members` are the specs of the steps' models."""

    def __init__(
        self, plan: EnsemblePlan, members: Sequence[ModelSpec], requested: tuple[str, ...], sequence: Membership
    ) -> None:
        self._plan = plan
        self._spec = plan.spec
        self._members = members
        self._wanted = frozenset(requested)
        self._steps = plan.remaining(self._wanted)
        self._sequence = sequence
        self._values: dict[str, dict[int, _Value]] = {}
        self._counts: dict[int, int] = {}  # responses of each decoupled step so far
        self._batches: dict[tuple[int, int], int] = {}
        self.batch = 0  # rows of the request, 0 if the ensemble does not batch
        self.running = 0
        self.responses = 0
        self.error: TritonError | None = None

    def begin(self, inputs: Iterable[Tensor]) -> list[Launch]:
        """Store the request's inputs; return the steps that can run."""
        by_name = {t._name: t for t in inputs}
        if self._spec.max_batch_size:
            self.batch = next((t._array.shape[0] for t in by_name.values()), 0)
        for name in self._spec.inputs:
            self._put(name, 0, by_name.get(name), self.batch, None)
        return self._ready(self._spec.inputs, 0)

    def answered(
        self,
        launch: Launch,
        outputs: Iterable[Tensor] | None,
        parameters: Mapping[str, object],
        final: bool,
        decoupled: bool,
    ) -> list[Launch]:
        """Store a response of a step, or only a final flag (`outputs` is None); return the steps that can run now."""
        if final:
            self.running -= 1
        if self.error is not None or outputs is None:
            return []
        step = self._plan.steps[launch.step]
        sequence = _override(parameters, launch.sequence)
        iteration = launch.iteration
        if decoupled:
            iteration = self._counts.get(launch.step, 0)
            self._counts[launch.step] = iteration + 1
        by_name = first_by_name(outputs)
        batch = self._batches.get((launch.step, launch.iteration), 0)
        for name, tensor_name in step.outputs.items():
            self._put(tensor_name, iteration, by_name.get(name), batch, sequence)
        return self._ready(step.outputs.values(), iteration)

    def fail(self, error: TritonError) -> None:
        """Start no more steps; the first error counts."""
        if self.error is None:
            self.error = error
            self._values.clear()

    def take_outputs(self) -> tuple[list[Tensor], dict[str, object]] | None:
        """Return the next complete response and its parameters, or None."""
        if self.error is not None:
            return None
        first = next(iter(self._wanted), None)
        for iteration in self._values.get(first, {}) if first is not None else {}:
            if None not in [self._values.get(name, {}).get(iteration) for name in self._wanted]:
                break
        else:
            return None
        out: list[Tensor] = []
        parameters: dict[str, object] = {}
        for name in self._plan.outputs:
            if name not in self._wanted:
                continue
            value = self._values[name][iteration]
            self._read(name, iteration)
            if value.tensor is None:
                continue
            declared = self._spec.outputs[name]
            out.append(_fitted(name, value, declared.model_shape[bool(self._spec.max_batch_size) :], self.batch))
            if value.sequence is not None and 0 not in value.tensor.shape():  # the server skips empty ones
                parameters["sequence_id"] = value.sequence.correlation_id
                parameters["sequence_start"] = bool(value.sequence.flags & SEQUENCE_START)
                parameters["sequence_end"] = bool(value.sequence.flags & SEQUENCE_END)
        reshape_all(out, self._plan.reshapes)
        self.responses += 1
        return out, parameters

    def _put(self, name: str, iteration: int, tensor: Tensor | None, batch: int, sequence: Membership | None) -> None:
        readers = sum(n in self._steps for n in self._plan.readers.get(name, ())) + (name in self._wanted)
        if readers:
            self._values.setdefault(name, {})[iteration] = _Value(tensor, batch, sequence, readers)

    def _read(self, name: str, iteration: int) -> None:
        value = self._values[name][iteration]
        value.readers -= 1
        if not value.readers:
            del self._values[name][iteration]

    def _ready(self, updated: Iterable[str], iteration: int) -> list[Launch]:
        """Return the steps that can run because these tensors exist now."""
        numbers = {n for name in updated for n in self._plan.readers.get(name, ()) if n in self._steps}
        launches = []
        for number in sorted(numbers):
            names = self._plan.steps[number].inputs.values()
            if all(iteration in self._values.get(name, ()) for name in names):
                launches.append(self._launch(number, iteration))
        self.running += len(launches)
        return launches

    def _launch(self, number: int, iteration: int) -> Launch:
        step, member = self._plan.steps[number], self._members[number]
        sequence = self._sequence
        overridden = False
        tensors: list[Tensor] = []
        for name, source in step.inputs.items():
            value = self._values[source][iteration]
            if value.tensor is not None:
                declared = member.inputs.get(name)
                dims = declared.dims if declared is not None else ()
                tensors.append(_fitted(name, value, dims, member.max_batch_size))
            if value.sequence is not None and not overridden:
                sequence, overridden = value.sequence, True
        for source in set(step.inputs.values()):
            self._read(source, iteration)
        if member.max_batch_size:
            rows = [t._array.shape[0] for t in tensors if t._array.ndim]
            self._batches[number, iteration] = rows[0] if rows else 0
        return Launch(number, iteration, tensors, sequence)


def _fitted(name: str, value: _Value, dims: Sequence[int], batching: int) -> Tensor:
    """Return the tensor with or without a batch dimension, as its reader requires."""
    tensor = value.tensor
    assert tensor is not None
    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]] = tensor._array
    if bool(batching) != bool(value.batch):
        is_row = fits(array.shape, dims)
        if batching and is_row:
            array = array[np.newaxis]
        elif not batching and not is_row and value.batch == 1:
            array = array[0] if array.ndim > 1 or array.dtype != np.object_ else array.reshape(())
    return Tensor._of(name, array, tensor._datatype)


def _override(parameters: Mapping[str, object], sequence: Membership) -> Membership:
    """Return the sequence of a response: the step's sequence, unless the response's parameters name another."""
    if not parameters.keys() & {"sequence_id", "sequence_start", "sequence_end"}:
        return sequence
    number = parameters.get("sequence_id", sequence.correlation_id)
    start, end = parameters.get("sequence_start", False), parameters.get("sequence_end", False)
    if not isinstance(number, (int, str)) or isinstance(number, bool):
        raise ValueError(
            "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING"
        )
    for key, flag in (("sequence_start", start), ("sequence_end", end)):
        if not isinstance(flag, bool):
            raise ValueError(f"expect parameter '{key}' to be TRITONSERVER_PARAMETER_BOOL")
    return Membership(number, SEQUENCE_START * bool(start) | SEQUENCE_END * bool(end))
