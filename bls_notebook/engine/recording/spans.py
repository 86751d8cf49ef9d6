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
    from bls_notebook.pb_utils.request import InferenceRequest, Options
    from bls_notebook.pb_utils.response import InferenceResponse
    from bls_notebook.pb_utils.tensor import Tensor

__all__ = [
    "given_bytes",
    "measured",
    "note_crossings",
    "record_answer",
    "record_at_once",
    "record_call",
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


def record_call(
    execution: Execution,
    options: Options,
    bytes_in: int,
    sent: int,
    queued: int,
    rows: int,
    inferred: int,
    ended: int,
    response: InferenceResponse | None,
    failed: bool,
) -> None:
    """Record a request that ran on its caller's thread and did not simply succeed."""
    log, instance, parent = recording.active, execution.instance, execution.parent
    if log is None or instance is None or parent is None:
        return
    span, started = execution.span, execution.started
    kind = "ensemble" if parent.combined else "sync"
    who = (span, parent.span, instance.place[0], kind, options.request_id)
    log.begun.extend((*who, bytes_in, sent, queued or started))
    log.placed.extend((span, instance.place, threading.get_ident(), rows, started, 0))
    log.ran.extend((span, inferred or ended, ended))
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
