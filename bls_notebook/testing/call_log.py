"""`RecordedCalls`: a profile of a test's requests, with copies of their inputs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bls_notebook.pb_utils import Tensor
from bls_notebook.profiling.profiler import Profile
from bls_notebook.profiling.records.spans import Span
from bls_notebook.repository import Call, StubCall

from .recording.payload_tape import Tape
from .recording.recorder import Store
from .records import RequestKept

MOST_BYTES = 256 << 20  # of copied inputs


class RecordedCalls(Profile):
    """A profile of a test's requests, with copies of at most `MOST_BYTES` of their inputs."""

    def __init__(self) -> None:
        self._inputs = _InputTape(True, MOST_BYTES)
        super().__init__(name="test", tape=self._inputs)

    @property
    def calls(self) -> Iterator[StubCall]:
        """The requests that models executed, in the order of their execution."""
        store = Store()
        requests = {request.id: request for request in self._requests(store)}
        spans = {span.id: span for span in self.record.spans}
        batches = Counter(span.batch for span in spans.values() if span.batch)
        for span in sorted(spans.values(), key=lambda span: span.started):
            request = requests.get(span.id)
            if request is None or not span.ran:
                continue
            kept = [tensor for tensor in request.inputs if tensor.values]
            inputs = {t.name: Tensor._of(t.name, store.arrays[t.values], t.datatype) for t in kept}
            yield StubCall.of(Call(
                (), span.model, span.version, inputs, request.outputs, json.loads(request.parameters),
                (request.correlation_id, request.flags), tuple(_callers(span, spans))[::-1], request.request_id,
                request.timeout, span.instance, batches.get(span.batch, 1),
            ))  # fmt: skip

    @property
    def left_out(self) -> int:
        """Number of requests with inputs that did not fit."""
        return sum(any(tensor.cut for tensor in request.inputs) for request in self._requests(Store()))

    def _requests(self, store: Store) -> Iterator[RequestKept]:
        return self._inputs.requests(self._base, self._start, store.kept)


class _InputTape(Tape):
    def answered(self, *response: Any) -> None:
        """Keep no outputs."""


def _callers(span: Span, spans: dict[int, Span]) -> Iterator[str]:
    while span.parent in spans:
        span = spans[span.parent]
        yield span.model
