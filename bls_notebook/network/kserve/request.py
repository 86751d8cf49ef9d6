"""Inference requests of both protocols: parameters, headers and requested outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from bls_notebook.devices import gpu_arrays
from bls_notebook.engine import BLSError, LoadedModel, without_running
from bls_notebook.network.limits import CLASSIFIED, TENSORS
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse, Tensor, TritonModelException
from bls_notebook.pb_utils.options import DEFAULT_OPTIONS, Options, correlation_problem
from bls_notebook.records import MAX_CONFIG, source_text
from bls_notebook.repository import encoded_parameters, preferred_memory_of

from .errors import UNSUPPORTED, refuse
from .shared_memory import Part
from .tensors import WrongDataError, input_tensor, on_cpu

START, END = 1, 2  # `TRITONSERVER_REQUEST_FLAG_SEQUENCE_START` and `_END`
FINAL = "triton_final_response"
_SERVER_PARAMETERS = frozenset((FINAL, "binary_data_size"))  # response parameters that the server adds
_CORRELATION, _TRACE = "x-correlation-id", ("traceparent", "tracestate")
BLOCK = 256  # bytes that are copied in the time in which one is encoded


@dataclass(frozen=True)
class RequestedOutput:
    """The form of a requested output: bytes or JSON, in shared memory, or as its `classes` largest values."""

    name: str
    binary: bool = False
    region: str = ""
    offset: int = 0
    byte_size: int = 0
    classes: int = 0


@dataclass
class DecodedRequest:
    """A client's request to an endpoint, decoded."""

    model: LoadedModel
    version: int  # -1 for the newest
    request_id: str = ""
    inputs: list[Tensor] = field(default_factory=list)
    outputs: dict[str, RequestedOutput] = field(default_factory=dict)
    binary: bool = False  # whether outputs not listed in `outputs` are sent as bytes
    parameters: dict[str, Any] = field(default_factory=dict)
    correlation_id: int | str = 0
    flags: int = 0
    timeout: int = 0  # microseconds
    priority: int = 0
    wrong_data: dict[str, str] = field(default_factory=dict)  # messages about inputs whose data have a wrong size
    final: bool = False  # whether the client wants an empty final response

    def add_input(self, tensor: Tensor) -> None:
        """Add an input; ProtocolError if the request already has one of this name."""
        if any(tensor._name == other._name for other in self.inputs):
            self.refuse_second("input", tensor._name)
        self.inputs.append(tensor)

    def add_data(
        self, name: str, datatype: str, shape: Sequence[int], data: bytes | memoryview | list[bytes] | Part
    ) -> None:
        """Add an input from its bytes, or from a list of BYTES; ProtocolError as in `input_tensor`.

        If the data have a wrong size, `request` raises the error: other errors may come first.
        """
        try:
            tensor = input_tensor(self.model.name, self.request_id, name, datatype, shape, data)
        except WrongDataError as error:
            tensor = Tensor._of(name, np.broadcast_to(np.int8(0), tuple(shape)), datatype)
            self.wrong_data[name] = error.message
        self.add_input(tensor)

    def add_output(self, output: RequestedOutput) -> None:
        """Add a requested output; ProtocolError if the request already has one of this name."""
        if output.name in self.outputs:
            self.refuse_second("output", output.name)
        if not output.name:
            refuse(f"unexpected inference output '' for model '{self.model.name}'")
        self.outputs[output.name] = output

    def refuse_second(self, kind: str, name: str) -> NoReturn:
        """Refuse a request with two inputs or outputs of one name."""
        refuse(f"[request id: {self.request_id or '<id_unknown>'}] {kind} '{name}' already exists in request")

    def effort_of(self, response: InferenceResponse) -> int:
        """Return the number of bytes that encoding a response handles one by one, for `Admission.work`.

        JSON, texts, classes, and outputs in shared memory or on a GPU; copies of blocks are far cheaper.
        """
        effort = len(self.request_id)
        for tensor in response._outputs:
            form = self.outputs.get(tensor._name)
            plain = self.binary if form is None else form.binary and not (form.region or form.classes)
            plain = plain and tensor._datatype != "BYTES" and isinstance(tensor._array, np.ndarray)
            effort += tensor._array.nbytes // (BLOCK if plain else 1)
        return effort

    def output(self, tensor: Tensor) -> tuple[Tensor, RequestedOutput | None]:
        """Return an output in its requested form, and that form; None if it was not requested by name."""
        requested = self.outputs.get(tensor._name)
        if requested is not None and requested.classes:
            tensor = _classified(self.model, tensor, requested.classes)
        return tensor, requested

    def request(self) -> InferenceRequest:
        """Return the request for the engine; ProtocolError if it is invalid."""
        spec = self.model.spec
        if problem := correlation_problem(self.correlation_id):
            refuse(problem, UNSUPPORTED)
        try:
            request = InferenceRequest(
                self.request_id, self.correlation_id, self.inputs, list(self.outputs), spec.name,
                self.version, self.flags, self.timeout,
            )  # fmt: skip
            parameters = encoded_parameters(self.parameters) if self.parameters else "{}"
        except (BLSError, TypeError, ValueError, RuntimeError, TritonModelException) as error:
            refuse(str(error))
        if self.wrong_data:
            refuse(without_running(self.model.check.problem(request, self.wrong_data) or ""))
        memory = preferred_memory_of("cpu") if gpu_arrays else None
        if parameters != "{}" or self.priority or memory is not None:
            request._options = replace(
                request._options, parameters=parameters, priority=self.priority, preferred_memory=memory
            )
        return request


