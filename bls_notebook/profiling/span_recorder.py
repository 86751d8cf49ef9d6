"""`SpanRecorder`: the observer that writes the log of profiles, and `Observation`, which switches it on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from sys import _getframe
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import Any

import numpy as np

from bls_notebook.devices import gpu_arrays, nbytes
from bls_notebook.engine import Execution, LoadedModel, observer
from bls_notebook.engine.observer import Observed, Observer
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records import ModelSeen, RecordedInstance

from .own_code import awaiting_stack, own_stack
from .request_log import Begun, Crossed, HeldBack, Log, Ran, Timed, new_log


class SpanRecorder(Observer):
    """Writes the events of requests into a log."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def received(
        self,
        model: LoadedModel,
        request: InferenceRequest,
        inputs: Sequence[Tensor],
        copy: InferenceRequest,
        sender: Execution,
    ) -> None:
        log, observed, tensors = self.log, copy._observed, copy._inputs
        try:
            span = log.numbers.popleft()
        except IndexError:
            span = log.take()
        observed.span = span
        if not span:
            return
        observed.sent_bytes, observed.timer = 0, None
        if model.text_in:
            observed.size = nbytes(tensors)
        else:
            size = 0
            for tensor in tensors:
                size += tensor._array.nbytes
            observed.size = size
        if log.sites is not None:
            stack: list[Any] = []
            if site := getattr(request, "_site", ()):
                stack += site
            elif observed.kind != "ensemble":
                # Beyond this function, `received`, and `exec` of the execution and of the request; the stack is
                # shorter if a thread's target is `exec` itself.
                with contextlib.suppress(ValueError):
                    stack = own_stack(_getframe(4))
                if sender.task is not None and sender.thread == get_ident():
                    stack += awaiting_stack(sender.task)
            shapes = tuple([(tensor._name, tuple(tensor._array.shape)) for tensor in tensors])
            log.sites.extend((span, tuple(stack), shapes))  # a `SentFrom`
        if gpu_arrays and model.cpu_only:
            self.crossed(observed, sum(map(_differ, inputs, tensors)))

    def refused(
        self, sender: Execution, request: InferenceRequest, observed: Observed, response: InferenceResponse
    ) -> None:
        observed.span, observed.size, observed.sent_bytes = self.log.take(), nbytes(request._inputs), 0
        if observed.span:
            model, now = sender.server.find(request._model_name, request._model_version), perf_counter_ns()
            seen = ModelSeen(request._model_name, 0) if model is None else model.seen
            self._begun(observed, seen, sender, request, now, now)

    def sent(self, model: LoadedModel, parent: Execution | None, request: InferenceRequest, queued: int) -> None:
        if request._observed.span:
            self._begun(request._observed, model.seen, parent, request, request._arrived, queued)

    def _begun(
        self, observed: Observed, seen: ModelSeen, parent: Execution | None, request: InferenceRequest, sent: int,
        queued: int,
    ) -> None:  # fmt: skip
        sender = 0 if parent is None or parent.observed is None else parent.observed.span
        entry = Begun(observed.span, sender, seen, observed.kind, request._options, observed.size, sent, queued)
        self.log.begun.extend(entry)

    def began(
        self, batch: Sequence[Observed | None], rows: Sequence[int], place: RecordedInstance, now: int, gpu: int = -1
    ) -> None:
        log, timer = self.log, None
        recorded = [(o, count) for o, count in zip(batch, rows, strict=True) if o is not None and o.span]
        first = recorded[0][0].span if len(recorded) > 1 else 0
        if gpu >= 0 and recorded and log.device_timer is not None:
            timer = recorded[0][0].timer = log.device_timer(gpu)
        for observed, count in recorded:
            if timer is not None:
                log.timed.extend(Timed(observed.span, timer))
            log.place(observed.span, place, count, now, first)

    def ended(self, batch: Sequence[Observed | None], inferred: int, released: int) -> None:
        for observed in batch:
            if observed is not None and observed.span:
                if observed.timer is not None:
                    observed.timer.end()
                self.log.ran.extend(Ran(observed.span, inferred, released, get_ident(), thread_time_ns()))

    def answered(self, observed: Observed, response: InferenceResponse, final: bool = True, ticket: Any = None) -> None:
        if not observed.span:
            return
        log, now, error = self.log, perf_counter_ns(), response._error
        count = int(error is None)
        if error is None:
            observed.sent_bytes += nbytes(response._outputs)
        if ticket is not None and ticket.model.decoupled:
            log.mark(observed.span, now, "final" if final else "response")
            count = max(0, ticket._sent - (not response._outputs))
        if final:
            given_up = ticket is not None and ticket.cancelled and error is None
            log.end(observed.span, now, None if given_up else response, count, observed.sent_bytes)

    def marked(self, observed: Observed, kind: str) -> None:
        if not observed.span:
            return
        if kind == "cached":
            self.log.cached.append(observed.span)
        elif kind == "released":
            self.log.held.extend(HeldBack(observed.span, perf_counter_ns()))
        else:
            self.log.mark(observed.span, perf_counter_ns(), kind)

    def crossed(self, observed: Observed | None, count: int) -> None:
        if count and observed is not None and observed.span:
            self.log.crossed.extend(Crossed(observed.span, count))


def _differ(before: Tensor, after: Tensor) -> bool:
    return isinstance(before._array, np.ndarray) is not isinstance(after._array, np.ndarray)


def running_log() -> Log | None:
    """Return the log of the profiles that are on."""
    return next((one.log for one in observer.observers() if isinstance(one, SpanRecorder)), None)


class Observation:
    """Records the requests to all repositories of the process until `stop`, or until it is garbage-collected.

    Parameters
    ----------
    limit : int
        Number of requests to make room for in `log`; further ones are only counted.
    device_timer : callable, optional
        Measures the time of a model on a GPU; see `Log.device_timer`.
    lines : bool
        Whether to record the lines of code that send requests.
    tape : Observer, optional
        Called with each request and response while their tensors can be read, with the numbers of the log.
    """

    def __init__(
        self,
        limit: int,
        device_timer: Callable[[int], Any] | None = None,
        lines: bool = False,
        tape: Observer | None = None,
    ) -> None:
        self._tape = tape
        with observer.changing:
            log = running_log()
            if log is None:
                log = new_log()
                observer.add(SpanRecorder(log))
            self.log = log
            log.capacity = max(log.capacity, log.given - len(log.numbers) + limit)
            log.device_timer = device_timer or log.device_timer
            if lines and log.sites is None:
                log.sites = []
            log.owners[id(self)] = None
            if tape is not None:
                observer.add(tape)

    def stop(self) -> None:
        with observer.changing:
            if self._tape is not None:
                observer.remove(self._tape)
            self.log.owners.pop(id(self), None)
            if not self.log.owners:
                for one in observer.observers():
                    if isinstance(one, SpanRecorder) and one.log is self.log:
                        observer.remove(one)

    def __del__(self) -> None:
        self.stop()
