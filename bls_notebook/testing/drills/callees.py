"""The callees of a model, from a recording and a profile of one request: their recorded answers, and the
line that calls each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.exception_text import label_of
from bls_notebook.lifetimes.records import Lifetimes
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import Span
from bls_notebook.repository.source.syntax import called_models
from bls_notebook.testing.recording.recording import RecordedAnswers, Recording
from bls_notebook.testing.records.drilled import CodePlace

from .faults import STREAMS, Fault, spoilt


@dataclass(frozen=True)
class Callee:
    """A model that a request reached.

    ``asked`` is how often, ``responses`` how many answers it gave; ``overlapped`` whether two of its requests
    were in flight together, on two instances; ``step`` whether only ensembles asked it; ``on_gpu`` the GPUs
    of its outputs.
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
        """Whether the first dimension of its tensors is that of the batch."""
        return self.model.spec.max_batch_size > 0

    def can(self, fault: Fault) -> bool:
        """Whether it can misbehave so."""
        if fault.name in STREAMS:
            return self.model.decoupled
        if fault.name in ("not-ready", "unloaded") and self.step:
            return False  # an ensemble keeps its steps in service
        if fault.name == "unloaded":
            return self.asked > 1
        if fault.name == "other-order":
            return self.overlapped
        if fault.name == "out-of-memory":
            return bool(self.on_gpu)
        if fault.kind == "data":
            first = self.answers.first()
            return any(spoilt(r.output_tensors(), fault.name, self.batching) is not None for r in first)
        return True


def callees_of(model: str, recording: Recording, session: Session, server: Server, lives: Lifetimes) -> list[Callee]:
    """Return the models that a request to `model` reached, in the order in which it did."""
    spans = session.spans
    names = {span.id: span.model for span in spans}
    out = []
    for name in dict.fromkeys(span.model for span in spans if span.parent and span.model != model):
        found = server.find(name)
        own = [span for span in spans if span.model == name and span.parent]
        if found is None:
            continue
        both = [
            1
            for i, first in enumerate(own)
            for other in own[i + 1 :]
            if first.instance != other.instance and first.sent < other.ended and other.sent < first.ended
        ]
        called_by = {names.get(span.parent, "") for span in own}
        steps = [m for m in map(server.find, called_by) if m is not None and m.spec.scheduler == "ensemble"]
        out.append(
            Callee(
                name, found, recording.answer_of(name), len(own), sum(span.responses for span in own),
                bool(both),
                len(steps) == len(called_by), _sent(server, session, own[0]), _gpus(lives, name),
            )
        )  # fmt: skip
    return out


def _sent(server: Server, session: Session, span: Span) -> CodePlace | None:
    """The line that sent a request."""
    if not span.source:
        return None
    found = session.sources[span.source - 1]
    lines = found.text.splitlines()
    code = lines[span.line - 1].strip() if 0 < span.line <= len(lines) else ""
    model = server.find(found.model)
    files = [] if model is None else [file for file in _files(model) if Path(file).name == found.name]
    label = label_of(files[0]) if files else found.name  # of a cell it is the cell's
    file = f"{found.model}/{found.version}/{found.name}" if label in (*files, found.name) else label
    return CodePlace(found.model, file, span.line, code)


def _gpus(lives: Lifetimes, name: str) -> dict[str, int]:
    """The GPUs that the outputs of a model were on."""
    out: dict[str, int] = {}
    for life in lives.lives:
        if life.maker.model == name and life.device.startswith("gpu:"):
            for stay in life.stays:
                if stay.role == "output":
                    out[stay.tensor] = int(life.device.partition(":")[2].split()[0])
    return out


def named_in_code(server: Server, names: Iterable[str]) -> set[str]:
    """Return the models that the code of some models names in requests."""
    return {called for model in filter(None, map(server.find, names)) for called in _named(model)}


def _named(model: LoadedModel) -> Iterator[str]:
    yield from model.calls
    for lines in sources_of(model):
        yield from called_models("\n".join(lines))


def sources_of(model: LoadedModel) -> list[list[str]]:
    """Return the files of a model's code, each as its lines."""
    return [[line.rstrip("\n") for line in lines] for lines in _files(model).values()]


def _files(model: LoadedModel) -> dict[str, list[str]]:
    modules = next((i.modules for i in model.instances if i.modules is not None), None)
    return {} if modules is None else dict(modules.sources)
