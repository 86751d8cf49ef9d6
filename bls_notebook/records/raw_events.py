"""What is taken note of while requests run: models, who made and who holds a block of memory, lines of logs.

What becomes of it later is in `spans` and `lifetimes`, which need not be imported until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .base import Record

LEVELS = ("verbose", "info", "warning", "error")
"""Triton's levels, the least first."""


@dataclass(frozen=True, slots=True, repr=False)
class TensorSeen(Record):
    """An input or output as a model's configuration has it: without the batch, -1 for any length."""

    name: str
    dtype: str
    dims: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ModelSeen(Record):
    """A model version that served a span, as it was configured then.

    ``scheduler`` is default, dynamic_batching, sequence_batching or ensemble; ``code`` is a hash of the
    source and ``config`` one of the completed configuration: equal hashes mean the same code. A ``stub``
    answered in its place. ``remote`` is the address of the server that runs it, empty for this process.
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
    """Who made a block of memory, or had it; an empty ``model`` is the notebook.

    The engine's copy of an input belongs to the model that received it, its copy of an output to the model
    that gave it.

    ``request`` numbers the requests of the track from 1, 0 for none; ``span`` is the id of the request's
    span where a profile was on too; ``cell`` is the notebook's cell, ``In [3]``.
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
    """The line of code that made a block of memory; ``line`` is 0 where that is not known.

    ``function`` is empty for a cell's, or a file's, own lines; ``text`` is what the line says.
    """

    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""


NOWHERE = CodeLine()


@dataclass(frozen=True, slots=True, repr=False)
class Holder(Record):
    """Why a block was still alive when the track ended.

    ``kind`` is variable (of the notebook: ``name`` is its name), attribute (of a model: the path
    ``leaky.kept[3]``), response, request, iterator, capsule, view, frame, or unknown; ``remedy`` is what
    to type to let go, where that is known.
    """

    kind: str
    name: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class LogLine(Record):
    """A message that a model logged by `pb_utils.Logger`.

    ``model`` is ``notebook`` for code of the notebook that runs as a model. ``background`` says that it came
    from a thread of which nobody knows who started it.
    """

    level: str
    model: str
    message: str
    file: str = ""
    line: int = 0
    background: bool = False


class Stubbed(str):
    """Name of a model that a stub answered for."""

    __slots__ = ()


def stubs_in(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return the models that stubs answered for, each once, in order."""
    return tuple(dict.fromkeys(str(each) for each in warnings if each.__class__ is Stubbed))


def without_stubs(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return the warnings that are no such marks."""
    return tuple(each for each in warnings if each.__class__ is not Stubbed)


def went_through(stubs: Iterable[str]) -> str:
    """Say in a line what an answer went through."""
    return f"went through a stub: {', '.join(stubs)}; its values are made up"
