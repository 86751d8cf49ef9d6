"""Records of requests kept in recordings, drills and replays: frozen and JSON-able, without arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bls_notebook.inspection.records import TensorsCompared
from bls_notebook.profiling.session import Session
from bls_notebook.records import Record, TensorRecord

# The verdicts on a case: the class of each (good, odd, bad, or open if nothing can be said), and its meaning.
_LINES = Path(__file__).with_name("verdicts.txt").read_text("utf-8").splitlines()
VERDICTS = {name: (worth, meaning) for name, worth, meaning in (line.split("|") for line in _LINES)}
BAD = tuple(verdict for verdict, (worth, _) in VERDICTS.items() if worth == "bad")


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
    """One fault, or two at a time, and the verdict on the model.

    ``verdict`` is one of `VERDICTS`; ``said`` explains it in a line. ``error`` is the model's error message, or
    empty. ``at`` is the line that failed, ``sent`` the line that calls the failing callee; either is None if
    unknown. ``calls`` counts the requests that the failing callee got.
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
        """Class of the verdict: good, odd, bad or open."""
        return VERDICTS.get(self.verdict, ("open", ""))[0]

    @property
    def name(self) -> str:
        return " and ".join(f"{each.model}: {each.fault}" for each in self.faults)


@dataclass(frozen=True, slots=True, repr=False)
class Drilled(Record):
    """Result of a drill: the cases of one model and one request.

    ``callees`` are the models that the request reached; ``unreached`` are further models that the code names.
    ``notes`` say which checks were left out, and why; ``untried`` has a line for each group of untried faults.
    """

    model: str
    version: int = 0
    callees: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    cases: tuple[DrilledCase, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    timeout: float = 0.0
    untried: tuple[str, ...] = ()

    def of(self, worth: str) -> tuple[DrilledCase, ...]:
        """Return the cases of one class of verdicts: good, odd, bad or open."""
        return tuple(case for case in self.cases if case.worth == worth)

    def case(self, model: str, fault: str) -> DrilledCase:
        """Return the case of one fault of one model.

        Raises KeyError if there is none.
        """
        for case in self.cases:
            if case.faults == (Planted(model, fault),):
                return case
        raise KeyError(f"no case {model}: {fault}; there are {', '.join(c.name for c in self.cases)}")


@dataclass(frozen=True, slots=True, repr=False)
class Recorded(Record):
    """Requests of a recording.

    ``began`` is the date and time. ``tensors`` says which requests have values, up to ``limit`` bytes: ``outside``
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
        """Number of tensors whose values were left out because of the limit."""
        return sum(tensor.cut for request in self.requests for tensor in request.tensors)

    @property
    def cut_bytes(self) -> int:
        """Bytes of the tensors that were left out because of the limit."""
        return sum(t.bytes for request in self.requests for t in request.tensors if t.cut)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the recorded values; equal values count once."""
        return sum({t.values: t.bytes for r in self.requests for t in r.tensors if t.values}.values())


@dataclass(frozen=True, slots=True, repr=False)
class Resent(Record):
    """A request that was sent again; ``id`` is its number in the recording.

    ``what`` has one line per difference, none if the responses are equal. ``tensors`` compares outputs that
    differ; ``inputs`` are the request's inputs if anything differs. ``then_ns`` and ``now_ns`` are the latencies.
    ``begins`` names the first hop that differs, if all hops were recorded. ``error`` is the error of both. ``calls``
    has one line for each callee that got more or fewer requests than recorded, also if the responses are equal.
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
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Replay(Record):
    """Result of a replay in this process or on a server (``place``).

    ``to`` is the model that got the requests, if it is not the recorded one. ``only`` is the model that ran
    alone, ``stubbed`` are its callees, answered from the recording. ``skipped`` says which requests could not be
    sent again or compared.
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
        """True if there were responses, and each was as recorded."""
        return bool(self.requests) and not self.unequal

    @property
    def unequal(self) -> tuple[Resent, ...]:
        """The requests with a response other than recorded."""
        return tuple(request for request in self.requests if request.what)


@dataclass(frozen=True, slots=True, repr=False)
class TensorKept(Record):
    """A tensor of a request or response, in the shape in which it was sent.

    ``values`` is the name of the file's member with its values, the same for equal values. It is empty without
    values: they exceeded the limit (``cut``), or were not to be recorded. ``preview`` has the first elements.
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
    """A response; ``ns`` is its time after the start of the recording.

    ``parameters`` is JSON text. ``error`` is a message or None, ``code`` the error code.
    """

    tensors: tuple[TensorKept, ...] = ()
    error: str | None = None
    code: str = ""
    parameters: str = "{}"
    final: bool = True
    ns: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class RequestKept(Record):
    """A request and its responses.

    ``id`` counts all requests from 1 on, and is the id of its span in a profile of the same time. ``parent``
    is the id of the request whose execution sent it: 0 outside any model, -1 if the sender was not recorded.
    ``version`` is the one that served it, ``asked_version`` the requested one (-1: the newest). ``kind`` is
    sync, async, stream, or ensemble (a step). ``parameters`` is JSON text, ``ns`` the time of sending after the
    start of the recording.
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
        """True if it came from outside any model."""
        return self.parent == 0

    @property
    def took_ns(self) -> int | None:
        """Time until its last response; None if that was not recorded."""
        last = self.responses[-1] if self.responses else None
        return last.ns - self.ns if last is not None and self.answered else None

    @property
    def tensors(self) -> Iterator[TensorKept]:
        yield from self.inputs
        for response in self.responses:
            yield from response.tensors

    @property
    def whole(self) -> bool:
        """True if the values of its inputs were recorded, so that it can be sent again."""
        return all(tensor.values for tensor in self.inputs)

    @property
    def answered(self) -> bool:
        """True if its last response was recorded; false for a stream that continued after the recording."""
        return bool(self.responses) and self.responses[-1].final

    @property
    def error(self) -> str | None:
        """The error of its last response, or None."""
        return self.responses[-1].error if self.responses else None
