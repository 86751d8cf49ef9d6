"""Inputs of sequence models that the scheduler adds: control inputs and states; and null requests.

No state: everything is a function of the configuration and the request. Shapes are ``[1]``, or ``[1, 1]`` if the model
batches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.engine.core.hash_order import as_received
from bls_notebook.engine.core.model_spec import ModelSpec
from bls_notebook.engine.core.tensor_data import DataFileError, array_of_file, zeros
from bls_notebook.engine.errors import ConfigError
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, DataType
from bls_notebook.pb_utils.options import DEFAULT_OPTIONS
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.tensor import Tensor

START = 1  # TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
END = 2  # TRITONSERVER_REQUEST_FLAG_SEQUENCE_END

# ModelSequenceBatching.Control.Kind
_KIND_START, _KIND_READY, _KIND_END, _KIND_CORRID = range(4)
_STRING = int(DataType.BYTES)
_Array = np.ndarray[Any, Any]


class Controls:
    """The control inputs of a sequence model."""

    def __init__(self, spec: ModelSpec) -> None:
        self._shape = (1, 1) if spec.max_batch_size > 0 else (1,)
        # kind -> name, value for false, value for true
        self._flags: dict[int, tuple[str, _Array, _Array]] = {}
        self._corrid: tuple[str, int] | None = None
        for declared in spec.config.sequence_batching.control_input:
            for control in declared.control:
                if control.kind == _KIND_CORRID:
                    self._corrid = (declared.name, control.data_type)
                elif control.kind in (_KIND_START, _KIND_READY, _KIND_END):
                    false, true = self._values(control)
                    self._flags[control.kind] = (declared.name, false, true)

    def _values(self, control: Any) -> tuple[_Array, _Array]:
        kinds = {"int32": np.int32, "fp32": np.float32, "bool": np.bool_}
        given = ((getattr(control, f"{kind}_false_true"), dtype) for kind, dtype in kinds.items())
        values, dtype = next(pair for pair in given if len(pair[0]))  # other configurations are refused
        return np.full(self._shape, values[0], dtype), np.full(self._shape, values[1], dtype)

    def of(self, flags: int, sequence: int | str, ready: bool = True) -> list[Tensor]:
        """Return the control inputs of a request, or of a slot without one (not `ready`)."""
        is_true = {
            _KIND_START: ready and bool(flags & START),
            _KIND_END: ready and bool(flags & END),
            _KIND_READY: ready,
        }
        out = []
        for kind in (_KIND_START, _KIND_END, _KIND_READY):
            control = self._flags.get(kind)
            if control is not None:
                name, false, true = control
                out.append(Tensor(name, (true if is_true[kind] else false).copy()))
        if self._corrid is not None:
            name, datatype = self._corrid
            out.append(Tensor(name, self._correlation_id(sequence if ready else 0, datatype)))
        return out

    def _correlation_id(self, sequence: int | str, datatype: int) -> _Array:
        if datatype == _STRING:
            text = np.empty(self._shape, np.object_)
            text.reshape(-1)[0] = sequence.encode() if isinstance(sequence, str) else b""  # of an empty slot
            return text
        dtype = DTYPE_OF_DATATYPE[DataType(datatype).name]
        assert isinstance(sequence, int)  # `RequestCheck` refuses texts
        raw = sequence.to_bytes(8, "little")[: dtype.itemsize].ljust(dtype.itemsize, b"\0")
        return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype).reshape(self._shape)


def initial_states(spec: ModelSpec, folder: Path) -> list[Tensor]:
    """Return the states of a sequence as inputs; `folder` is the model's.

    The Python backend cannot set a state, so each request sees the initial one: zero if there is none.
    """
    out = []
    for state in spec.config.sequence_batching.state:
        initial = state.initial_state[0] if len(state.initial_state) else None
        dims = [1 if d == -1 else d for d in (state.dims if initial is None else initial.dims)]
        shape = tuple([1, *dims] if spec.max_batch_size > 0 else dims)
        name = DataType(state.data_type).name
        if initial is not None and initial.WhichOneof("state_data") == "data_file":
            file = folder / "initial_state" / initial.data_file
            try:
                array = array_of_file(file, "initial_state", state.input_name, name, shape)
            except DataFileError as error:
                who = f"model {spec.name!r}: initial state of {state.input_name!r}"
                refused = ConfigError(f"{who}: {error}")
                refused.reason = f"Invalid argument: {error.reason}."
                raise refused from error
        else:
            array = zeros(shape, name)
        out.append(Tensor._of(state.input_name, array, name))
    return out


def null_request(like: InferenceRequest, extra: list[Tensor]) -> InferenceRequest:
    """Return a request for an empty slot, with the shapes and data types of `like` and these control inputs."""
    inputs = [Tensor._of(t._name, zeros(t._array.shape, t._datatype), t._datatype) for t in like._inputs]
    out = with_inputs(like, as_received(inputs, extra))
    out._requested = ()
    out._options = DEFAULT_OPTIONS
    return out


def with_inputs(request: InferenceRequest, inputs: list[Tensor]) -> InferenceRequest:
    """Return a copy of a request with other inputs, and without a receiver for its responses yet."""
    out = InferenceRequest.__new__(InferenceRequest)
    out._inputs = inputs
    out._requested = request._requested
    out._model_name = request._model_name
    out._model_version = request._model_version
    out._options = request._options
    out._answerable = None
    out._response_sender = None
    return out
