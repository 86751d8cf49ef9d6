"""Records of events while requests run: models, creators and owners of memory blocks, log lines, stubs.

They are separate from the records that are computed from them later, whose modules are not imported before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .base import Record

LEVELS = ("verbose", "info", "warning", "error")
"""Triton's log levels, from the least to the most severe."""


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


@dataclass(frozen=True, slots=True, repr=False)
class Maker(Record):
    """The creator of a block of memory; an empty `model` is the notebook.

    The engine's copy of an input belongs to the model that received it, its copy of an output to the model that
    returned it. `request` numbers the requests of the recording from 1, 0 for none. `span` is the id of the request's
    span if a profile was recorded too. `cell` is the notebook's cell, such as ``In [3]``.
    """

    model: str = ""
    version: int = 0
    instance: str = ""
    request: int = 0
    request_id: str = ""
    span: int = 0
    cell: str = ""


NOBODY = Maker()


@dataclass(frozen=True, slots=True, repr=False)
class CodeLine(Record):
    """The line of code that allocated a block of memory; `line` is 0 if it is unknown.

    `function` is empty for code at the top level of a cell or file; `text` is the source of the line.
    """

    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""


NOWHERE = CodeLine()


@dataclass(frozen=True, slots=True, repr=False)
class Holder(Record):
    """An owner: the reason why a block was still alive when the recording ended.

    `kind` is variable (of the notebook, `name` is its name), attribute (of a model, `name` is a path such as
    ``leaky.kept[3]``), response, request, iterator, capsule, view, frame, or unknown. `remedy` is code that releases
    the block, or empty.
    """

    kind: str
    name: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class LogLine(Record):
    """A message that a model logged with `pb_utils.Logger`.

    `model` is ``notebook`` for code in cells such as ``%%bls``. `background` is true if the message came from a thread
    that belongs to no known cell.
    """

    level: str
    model: str
    message: str
    file: str = ""
    line: int = 0
    background: bool = False


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
