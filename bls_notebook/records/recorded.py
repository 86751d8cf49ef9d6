"""Recorded requests and responses, with the names of their tensors' values. Frozen; arrays are separate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .base import Record


@dataclass(frozen=True, slots=True, repr=False)
class TensorKept(Record):
    """A tensor of a request or response, in the shape that it was sent in.

    ``values`` names where its values are: a member of the file, equal for equal values. It is empty where they were not
    kept, for their size (``cut``) or because nobody asked for them. ``preview`` are its first elements.
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
    """A response; ``ns`` is when it was given, after the recording began.

    ``parameters`` is JSON text. ``error`` is None where there is none, ``code`` its code.
    """

    tensors: tuple[TensorKept, ...] = ()
    error: str | None = None
    code: str = ""
    parameters: str = "{}"
    final: bool = True
    ns: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class RequestKept(Record):
    """A request, with the responses that it got.

    ``id`` counts all requests from 1 on, and is the id of its span in a profile of the same time. ``parent``
    is the id of the request whose execution sent it: 0 outside any model, -1 for a model of which nothing was
    kept. ``version`` is the one that served it, ``asked_version`` what was asked for (-1: the newest).
    ``kind`` is how it was sent: sync, async, stream, or ensemble (a step of one). ``parameters`` is JSON
    text, ``ns`` when it was sent, after the recording began.
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
        """Whether it came from outside any model."""
        return self.parent == 0

    @property
    def took_ns(self) -> int | None:
        """How long until its last response; None where that was not recorded."""
        last = self.responses[-1] if self.responses else None
        return last.ns - self.ns if last is not None and self.answered else None

    @property
    def tensors(self) -> Iterator[TensorKept]:
        """Those of the request and its responses."""
        yield from self.inputs
        for response in self.responses:
            yield from response.tensors

    @property
    def whole(self) -> bool:
        """Whether the values of its inputs are there: it can be sent again."""
        return all(tensor.values for tensor in self.inputs)

    @property
    def answered(self) -> bool:
        """Whether its last response is there; of a stream that went on it is not."""
        return bool(self.responses) and self.responses[-1].final

    @property
    def error(self) -> str | None:
        """The error of its last response, if it has one."""
        return self.responses[-1].error if self.responses else None
