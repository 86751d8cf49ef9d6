"""Records of models as they were configured when they ran, and marks of responses that stubs answered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import NamedTuple

from .base import Record


@dataclass(frozen=True, slots=True, repr=False)
class TensorSeen(Record):
    """An input or output in a model's configuration: dims without the batch, -1 for any length."""

    name: str
    dtype: str
    dims: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ModelSeen(Record):
    """A model version, as it was configured when it ran.

    `scheduler` is default, dynamic_batching, sequence_batching or ensemble. `code` is a hash of the source, and
    `config` one of the completed configuration: equal hashes mean the same content. `stub` is true if a stub answered
    for the model. `remote` is the address of the server that runs the model, empty for this process.
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
