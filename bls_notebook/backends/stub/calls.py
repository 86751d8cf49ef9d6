"""`StubCall`: one request that a stub was asked to answer, as a test looks at it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bls_notebook.devices.moves import to_cpu
from bls_notebook.pb_utils.bfloat16 import from_bits
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.preview import preview

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, repr=False)
class StubCall:
    """One request that a stub was asked to answer.

    Attributes
    ----------
    model, version, instance
        Of the model that is stood in for: its name, the version's number, the instance's name.
    inputs : mapping of str to numpy.ndarray
        Copies, read-only, on the CPU; BYTES as object arrays of bytes, BF16 as float32.
    outputs : tuple of str
        Names of the outputs that were asked for.
    parameters : mapping of str to bool, int or str
    chain : tuple of str
        Names of the models that were running, outermost first, the last of them being the one that sent the
        request; empty for one from outside any model.
    request_id : str
    correlation_id : int or str
    flags : int
    timeout : int
        Microseconds.
    batch : int
        How many requests were executed together with it, itself among them.
    """

    model: str
    version: int
    instance: str
    inputs: Mapping[str, _Array]
    outputs: tuple[str, ...]
    parameters: Mapping[str, bool | int | str] = field(default_factory=dict)
    chain: tuple[str, ...] = ()
    request_id: str = ""
    correlation_id: int | str = 0
    flags: int = 0
    timeout: int = 0
    batch: int = 1

    @property
    def caller(self) -> str:
        """Name of the model that sent it; empty for a request from outside any model."""
        return self.chain[-1] if self.chain else ""

    def __repr__(self) -> str:
        inputs = ", ".join(f"{n} {a.dtype}{list(a.shape)} {preview(a, '')}" for n, a in self.inputs.items())
        more = f", parameters {dict(self.parameters)}" if self.parameters else ""
        return f"<StubCall of {self.model} by {self.caller or 'the test'}: {inputs or 'no inputs'}{more}>"


def is_null(request: InferenceRequest) -> bool:
    """Whether a sequence batcher made it, to fill a slot that has nothing to do."""
    ticket: Any = request._answerable
    return ticket is not None and getattr(ticket, "context", ticket) is None and ticket.parent is None


def call_of(
    request: InferenceRequest,
    model: str,
    version: int,
    instance: str,
    batch: int,
    tensors: bool = True,
    sender: Any = None,
) -> StubCall:
    """Return what there is to know of a request that a model has received; without its `tensors` if so.

    `sender` is the execution that sent it, where the request does not know it yet.
    """
    options = request._options
    return StubCall(
        model,
        version,
        instance,
        {tensor._name: _copy(tensor) for tensor in request._inputs if tensors},
        tuple(request._requested),
        json.loads(options.parameters),
        _chain(sender or getattr(request._answerable, "parent", None)),
        options.request_id,
        options.correlation_id,
        options.flags,
        options.timeout,
        batch,
    )


def _copy(tensor: Tensor) -> _Array:
    bits = tensor._datatype == "BF16"
    array = to_cpu(tensor._array)
    out = from_bits(np.asarray(array)) if bits else np.array(array, copy=True)
    out.flags.writeable = False
    return out


def _chain(sender: Any) -> tuple[str, ...]:
    names: list[str] = []
    while sender is not None:
        if sender.runs_a_model:
            names.append(sender.model_name)
        sender = sender.parent
    return tuple(reversed(names))
