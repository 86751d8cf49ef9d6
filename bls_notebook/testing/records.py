"""Records of requests kept in recordings, drills and replays: frozen and JSON-able, without arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bls_notebook.profiling.records.session import Session
from bls_notebook.records.base import Record
from bls_notebook.records.repository import TensorRecord, TensorsCompared

# What may come of a case, and what that is worth: good, odd, bad, or open where nothing is said.
VERDICTS = {
    "clear": "good",
    "fallback": "good",
    "unharmed": "good",
    "vague": "odd",
    "stumbles": "odd",
    "silent": "odd",
    "waits": "odd",
    "crash": "bad",
    "rubbish": "bad",
    "hang": "bad",
    "leak": "bad",
    "spoilt": "bad",
    "unaffected": "open",
    "unjudged": "open",
    "not reached": "open",
}


@dataclass(frozen=True, slots=True, repr=False)
class Planted(Record):
    """A fault, and the model that has it."""

    model: str
    fault: str


@dataclass(frozen=True, slots=True, repr=False)
class CodePlace(Record):
    """A line of a model's code."""

    model: str
    file: str = ""
    line: int = 0
    code: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class DrilledCase(Record):
    """One fault, or two at a time, and what came of it.

    ``verdict`` is one of `VERDICTS`; ``said`` why, in a line. ``error`` is what the requester was told, empty
    where it was told nothing. ``at`` is where it went wrong, ``sent`` the line that calls the model that
    misbehaves: each is None where that is not known. ``calls`` counts the requests that this one got.
    """

    faults: tuple[Planted, ...]
    verdict: str
    said: str = ""
    error: str = ""
    at: CodePlace | None = None
    sent: CodePlace | None = None
    calls: int = 0
    seconds: float = 0.0

    @property
    def worth(self) -> str:
        """What the verdict is worth: good, odd, bad or open."""
        return VERDICTS.get(self.verdict, "open")

    @property
    def name(self) -> str:
        """The faults in words."""
        return " and ".join(f"{each.model}: {each.fault}" for each in self.faults)


