"""Records of memory blocks while requests run: their makers, lines of code and owners."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Record


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
