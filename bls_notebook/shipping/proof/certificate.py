"""What was proven of a model: the same requests here and on a server, what differed. Frozen."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.base import Record
from bls_notebook.records.repository import TensorRecord, TensorsCompared


@dataclass(frozen=True, slots=True, repr=False)
class Unequal(Record):
    """A request that the two answered differently.

    ``steps`` are the inputs of the requests that show it: one, or those of a sequence from its start.
    ``what`` says what differs, a line each; ``tensors`` are the outputs of one name that do. ``shrunk`` says
    whether it is the smallest request that was found, ``steady`` whether it differed each time.
    """

    what: tuple[str, ...]
    steps: tuple[tuple[TensorRecord, ...], ...] = ()
    tensors: tuple[TensorsCompared, ...] = ()
    shrunk: bool = False
    steady: bool = True


@dataclass(frozen=True, slots=True, repr=False)
class Package(Record):
    """A package that the model imports, with its version on both sides; empty where it is not installed."""

    name: str
    here: str = ""
    there: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class ModelCounts(Record):
    """How often a model was asked and ran on both sides: what Triton's statistics grew by.

    Each side has the requests that were answered, those that failed, inferences (rows) and executions; the
    last is to be the same only where ``batches`` are formed by whoever asks.
    """

    model: str
    here: tuple[int, ...] = ()
    there: tuple[int, ...] = ()
    batches: bool = True

    @property
    def equal(self) -> bool:
        """Whether both have counted the same."""
        return self.here[: 3 + self.batches] == self.there[: 3 + self.batches]


@dataclass(frozen=True, slots=True, repr=False)
class Certificate(Record):
    """The same requests to a model in this process and on a real server, compared bit by bit.

    ``given`` and ``generated`` are how many requests (or sequences of them) were asked for in both places,
    ``failed`` how many of those were answered by the same error. ``tolerance`` and ``ulps`` are what floats
    were allowed to differ by. ``files`` are the SHA-256 of what was served, the models that it calls
    included. ``here_ns`` and ``there_ns`` are medians of how long an answer took: a call in this process, and
    a request over loopback to the server.

    ``alone`` is how many rows of batches were asked for once more by themselves, ``instances`` the instance
    counts with which requests were sent once more, side by side. ``counted`` has the statistics of the model
    and of those that it calls. ``notes`` are what was equal and is still worth knowing. ``seconds`` is how
    long it took to compare.
    """

    model: str
    version: int = 0
    given: int = 0
    generated: int = 0
    failed: int = 0
    seed: int = 0
    tolerance: float = 0.0
    ulps: int = 0
    here: str = ""
    server: str = ""
    packages: tuple[Package, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    here_ns: int = 0
    there_ns: int = 0
    unequal: tuple[Unequal, ...] = ()
    alone: int = 0
    instances: tuple[int, ...] = ()
    counted: tuple[ModelCounts, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether every request was answered alike, and counted alike."""
        return not self.unequal and self.requests > 0 and all(each.equal for each in self.counted)

    @property
    def requests(self) -> int:
        """How many requests, or sequences of them, were compared."""
        return self.given + self.generated