@dataclass(frozen=True, slots=True, repr=False)
class Drilled(Record):
    """What a model did, one fault after the other, with one request.

    ``callees`` are the models that the request reached, ``unreached`` those that the code names beside them.
    ``notes`` say what was not tried, and why.
    """

    model: str
    version: int = 0
    callees: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    cases: tuple[DrilledCase, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    timeout: float = 0.0

    def of(self, worth: str) -> tuple[DrilledCase, ...]:
        """Return the cases that are worth that: good, odd, bad or open."""
        return tuple(case for case in self.cases if case.worth == worth)

    def case(self, model: str, fault: str) -> DrilledCase:
        """Return the case of one fault of one model.

        Raises KeyError: there is none.
        """
        for case in self.cases:
            if case.faults == (Planted(model, fault),):
                return case
        raise KeyError(f"no case {model}: {fault}; there are {', '.join(c.name for c in self.cases)}")


@dataclass(frozen=True, slots=True, repr=False)
class Recorded(Record):
    """Requests that were kept while a recording was on.

    ``began`` is the date and time. ``tensors`` says whose values were kept, up to ``limit`` bytes: ``outside``
    (requests from outside any model) or ``all``. ``dropped`` counts the requests that did not fit. ``session`` is the
    profile of the same time.
    """

    name: str = ""
    began: str = ""
    tensors: str = "outside"
    limit: int = 0
    dropped: int = 0
    requests: tuple[RequestKept, ...] = ()
    session: Session | None = None
    schema: int = 1

    @property
    def cut(self) -> int:
        """How many tensors were left out because of the limit."""
        return sum(tensor.cut for request in self.requests for tensor in request.tensors)

    @property
    def cut_bytes(self) -> int:
        """Bytes of the tensors that were left out because of the limit."""
        return sum(t.bytes for request in self.requests for t in request.tensors if t.cut)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the values that are there, equal ones once."""
        return sum({t.values: t.bytes for r in self.requests for t in r.tensors if t.values}.values())


@dataclass(frozen=True, slots=True, repr=False)
class Resent(Record):
    """A request that was sent again; ``id`` is its own in the recording.

    ``what`` says what differs, a line each, empty where the answers are equal; ``tensors`` are the outputs of
    one name that do, and ``inputs`` what it was sent with, where something differs. ``then_ns`` and
    ``now_ns`` are how long the answer took. ``begins`` says which hop is the first that is other than
    recorded, where all were kept. ``error`` is the one that both were answered with.
    """

    id: int
    model: str
    what: tuple[str, ...] = ()
    tensors: tuple[TensorsCompared, ...] = ()
    inputs: tuple[TensorRecord, ...] = ()
    then_ns: int = 0
    now_ns: int = 0
    error: str = ""
    begins: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Replay(Record):
    """Recorded requests sent again: to the models of a repository, or to a server (``place``).

    ``to`` is the model that they were sent to, where that was another than the recorded one. ``only`` is the
    model that ran alone, ``stubbed`` those that were answered from the recording. ``skipped`` says which
    requests could not be sent again, or not compared.
    """

    recording: str = ""
    place: str = ""
    to: str = ""
    only: str = ""
    stubbed: tuple[str, ...] = ()
    tolerance: float = 0.0
    ulps: int = 0
    requests: tuple[Resent, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether there were answers, and each was as recorded."""
        return bool(self.requests) and not self.unequal

    @property
    def unequal(self) -> tuple[Resent, ...]:
        """The requests that were answered differently."""
        return tuple(each for each in self.requests if each.what)


@dataclass(frozen=True, slots=True, repr=False)
class TensorKept(Record):
    """A tensor of a request or response, in the shape that it was sent in.

    ``values`` names where its values are: a member of the file, equal for equal values. It is empty where they were not
    kept, for their size (``cut``) or because nobody asked for them. ``preview`` are its first elements.
    """

    name: str
    datatype: str
    shape: tuple[int, ...] = ()
    bytes: int = 0
    values: str = ""
    cut: bool = False
    preview: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class ResponseKept(Record):
    """A response; ``ns`` is when it was given, after the recording began.

    ``parameters`` is JSON text. ``error`` is None where there is none, ``code`` its code.
    """

    tensors: tuple[TensorKept, ...] = ()
    error: str | None = None
    code: str = ""
    parameters: str = "{}"
    final: bool = True
    ns: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class RequestKept(Record):
    """A request, with the responses that it got.

    ``id`` counts all requests from 1 on, and is the id of its span in a profile of the same time. ``parent``
    is the id of the request whose execution sent it: 0 outside any model, -1 for a model of which nothing was
    kept. ``version`` is the one that served it, ``asked_version`` what was asked for (-1: the newest).
    ``kind`` is how it was sent: sync, async, stream, or ensemble (a step of one). ``parameters`` is JSON
    text, ``ns`` when it was sent, after the recording began.
    """

    id: int
    model: str
    parent: int = 0
    version: int = 0
    asked_version: int = -1
    decoupled: bool = False
    kind: str = "sync"
    request_id: str = ""
    correlation_id: int | str = 0
    flags: int = 0
    timeout: int = 0
    priority: int = 0
    parameters: str = "{}"
    outputs: tuple[str, ...] = ()
    inputs: tuple[TensorKept, ...] = ()
    responses: tuple[ResponseKept, ...] = ()
    ns: int = 0

    @property
    def outside(self) -> bool:
        """Whether it came from outside any model."""
        return self.parent == 0

    @property
    def took_ns(self) -> int | None:
        """How long until its last response; None where that was not recorded."""
        last = self.responses[-1] if self.responses else None
        return last.ns - self.ns if last is not None and self.answered else None

    @property
    def tensors(self) -> Iterator[TensorKept]:
        """Those of the request and its responses."""
        yield from self.inputs
        for response in self.responses:
            yield from response.tensors

    @property
    def whole(self) -> bool:
        """Whether the values of its inputs are there: it can be sent again."""
        return all(tensor.values for tensor in self.inputs)

    @property
    def answered(self) -> bool:
        """Whether its last response is there; of a stream that went on it is not."""
        return bool(self.responses) and self.responses[-1].final

    @property
    def error(self) -> str | None:
        """The error of its last response, if it has one."""
        return self.responses[-1].error if self.responses else None
