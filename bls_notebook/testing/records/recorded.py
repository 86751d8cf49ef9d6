"""A recording without its arrays: requests, and the profile of the same time. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.profiling.records.session import Session
from bls_notebook.records.base import Record
from bls_notebook.records.recorded import RequestKept


@dataclass(frozen=True, slots=True, repr=False)
class Recorded(Record):
    """What was kept while a recording was on.

    ``began`` is the date and time, ``source`` where requests that were not recorded here came from.
    ``tensors`` is of what values were kept: ``outside`` (of requests from outside any model) or ``all``;
    ``limit`` how many bytes of them at most. ``dropped`` counts requests there was no room for. ``session``
    is the profile of the same time.
    """

    name: str = ""
    began: str = ""
    source: str = ""
    tensors: str = "outside"
    limit: int = 0
    dropped: int = 0
    requests: tuple[RequestKept, ...] = ()
    session: Session | None = None
    schema: int = 1

    @property
    def cut(self) -> int:
        """How many tensors were left out because of the limit."""
        return sum(tensor.cut for request in self.requests for tensor in request.tensors)

    @property
    def cut_bytes(self) -> int:
        """Bytes of the tensors that were left out because of the limit."""
        return sum(t.bytes for request in self.requests for t in request.tensors if t.cut)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the values that are there, equal ones once."""
        return sum({t.values: t.bytes for r in self.requests for t in r.tensors if t.values}.values())
