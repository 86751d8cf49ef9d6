"""`RecordedCalls`: a profile of a test's requests, with copies of their inputs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from bls_notebook.pb_utils.dtypes import from_bits
from bls_notebook.profiling.profiler import Profile
from bls_notebook.profiling.records.spans import Span
from bls_notebook.repository.substitution.stub import StubCall

from .recording.payload_tape import Tape
from .records import RequestKept, TensorKept

MOST_BYTES = 256 << 20  # of copied inputs

_Array = np.ndarray[Any, Any]


class RecordedCalls(Profile):
    """A profile of a test's requests, with copies of at most `MOST_BYTES` of their inputs."""

    def __init__(self) -> None:
        self._inputs = _InputTape(True, MOST_BYTES)
        super().__init__(name="test", tape=self._inputs)

    @property
    def calls(self) -> Iterator[StubCall]:
        """The requests that models executed, in the order of their execution."""
        arrays: dict[str, _Array] = {}
        requests = {request.id: request for request in self._requests(arrays)}
        spans = {span.id: span for span in self.record.spans}
        batches = Counter(span.batch for span in spans.values() if span.batch)
        for span in sorted(spans.values(), key=lambda span: span.started):
            if span.ran and (request := requests.get(span.id)) is not None:
                yield StubCall(
                    (), span.model, span.version,
                    {tensor.name: arrays[tensor.values] for tensor in request.inputs if tensor.values},
                    request.outputs, json.loads(request.parameters), (request.correlation_id, request.flags),
                    tuple(_callers(span, spans))[::-1], request.request_id, request.timeout, span.instance,
                    batches.get(span.batch, 1),
                )  # fmt: skip

    @property
    def left_out(self) -> int:
        """Number of requests with inputs that did not fit."""
        return sum(any(tensor.cut for tensor in request.inputs) for request in self._requests({}))

    def _requests(self, arrays: dict[str, _Array]) -> Iterator[RequestKept]:
        """Yield the requests, and put the values of their inputs into `arrays`."""

        def kept(
            name: str, datatype: str, shape: tuple[int, ...], size: int, array: _Array | None, cut: bool
        ) -> TensorKept:
            values = "" if array is None else str(len(arrays))
            if array is not None:
                arrays[values] = from_bits(array) if datatype == "BF16" else array
                arrays[values].flags.writeable = False
            return TensorKept(name, datatype, shape, size, values, cut)

        return self._inputs.requests(self._base, self._start, kept)


class _InputTape(Tape):
    def answered(self, *response: Any) -> None:
        """Keep no outputs."""


def _callers(span: Span, spans: dict[int, Span]) -> Iterator[str]:
    while span.parent in spans:
        span = spans[span.parent]
        yield span.model
