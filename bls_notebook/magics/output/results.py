"""What magics return besides a single Response or ModelRecord: lists that know how to show themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from bls_notebook import Response

if TYPE_CHECKING:
    from bls_notebook.observe.records.repository import ResponseRecord

__all__ = ["Families", "Models", "Records", "Responses", "Statistics"]

T = TypeVar("T")


class Records(list[T]):
    """Shown as one table where it is the value of a cell; inside something else it is told how many."""

    of = "ModelRecord"  # by name: records are imported when there is one

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,}>"


class Models(Records[Any]):
    """Records of models, shown as one table."""


class Statistics(Records[Any]):
    """What models have done, shown as one table."""

    of = "StatisticsRecord"


class Families(Records[Any]):
    """Families of metrics, shown as one table."""

    of = "FamilyRecord"


class Responses(Records[Response]):
    """Responses, shown as one table: of one request that streams, or of one request each.

    A stream is ``complete`` when it has come to its end, and ``running`` while responses may still come;
    ``shown_in`` is the number of the cell that has shown them already, while they came.
    """

    def __init__(self, responses: Iterable[Response] = (), *, stream: bool = False) -> None:
        super().__init__(responses)
        self.stream = stream
        self.complete = self.running = False
        self.shown_in: int | None = None

    @property
    def records(self) -> list[ResponseRecord]:
        """Plain data about them; those of separate requests are numbered from 0."""
        if self.stream:
            records = [response.record for response in self]
            if records and self.complete:  # the final flag may have come by itself
                records[-1] = replace(records[-1], final=True)
            return records
        return [replace(response.record, index=i) for i, response in enumerate(self)]
