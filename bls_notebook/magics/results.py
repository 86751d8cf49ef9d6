"""What magics return besides a single Response or ModelRecord: lists that know how to show themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bls_notebook import Response
from bls_notebook.observe.records import ModelRecord, ResponseRecord

__all__ = ["Models", "Responses"]


class Models(list[ModelRecord]):
    """Records of models, shown as one table."""


class Responses(list[Response]):
    """Responses, shown as one table.

    Attributes
    ----------
    stream : bool
        Whether they are of one request that streams, not of one request each.
    shown_in : int or None
        The execution count of the cell that has shown them already, while they came.
    """

    def __init__(self, responses: Iterable[Response] = (), *, stream: bool = False) -> None:
        super().__init__(responses)
        self.stream = stream
        self.shown_in: int | None = None

    @property
    def records(self) -> list[ResponseRecord]:
        """Plain data about them; those of separate requests are numbered from 0."""
        if self.stream:
            return [response.record for response in self]
        return [replace(response.record, index=i) for i, response in enumerate(self)]
