"""A recorded request and its responses, with their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bls_notebook.pb_utils import Tensor
from bls_notebook.records.recorded import RequestKept


@dataclass(frozen=True)
class RecordedResponse:
    """A response with its values.

    ``outputs`` maps names to arrays (of BYTES dtype object, of bytes; of BF16, which NumPy lacks, a
    `pb_utils.Tensor`). ``error`` and ``code`` are None and empty where there is no error.
    """

    outputs: Mapping[str, Any]
    tensors: tuple[Tensor, ...] = field(repr=False)
    parameters: Mapping[str, Any]
    error: str | None = None
    code: str = ""
    final: bool = True


@dataclass(frozen=True)
class RecordedRequest:
    """A request with its values, and with the responses that it got.

    ``inputs`` maps names to arrays, as ``outputs`` of a response; `arguments` has everything else as
    `ModelRepository.infer` takes it. ``kept`` is its record: what it was sent with, by whom, when.
    """

    model: str
    inputs: Mapping[str, Any]
    parameters: Mapping[str, Any]
    correlation_id: int | str
    flags: int
    responses: tuple[RecordedResponse, ...]
    kept: RequestKept = field(repr=False)

    @property
    def id(self) -> int:
        """Counts all requests of the recording from 1 on; the id of its span in a profile."""
        return self.kept.id

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The inputs as tensors, by name."""
        given = self.inputs.items()
        return {name: each if isinstance(each, Tensor) else Tensor(name, each) for name, each in given}

    def arguments(self) -> dict[str, Any]:
        """Return what `infer` takes beside model and inputs, where it is not the default."""
        kept = self.kept
        parameters = {**self.parameters, **({"priority": kept.priority} if kept.priority else {})}
        given = {
            "outputs": list(kept.outputs), "version": kept.asked_version, "timeout": kept.timeout,
            "request_id": kept.request_id, "correlation_id": kept.correlation_id, "flags": kept.flags,
            "parameters": parameters,
        }  # fmt: skip
        plain = {"version": -1}
        return {name: value for name, value in given.items() if value and value != plain.get(name)}
