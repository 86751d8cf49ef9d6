"""Callees of a drilled model: the requests that they got, and their answers with a fault."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bls_notebook.devices import OutOfMemoryError, to_gpu
from bls_notebook.engine import LoadedModel, Server, label_of
from bls_notebook.lifetimes.records import Lifetimes
from bls_notebook.pb_utils import InferenceResponse, Tensor, TritonError
from bls_notebook.profiling.records.spans import Span
from bls_notebook.profiling.session import Session
from bls_notebook.repository import Answer, Call, Last, Waiter
from bls_notebook.repository.source import called_models
from bls_notebook.testing.recorded_calls import code_of
from bls_notebook.testing.recording.recording import RecordedAnswers, Recording
from bls_notebook.testing.records import CodePlace

from .faults import CODES, STREAMS, Fault, spoilt
from .timed_request import DelayedResponse


@dataclass(frozen=True)
class Callee:
    """A model that the drilled request reached.

    It got ``asked`` requests and sent ``responses`` responses. ``overlapped``: two of its requests ran at the same
    time, on two instances. ``step``: only ensembles call it. ``sent`` is the line that calls it. ``on_gpu`` maps its
    outputs to their GPUs.
    """

    name: str
    model: LoadedModel
    answers: RecordedAnswers
    asked: int
    responses: int
    overlapped: bool
    step: bool
    sent: CodePlace | None
    on_gpu: dict[str, int]

    @property
    def batching(self) -> bool:
        """True if the first dimension of its tensors is the batch."""
        return self.model.spec.max_batch_size > 0

    def why_not(self, fault: Fault) -> str:
        """Return the reason why a fault is impossible for this model; empty if it is possible."""
        if fault.name in STREAMS:
            return "" if self.model.decoupled else "it is not decoupled"
        if fault.name in ("not-ready", "unloaded") and self.step:
            return "an ensemble keeps its steps in service"
        if fault.name == "unloaded":
            return "" if self.asked > 1 else "it gets only one request"
        if fault.name == "other-order":
            return "" if self.overlapped else "no two of its requests run at the same time, on two instances"
        if fault.name == "out-of-memory":
            return "" if self.on_gpu else "none of its outputs is on a GPU"
        if fault.kind == "data":
            tensors = (response.output_tensors() for response in self.answers.first())
            can = any(spoilt(outputs, fault.name, self.batching) is not None for outputs in tensors)
            return "" if can else "its outputs cannot have such values"
        return ""


def callees_of(model: str, recording: Recording, session: Session, server: Server, lives: Lifetimes) -> list[Callee]:
    """Return the models that a request to `model` reached, in the order of their first requests."""
    spans = session.spans
    names = {span.id: span.model for span in spans}
    out = []
    for name in dict.fromkeys(span.model for span in spans if span.parent and span.model != model):
        callee = server.find(name)
        own = [span for span in spans if span.model == name and span.parent]
        if callee is None:
            continue
        overlapped = any(
            first.instance != other.instance and first.sent < other.ended and other.sent < first.ended
            for first, other in itertools.combinations(own, 2)
        )
        called_by = {names.get(span.parent, "") for span in own}
        steps = [m for m in map(server.find, called_by) if m is not None and m.spec.scheduler == "ensemble"]
        out.append(
            Callee(
                name, callee, recording.answer_of(name), len(own), sum(span.responses for span in own),
                overlapped, len(steps) == len(called_by), _sent(server, session, own[0]), _gpus(lives, name),
            )
        )  # fmt: skip
    return out


def _sent(server: Server, session: Session, span: Span) -> CodePlace | None:
    """Return the line that sent a request."""
    if not span.source:
        return None
    source, code = session.sources[span.source - 1], code_of(session, span)
    model = server.find(source.model)
    names = {} if model is None else {f: Path(f).name if label_of(f) == f else "model.py" for f in _files(model)}
    files = [file for file, name in names.items() if name == source.name]
    label = label_of(files[0]) if files else source.name  # for a model in a cell, the cell's label
    file = f"{source.model}/{source.version}/{source.name}" if label in (*files, source.name) else label
    return CodePlace(source.model, file, span.line, code)


def _gpus(lives: Lifetimes, name: str) -> dict[str, int]:
    """Return the GPU of each output of a model that was on a GPU."""
    out: dict[str, int] = {}
    for life in lives.lives:
        if life.maker.model == name and life.device.startswith("gpu:"):
            for stay in life.stays:
                if stay.role == "output":
                    out[stay.tensor] = int(life.device.partition(":")[2].split()[0])
    return out


def named_in_code(server: Server, names: Iterable[str]) -> set[str]:
    """Return the models that the code of these models names in requests."""
    return {called for model in filter(None, map(server.find, names)) for called in _named(model)}


def _named(model: LoadedModel) -> Iterator[str]:
    yield from model.calls
    for lines in sources_of(model):
        yield from called_models("\n".join(lines))


def sources_of(model: LoadedModel) -> list[list[str]]:
    """Return the lines of each file of a model's code."""
    return [[line.rstrip("\n") for line in lines] for lines in _files(model).values()]


