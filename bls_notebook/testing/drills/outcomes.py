"""The outcome of one request as plain facts; verdicts are made from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from bls_notebook.devices.transfers import to_cpu
from bls_notebook.engine.recording.payload_tape import copied
from bls_notebook.pb_utils import Tensor
from bls_notebook.records.errors import ErrorRecord, FrameRecord
from bls_notebook.repository.requests.response import Response
from bls_notebook.testing.records.drilled import CodePlace


@dataclass(frozen=True)
class TensorFacts:
    """An output: ``digest`` is equal for equal values, ``strange`` counts what is NaN or infinite.

    ``blank`` says that there is nothing but zeros or empty texts.
    """

    datatype: str
    shape: tuple[int, ...]
    digest: str
    strange: int = 0
    blank: bool = False

    @property
    def elements(self) -> int:
        """How many values it has."""
        return prod(self.shape)


@dataclass(frozen=True)
class DrillResponse:
    """One response."""

    tensors: Mapping[str, TensorFacts] = field(default_factory=dict)
    error: ErrorRecord | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What one request came to.

    ``state`` is answered; waited, where it was answered once what it waited for had been let go; or stuck,
    where it was not answered then either. ``where`` is the line of the model that it waited on. ``calls``
    counts the requests that each model got that misbehaves; ``others`` are models that got more requests than
    when all is well. ``left`` says what was left behind, a line each.
    """

    answers: tuple[DrillResponse, ...] = ()
    state: str = "answered"
    where: CodePlace | None = None
    limitless: bool = False  # it waits without a time limit, for certain
    calls: Mapping[str, int] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def errors(self) -> list[ErrorRecord]:
        """What errors it was told, in order."""
        return [answer.error for answer in self.answers if answer.error is not None]

    @property
    def error(self) -> ErrorRecord | None:
        """The first error that it was told."""
        return next(iter(self.errors), None)


def facts_of(response: Response) -> DrillResponse:
    """Return a response as facts."""
    record = response.record
    tensors = {t.name(): facts_of_tensor(t) for t in response.output_tensors()}
    return DrillResponse(tensors, record.error, record.warnings)


def host_array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor's values in host memory; of BYTES as bytes, of BF16 as whole numbers."""
    if tensor._datatype == "BYTES":
        return copied(tensor._array, "BYTES")
    return to_cpu(tensor._array)


def facts_of_tensor(tensor: Tensor) -> TensorFacts:
    """Return a tensor as facts."""
    array = host_array(tensor)
    digest = hashlib.sha256()
    strange = 0
    if array.dtype.kind == "O":
        for element in array.reshape(-1).tolist():
            digest.update(len(element).to_bytes(8, "little") + element)
    else:
        digest.update(np.ascontiguousarray(array).tobytes())
        if array.dtype.kind == "f":
            strange = int(array.size - np.isfinite(array).sum())
    return TensorFacts(tensor._datatype, tuple(map(int, array.shape)), digest.hexdigest(), strange, not array.any())


def place_of(frame: FrameRecord) -> CodePlace:
    """Return a frame as a place."""
    code = next((text.strip() for number, text in frame.source if number == frame.line), "")
    file = frame.file.replace("\\", "/")
    inside = file.rpartition(f"/{frame.model}/")  # in the model's folder, wherever that is
    return CodePlace(frame.model, f"{frame.model}/{inside[2]}" if inside[1] else file, frame.line, code)
