"""Records of models: their versions, inputs and outputs, changed files, filled templates; models as they ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import NamedTuple

from .base import Printable, Record


@dataclass(frozen=True, slots=True, repr=False)
class Change(Record):
    """A changed file: the numbers of added and removed lines, and these lines with their neighbors.

    Each of `lines` is a sign and a text: ``+`` added, ``-`` removed, a space for unchanged, ``…`` for a gap. `numbers`
    are the line numbers in the old file, 0 for added lines; the tuple may be empty.
    """

    file: str
    added: int = 0
    removed: int = 0
    lines: tuple[tuple[str, str], ...] = ()
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Fill(Record):
    """The value of a template parameter, and its origin.

    `origin` is ``given``, ``environment``, ``in the file`` (the template has a default), ``default`` or ``its folder``;
    `places` are the fields with this value, such as ``max_batch_size``.
    """

    key: str
    value: str
    origin: str
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class TensorSpecRecord(Record):
    """An input or output in a model's configuration; `dims` are the configuration's, without the batch."""

    name: str
    datatype: str
    dims: tuple[int, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class ModelRecord(Record):
    """One version of a model.

    `state` is READY, LOADING, UNLOADING or UNAVAILABLE; `source` is ``cell``, a folder, or empty. `changes` are the
    differences from the earlier definition, if a cell redefined the model. `stub` is the reason why a stub answers for
    the model, or empty. `remote` is the address of the server that runs the model, empty for this process.
    `config_source` is the config.pbtxt that a cell kept, or empty. `processes` is true if each instance is a process.
    `server_reason` is the error of a failed load in Triton's words, or empty.
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
    config_source: str = ""
    processes: bool = False
    server_reason: str = ""


class ModelRecords(list[ModelRecord], Printable):
    """Records of models; `print` shows them as one table."""


def fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    """Return whether a shape has the declared sizes; -1 allows any size."""
    return len(shape) == len(declared) and all(d in (-1, size) for d, size in zip(declared, shape, strict=True))


@dataclass(frozen=True, slots=True, repr=False)
class TensorSeen(Record):
    """An input or output in a model's configuration: dims without the batch, -1 for any length."""

    name: str
    dtype: str
    dims: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ModelSeen(Record):
    """A model version with its configuration during the run.

    `scheduler` is default, dynamic_batching, sequence_batching or ensemble. `code` is a hash of the source, and
    `config` one of the completed configuration: equal hashes mean the same content. `stub` is true if a stub answered
    for the model. `remote` is the address of the server that runs the model, empty for this process. `processes`:
    its instances are processes.
    """

    name: str
    version: int = 1
    backend: str = ""
    scheduler: str = "default"
    instances: tuple[str, ...] = ()
    max_batch_size: int = 0
    decoupled: bool = False
    is_async: bool = False
    code: str = ""
    config: str = ""
    inputs: tuple[TensorSeen, ...] = ()
    outputs: tuple[TensorSeen, ...] = ()
    stub: bool = False
    remote: str = ""
    processes: bool = False


class RecordedInstance(NamedTuple):
    """An instance: where a request ran."""

    model: ModelSeen
    name: str
    device: str
    execute: CodeType | None


class Stubbed(str):
    """A mark among the warnings of a response: the name of a model for which a stub answered."""

    __slots__ = ()


def stubs_in(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return the models for which stubs answered, each once, in order."""
    return tuple(dict.fromkeys(str(warning) for warning in warnings if warning.__class__ is Stubbed))


def without_stubs(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return the warnings without the marks of stubs."""
    return tuple(warning for warning in warnings if warning.__class__ is not Stubbed)


def went_through(stubs: Iterable[str]) -> str:
    """Return the line that says which stubs took part in a response."""
    return f"went through a stub: {', '.join(stubs)}; its values are made up"