def _files(model: LoadedModel) -> dict[str, list[str]]:
    modules = next((i.modules for i in model.instances if i.modules is not None), None)
    return {} if modules is None else dict(modules.sources)


_LATE = 0.02  # delay (s) of a response of a slow callee
_LATE_IN_ALL = 0.2  # limit (s) for the delays of all responses to one request
_OF_BATCH = 3  # the number of the request that fails: the first one may run alone, before the batch
_PATIENCE = 0.25  # seconds for which the first of two requests waits for the second


class FailingAnswers:
    """Answers of one callee with a fault, as `Answers` of a substitution.

    `delay` keeps a stalled request unanswered; `unload` takes the model out of service.
    """

    def __init__(self, fault: Fault, callee: Callee, delay: DelayedResponse, unload: Callable[[], object]) -> None:
        self.fault, self.callee = fault, callee
        self._delay, self._unload = delay, unload
        self._late = min(_LATE, _LATE_IN_ALL / max(1, callee.responses))
        self._numbers = itertools.count(1)
        self._second = threading.Event()
        self.words = f"drill: '{callee.name}' fails on purpose"
        self.asks_model = False  # whether the real model answers requests that were not recorded
        self.other_requests = 0  # after the error of error-once, requests that a run without a fault does not send

    def restart(self) -> None:
        """Count requests from 1 again: the next one fails if only the first one does."""
        self._numbers = itertools.count(1)

    def answer(self, call: Call, wait: Waiter) -> Iterator[Answer]:
        answers = self._answers(wait, next(self._numbers))
        if self.fault.kind == "stall":
            yield from answers
            return
        every = list(answers)
        if not wait.decoupled:
            yield every[0]
        # An error and the final flag come together; other responses have the flag as in the recording.
        elif every and (
            isinstance(every[-1], TritonError) or self.fault.kind == "error" or not self.callee.answers.flag_alone
        ):
            yield from every[:-1]
            yield Last(every[-1])
        else:
            yield from every

    def _answers(self, wait: Waiter, number: int) -> Iterator[InferenceResponse | TritonError]:
        name = self.fault.name
        fails = number == {"error-once": 1, "one-of-batch": _OF_BATCH}.get(name)
        if fails or name in ("error", "cancelled", "raises", "out-of-memory"):
            yield self._failure(name)
            return
        if name == "error-once" and not self.callee.answers.knows(wait.request):
            self.other_requests += 1
        if name in ("stall", "client-cancels"):
            self._delay.wait(wait)
            yield TritonError(f"drill: '{self.callee.name}' was released")
            return
        if name == "other-order" and number == 1:
            wait.until(self._second.is_set, _PATIENCE)
        known = not self.asks_model or self.callee.answers.knows(wait.request)
        for response in self._changed(name, self.callee.answers.similar(wait.request) if known else list(wait.ask())):
            if name == "slow":
                wait.sleep(self._late)
            yield self._on_gpu(response)
        if name == "no-final-flag":
            self._delay.wait(wait)
        elif name == "unloaded" and number == 1:  # a second request may unload at the same time
            self._unload()
        self._second.set()

    def _failure(self, name: str) -> TritonError:
        if name == "raises":
            raise RuntimeError(f"{self.words}\nwith an exception of two lines")
        if name == "out-of-memory":
            raise OutOfMemoryError(1 << 30, 0, 1 << 20, "gpu:0")
        return TritonError(self.words, getattr(TritonError, CODES.get(name, "INTERNAL")))

    def _changed(self, name: str, responses: list[InferenceResponse]) -> Iterator[InferenceResponse]:
        if name == "no-response":
            return
        if name in ("early-end", "error-midway"):
            responses = responses[: len(responses) // 2]
        for response in responses:
            changed = None
            if self.fault.kind == "data":
                changed = spoilt(response.output_tensors(), name, self.callee.batching)
            yield response if changed is None else InferenceResponse(changed)
            if name == "duplicate":
                yield InferenceResponse(response.output_tensors())
        if name == "error-midway":
            yield InferenceResponse(error=TritonError(self.words))

    def _on_gpu(self, response: InferenceResponse) -> InferenceResponse:
        """Return the response with its outputs on the same GPUs as in the recording."""
        gpus = self.callee.on_gpu
        if not gpus or response.has_error():
            return response
        tensors = []
        for tensor in response.output_tensors():
            if tensor._name in gpus and tensor._datatype != "BYTES" and tensor.is_cpu():
                array: Any = to_gpu(tensor._array, gpus[tensor._name])
                tensor = Tensor._of(tensor._name, array, tensor._datatype)
            tensors.append(tensor)
        return InferenceResponse(tensors)