_Items = TypeVar("_Items", bound=Sized)


def few(kind: str, items: _Items) -> _Items:
    """Return the inputs, outputs or parameters of a request; ProtocolError if there are too many to be checked."""
    if len(items) > TENSORS:
        refuse(f"the request has {len(items):,} {kind}; the limit is {TENSORS:,}")
    return items


def flags_of(parameters: Mapping[str, Any]) -> int:
    """Return Triton's request flags for the parameters ``sequence_start`` and ``sequence_end``."""
    return START * bool(parameters.get("sequence_start")) | END * bool(parameters.get("sequence_end"))


def parameters_of(options: Options) -> dict[str, Any]:
    """Return a request's parameters; sequence, priority and timeout are parameters in the protocol too."""
    if options is DEFAULT_OPTIONS:
        return {}
    parameters: dict[str, Any] = json.loads(options.parameters)
    if options.correlation_id:
        parameters["sequence_id"] = options.correlation_id
        parameters["sequence_start"] = bool(options.flags & START)
        parameters["sequence_end"] = bool(options.flags & END)
    if options.priority:
        parameters["priority"] = options.priority
    if options.timeout:
        parameters["timeout"] = options.timeout
    return parameters


def headers_of(options: Options) -> dict[str, str]:
    """Return the headers of a request: its trace context, and its correlation ID for load balancers."""
    context = None if options.trace is None else options.trace.get_context()
    carrier = json.loads(context) if context else {}
    headers = {_CORRELATION: str(options.correlation_id or ""), **{k: carrier.get(k) for k in _TRACE}}
    return {k: v for k, v in headers.items() if isinstance(v, str) and v and v.isascii() and v.isprintable()}


def parameters_of_model(parameters: Mapping[str, Any]) -> str:
    """Return the parameters of a response without those that the server adds, as JSON text."""
    kept = {k: v for k, v in parameters.items() if k not in _SERVER_PARAMETERS}
    return json.dumps(kept) if kept else "{}"


def _classified(model: LoadedModel, tensor: Tensor, count: int) -> Tensor:
    """Return the `count` largest values of each row of an output as ``value:index[:label]``, largest first."""
    datatype = tensor._datatype
    array = on_cpu(tensor)
    batched = model.spec.max_batch_size > 0 and array.ndim > 0
    rows = array.reshape(array.shape[0], -1) if batched and array.shape[0] else array.reshape(1, -1)
    if datatype != "BYTES" and rows.shape[1] > CLASSIFIED:
        refuse("classification output tensor too large")
    if datatype in ("BYTES", "BF16", "FP16", "BOOL"):
        refuse(f"class result not available for output due to unsupported type '{datatype}'")
    count = min(count, rows.shape[1])
    labels = _labels(model, tensor._name)
    is_integer = array.dtype.kind in "iu"
    out = np.empty((len(rows), count), np.object_)
    for number, row in enumerate(rows):
        for rank, index in enumerate(np.argsort(-row.astype(np.float64), kind="stable")[:count].tolist()):
            value = str(row[index]) if is_integer else f"{float(row[index]):f}"
            label = f":{labels[index]}" if index < len(labels) else ""
            out[number, rank] = f"{value}:{index}{label}".encode()
    return Tensor._of(tensor._name, out if batched else out[0], "BYTES")


def _labels(model: LoadedModel, output: str) -> list[str]:
    """Return the labels of an output: from the model's label file, or those of the ensemble's step that makes it."""
    config = model.spec.config
    file = next((each.label_filename for each in config.output if each.name == output), "")
    if not file:
        for step in config.ensemble_scheduling.step:
            member = model.server.find_key(model.steps.get(step.model_name, step.model_name), step.model_version)
            for made, mapped in step.output_map.items():
                if mapped == output and member is not None:
                    return _labels(member, made)
    if not file or not model.directory:
        return []
    return source_text(Path(model.directory).parent / Path(file).name, MAX_CONFIG).splitlines()
