"""What is remembered of models, requests and responses: frozen, JSON-able, never drawn here."""

from __future__ import annotations

from dataclasses import dataclass

from .changes import Change
from .errors import ErrorRecord
from .plain import Record
from .tensors import Figures, Media


@dataclass(frozen=True, slots=True, repr=False)
class TensorRecord(Record):
    """One tensor as it was seen: what it is, where it lies, and its first few elements.

    ``device`` is ``cpu``, ``gpu:0`` or ``gpu:0 (simulated)``; ``bytes`` is -1 where it is not known.
    ``figures`` and ``pictures`` are there where somebody looked at all of it.
    """

    name: str
    datatype: str
    shape: tuple[int, ...] = ()
    device: str = "cpu"
    bytes: int = -1
    preview: str = ""
    figures: Figures | None = None
    pictures: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ResponseRecord(Record):
    """One response; ``seconds`` is the time since the request was sent.

    ``index`` counts the responses of a stream, or the requests of a run, from 0; ``final`` says that no
    more follow. ``stubs`` are the models on its way that stubs answered for.
    """

    model: str
    version: int = 0
    request_id: str = ""
    tensors: tuple[TensorRecord, ...] = ()
    error: ErrorRecord | None = None
    warnings: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str | int | bool], ...] = ()
    seconds: float | None = None
    final: bool = True
    index: int = 0
    stubs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class TensorSpecRecord(Record):
    """An input or output that a model's config declares; ``dims`` are the config's, without the batch."""

    name: str
    datatype: str
    dims: tuple[int, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class ModelRecord(Record):
    """One version of a model.

    ``state`` is READY, LOADING, UNLOADING or UNAVAILABLE; ``source`` is ``cell``, a folder, or empty.
    ``changes`` are those to the definition before, where a cell has defined it again. ``stub`` is why a stub
    answers in its place, empty where it answers itself; ``remote`` the address of the server that runs it,
    empty where that is this process.
    """

    name: str
    version: int = 1
    state: str = "READY"
    reason: str = ""
    backend: str = ""
    source: str = ""
    load_seconds: float | None = None
    max_batch_size: int = 0
    decoupled: bool = False
    instances: int = 1
    instance_kind: str = ""
    inputs: tuple[TensorSpecRecord, ...] = ()
    outputs: tuple[TensorSpecRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    stub: str = ""
    remote: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class MessageRecord(Record):
    """One line for the person at the notebook; ``kind`` is done, info, warning or error."""

    text: str
    kind: str = "done"
    hint: str = ""
    seconds: float | None = None
