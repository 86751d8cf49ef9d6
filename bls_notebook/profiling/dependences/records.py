"""The result of `overlap`: calls, their dependences, the changed program. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.profiling.code_lines import CodeLine
from bls_notebook.profiling.session import Session
from bls_notebook.records import Change, Record


@dataclass(frozen=True, slots=True, repr=False)
class SentCall(Record):
    """A call of the recorded run, to the callee ``model``.

    ``request`` numbers the model's own request from 0, ``span`` is the call's id in `Overlap.written` (0 if it is not
    there), ``line`` the line of code that sent it.
    """

    model: str
    request: int = 0
    span: int = 0
    line: CodeLine | None = None

    def __str__(self) -> str:
        return f"`{self.model}`" + (f" (line {self.line.line})" if self.line is not None else "")


@dataclass(frozen=True, slots=True, repr=False)
class Dependence(Record):
    """Why call ``later`` has to follow call ``earlier``, or may have to (both index `Overlap.calls`).

    ``outcome`` is ``dependent`` (by data, then ``inputs`` names the inputs of the later call that changed; or by the
    state of a callee), ``control`` (the later call was not sent) or ``unknown``; a pair without a `Dependence` showed
    none. ``reason`` is a clause that explains it and, if it is unknown, how to settle it.
    """

    earlier: int
    later: int
    outcome: str
    reason: str = ""
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class CodeChange(Record):
    """The program that sends independent calls together.

    ``source`` is the whole changed file and ``change`` its diff; without it, ``reason`` says why and ``template``
    shows the calls to write. ``proof`` is the result of a run with the real callees, ``proven`` whether its answers
    were equal and it was faster. ``file`` names the source, ``folder`` its folder on disk. ``predicted`` is the speedup
    of this program, which may have only some of the independent calls in flight together; 0 if it is the `Overlap`'s.
    """

    file: str = ""
    folder: str = ""
    source: str = ""
    change: Change | None = None
    reason: str = ""
    template: str = ""
    proof: str = ""
    proven: bool = False
    predicted: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Overlap(Record):
    """The independent calls of an `execute`, and the gain of running them together.

    ``outcome`` is ``independent`` (no dependence seen in at least ``changes`` changed answers; also of a single
    call), ``dependent``, ``control`` or ``unknown``; ``sentence`` states it, ``problem`` why the analysis failed.
    ``calls`` are in the order of sending, ``stages`` groups them by the earliest stage in which they can be sent;
    the calls of ``together`` stages did not all run together, those of other stages did. ``runs`` counts runs of the
    model, ``callee_requests`` requests to its callees. ``written`` is the session of the recorded run, with `ghosts`
    where calls could start; ``changed`` is the session of the changed program. ``predicted`` is the speedup by the
    spans of ``written``, ``speedup`` the measured one (0: not run). ``uncalled`` are models that the code names and the
    requests did not call.
    ``batch`` requests were sent at once, if the change gathers the requests of a batch; ``written`` is their session.
    """

    model: str
    requests: int
    outcome: str
    sentence: str
    problem: str
    calls: tuple[SentCall, ...]
    dependences: tuple[Dependence, ...]
    stages: tuple[tuple[int, ...], ...]
    together: tuple[tuple[int, ...], ...]
    changes: int
    runs: int
    callee_requests: int
    seconds: float
    predicted: float
    written: Session
    changed: Session | None = None
    speedup: float = 0.0
    notes: tuple[str, ...] = ()
    code: CodeChange | None = None
    uncalled: tuple[str, ...] = ()
    batch: int = 0

    @property
    def already(self) -> list[tuple[int, ...]]:
        """Stages of several calls that ran together as the model is written."""
        return [stage for stage in self.stages if len(stage) > 1 and stage not in self.together]
