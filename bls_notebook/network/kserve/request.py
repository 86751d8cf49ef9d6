"""One inference request, whichever protocol it came by: what it asks for, and sending it to its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bls_notebook.devices.registry import gpus_were_seen
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils import InferenceRequest, Tensor, TritonModelException
from bls_notebook.repository.requests.inputs import client_parameters, preferred_memory_of

from .errors import refuse

START, END = 1, 2


@dataclass(frozen=True)
class RequestedOutput:
    """An output that is asked for: as bytes or as JSON, into shared memory, or the classes of most weight."""

    name: str
    binary: bool = False
    region: str = ""
    offset: int = 0
    byte_size: int = 0
    classes: int = 0


@dataclass
class DecodedRequest:
    """A request, decoded."""

    model: LoadedModel
    version: int  # that was asked for, -1 for the newest
    request_id: str = ""
    inputs: list[Tensor] = field(default_factory=list)
    outputs: dict[str, RequestedOutput] = field(default_factory=dict)
    binary: bool = False  # how outputs go back that were not asked for by name
    parameters: dict[str, Any] = field(default_factory=dict)
    correlation_id: int | str = 0
    flags: int = 0
    timeout: int = 0  # microseconds
    priority: int = 0
    final: bool = False  # the client wants an empty response that says that it was the last

    def request(self) -> InferenceRequest:
        """Return the request as the engine takes it."""
        spec = self.model.spec
        try:
            request = InferenceRequest(
                self.request_id, self.correlation_id, self.inputs, list(self.outputs), spec.name,
                self.version, self.flags, self.timeout,
            )  # fmt: skip
            own = client_parameters(self.parameters)[0] if self.parameters else "{}"
        except (BLSError, TypeError, ValueError, RuntimeError, TritonModelException) as error:
            refuse(str(error))
        memory = preferred_memory_of("cpu") if gpus_were_seen() else None
        if own != "{}" or self.priority or memory is not None:
            request._options = replace(
                request._options, parameters=own, priority=self.priority, preferred_memory=memory
            )
        return request


def flags_of(parameters: Mapping[str, Any]) -> int:
    """Return the flags of a sequence's request."""
    return START * bool(parameters.get("sequence_start")) | END * bool(parameters.get("sequence_end"))
