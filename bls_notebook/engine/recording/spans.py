"""Recording for a profile, off the hot path: what the engine says of a request that is not plain.

Every function does nothing where no profile is on any more. See `observe.recording`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from bls_notebook.observe import recording
from bls_notebook.observe.recording import Log, nbytes
from bls_notebook.observe.records.session import ModelSeen

if TYPE_CHECKING:
    from bls_notebook.engine.core.execution import Execution
    from bls_notebook.engine.core.instance import Instance
    from bls_notebook.engine.core.model import LoadedModel
    from bls_notebook.pb_utils.request import InferenceRequest
    from bls_notebook.pb_utils.response import InferenceResponse
    from bls_notebook.pb_utils.tensor import Tensor

__all__ = [
    "InlineRecord",
    "given_bytes",
    "measured",
    "note_crossings",
    "record_answer",
    "record_at_once",
    "record_refused",
    "record_served",
]


def measured(span: int, instance: Instance) -> Any:
    """Begin to measure time on an instance's GPU for a request that is recorded; None where it cannot be."""
    log = recording.active
    return None if log is None else log.measure((span,), instance.gpu)


def note_crossings(log: Log, span: int, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    """Record how many of a request's tensors came to another device when they were handed over."""
    moved = sum(
        isinstance(a._array, np.ndarray) is not isinstance(b._array, np.ndarray)
        for a, b in zip(before, after, strict=True)
    )
    if moved:
        log.crossed.extend((span, moved))


def record_refused(
    sender: Execution, request: InferenceRequest, kind: str, response: InferenceResponse
) -> None:
    """Record a request that was not sent at all."""
    model = sender.server.find(request._model_name, request._model_version)
    seen = ModelSeen(request._model_name, 0) if model is None else model.seen
    recording.refused(seen, sender.span, kind, request._options.request_id, response)


def record_at_once(
    model: LoadedModel,
    parent: Execution,
    request: InferenceRequest,
    response: InferenceResponse,
    cached: bool = False,
) -> None:
    """Record a request that is answered without an instance."""
    log = recording.active
    if log is None or not request._span:
        return
    now = perf_counter_ns()
    who = request._options.request_id
    log.begin(
        request._span, parent.span, model.seen, request._kind, who, request._inputs, request._arrived, now
    )
    log.answer(request._span, now, response)
    if cached:
        log.cached.append(request._span)


def record_answer(span: int, response: InferenceResponse) -> None:
    """Record the answer of a request whose way is recorded already."""
    log = recording.active
    if log is not None and span:
        log.answer(span, perf_counter_ns(), response)


class InlineRecord:
    """Of a request that runs on its caller's thread; made when it begins, and recorded when it is over."""

    __slots__ = ("_bytes_in", "_execution", "_options", "_rows", "_sent", "_timer")

    def __init__(self, execution: Execution, request: InferenceRequest, rows: int) -> None:
        instance, inputs = execution.instance, request._inputs
        assert instance is not None
        execution.span = span = request._span
        self._execution, self._options, self._sent, self._rows = (
            execution,
            request._options,
            request._arrived,
            rows,
        )
        one = len(inputs) == 1 and inputs[0]._datatype != "BYTES"
        self._bytes_in = inputs[0]._array.nbytes if one else nbytes(inputs)
        self._timer = measured(span, instance) if instance.gpu >= 0 else None

    def ended(self, response: InferenceResponse | None, inferred: int, ended: int) -> None:
        """It has been executed, and answered unless `response` is None."""
        execution, log = self._execution, recording.active
        instance, parent = execution.instance, execution.parent
        if response is None or response._error is not None or execution.ticket is not None:
            self._record(response, inferred, ended, False)
        elif log is not None and instance is not None and parent is not None:  # all at once
            if self._timer is not None:
                self._timer.end()
            outs = response._outputs
            one = len(outs) == 1 and outs[0]._datatype != "BYTES"
            log.whole.extend((
                execution.span, parent.span, instance.place, self._options, self._bytes_in, self._sent, 0,
                execution.thread, self._rows, execution.started, inferred, ended,
                outs[0]._array.nbytes if one else nbytes(outs),
            ))  # fmt: skip

    def failed(self, response: InferenceResponse | None, ended: int) -> None:
        """It has failed; without a response where what struck it goes on to the caller."""
        self._record(response, ended, ended, True)

    def _record(self, response: InferenceResponse | None, inferred: int, ended: int, failed: bool) -> None:
        if self._timer is not None:
            self._timer.end()
        execution, log = self._execution, recording.active
        instance, parent = execution.instance, execution.parent
        if log is None or instance is None or parent is None:
            return
        span, started = execution.span, execution.started
        kind = "ensemble" if parent.combined else "sync"
        who = (span, parent.span, instance.place[0], kind, self._options.request_id)
        log.begun.extend((*who, self._bytes_in, self._sent, started))
        log.placed.extend((span, instance.place, threading.get_ident(), self._rows, started, 0))
        log.ran.extend((span, inferred, ended))
        if execution.ticket is None and (failed or response is not None):
            log.answer(span, ended, response)


def given_bytes(response: InferenceResponse | None, timer: Any) -> int:
    """The size of what a model answered, whose time on a GPU is over."""
    if timer is not None:
        timer.end()
    return 0 if response is None or response._error is not None else nbytes(response._outputs)


def record_served(
    execution: Execution, answered: bool, rows: int, inferred: int, ended: int, bytes_out: int, given_up: bool
) -> None:
    """Record a request that ran alone in the background; `answered` says that it succeeded."""
    log, instance = recording.active, execution.instance
    if log is None or instance is None:
        return
    span, place, started = execution.span, instance.place, execution.started
    if answered and not given_up:
        log.served.extend((span, place, execution.thread, rows, started, inferred, ended, bytes_out))
        return
    log.place(span, place, rows, started)
    log.ran.extend((span, inferred, ended))
    if answered:
        log.end(span, ended, None, 1, bytes_out)
