"""Records of exports, certificates of `prove`, and tritonservers of `serve`: frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.base import Record
from bls_notebook.records.repository import TensorRecord, TensorsCompared


@dataclass(frozen=True, slots=True, repr=False)
class ExportedModel(Record):
    """One model of an export.

    ``calls`` are the models that it calls or has as steps, ``absent`` those of them that did not serve here
    and were left out. ``asked`` says whether it was named, or came because another calls it; ``sequences``
    whether it keeps state from request to request, which then have to reach the same server; ``decoupled``
    whether it answers by streams. ``shapes`` are of inputs of any length, to measure it: ``IN:1,3``.
    """

    name: str
    versions: tuple[int, ...] = (1,)
    backend: str = ""
    source: str = ""
    files: int = 0
    bytes: int = 0
    asked: bool = True
    calls: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    on_gpu: bool = False
    sequences: bool = False
    decoupled: bool = False
    shapes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Exported(Record):
    """An export: the folder or archive, the models in it, and what they need on a server.

    ``requirements`` are pip's, with the versions that are installed here; ``unknown`` are modules that the
    models import and that are not installed here. ``shm_bytes`` is what the models' processes need of
    ``/dev/shm``, at least. ``python`` is the version that they ran with.
    ``elsewhere`` are remote models that they call, each with the address of its server.
    ``files`` are those for the ``target`` that the export is for, with so many ``replicas`` of the server.
    """

    place: str
    models: tuple[ExportedModel, ...] = ()
    requirements: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    shm_bytes: int = 0
    python: str = ""
    target: str = ""
    files: tuple[str, ...] = ()
    replicas: int = 1
    elsewhere: tuple[tuple[str, str], ...] = ()

    @property
    def entries(self) -> tuple[str, ...]:
        """The models that none of the others calls."""
        called = {name for model in self.models for name in model.calls}
        return tuple(m.name for m in self.models if m.name not in called) or self.names

    @property
    def on_gpu(self) -> bool:
        """Whether any of them runs on a GPU."""
        return any(model.on_gpu for model in self.models)

    @property
    def sequences(self) -> bool:
        """Whether any of them keeps state from request to request."""
        return any(model.sequences for model in self.models)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models."""
        return tuple(model.name for model in self.models)


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


@dataclass(frozen=True, slots=True, repr=False)
class ServedModel(Record):
    """A model on the server: its versions, state and why, in the server's words; and what it calls."""

    name: str
    versions: tuple[int, ...] = (1,)
    state: str = ""
    reason: str = ""
    backend: str = ""
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ServerRecord(Record):
    """A tritonserver beside the notebook, as it was when somebody looked.

    ``state`` is ``READY``, ``NOT READY``, ``STOPPED`` or ``ENDED`` (by itself). ``program`` says which server
    it is; ``http``, ``grpc`` and ``metrics`` are addresses (host and port). ``log_file`` is there while it
    runs; ``log`` are the last lines of it. ``seconds`` is what starting took, all in all. ``notes`` say what
    is otherwise than in the notebook.
    """

    state: str
    program: str = ""
    version: str = ""
    http: str = ""
    grpc: str = ""
    metrics: str = ""
    models: tuple[ServedModel, ...] = ()
    log_file: str = ""
    log: tuple[str, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
