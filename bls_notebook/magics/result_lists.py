"""What magics return besides a single Response or ModelRecord: lists that know how to show themselves."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, TypeVar

from bls_notebook import Response
from bls_notebook.records.preview import CHARACTERS
from bls_notebook.records.visible_text import first_line

if TYPE_CHECKING:
    from bls_notebook.records.repository import ResponseRecord, StreamRecord

T = TypeVar("T")


class Records(list[T]):
    """A list that is shown as one table where it is the value of a cell; `of` is the class of its records."""

    def __init__(self, records: Iterable[T] = (), of: str = "ModelRecord") -> None:
        super().__init__(records)
        self.of = of  # by name: records are imported when there is one

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,}>"


class Responses(Records[Response]):
    """Responses, shown as one table: of one request that streams, or of one request each.

    A stream is ``complete`` when it has come to its end, and ``running`` while responses may still come;
    ``shown_in`` is the number of the cell that has shown them already, while they came.
    """

    def __init__(self, responses: Iterable[Response] = (), *, stream: bool = False) -> None:
        super().__init__(responses, "ResponseRecord")
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

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """What the pieces of a stream's outputs say together, by name, where they are pieces of text."""
        if not self.stream:
            return ()
        names = dict.fromkeys(name for response in self for name in response)
        found = ((name, self._joined(name)) for name in names)
        return tuple((name, text) for name, text in found if text is not None)

    def text(self, name: str = "") -> str:
        """Return what the pieces of text of an output say together; of the first that has any by default.

        Raises KeyError: there is no such output, or it is no text.
        """
        texts = dict(self.texts)
        if name or not texts:
            return texts[name]
        return next(iter(texts.values()))

    def _joined(self, name: str) -> str | None:
        """The text of an output of which each response has one element; None where it is none."""
        pieces: list[bytes] = []
        for response in self:
            if name not in response:
                continue
            tensor = response[name]
            if tensor.triton_dtype().name != "BYTES" or not tensor.is_cpu() or prod(tensor.shape()) != 1:
                return None
            pieces.append(bytes(tensor.as_numpy().reshape(-1)[0]))
        one = len(pieces) < 2
        if len(pieces) > 2 and all(len(a) < len(b) and b.startswith(a) for a, b in pairwise(pieces)):
            del pieces[:-1]  # each begins with all that came before
        whole = b"".join(pieces)
        if one and len(whole) <= CHARACTERS:  # the table shows all of it
            return None
        try:
            # The end of a piece may cut a character in two.
            return codecs.getincrementaldecoder("utf-8")().decode(whole)
        except UnicodeDecodeError:
            return None

    @property
    def stream_record(self) -> StreamRecord:
        """Plain data about one whole stream."""
        from bls_notebook.records.repository import StreamRecord  # first needed here

        records = self.records
        times = [record.seconds for record in records if record.seconds is not None]
        return StreamRecord(
            records[0].model if records else "",
            records[0].version if records else 0,
            responses=sum(bool(record.tensors) for record in records),
            first=times[0] if times else None,
            last=times[-1] if times else None,
            text=first_line(" ".join(text for _, text in self.texts), 1000),
            error=next((record.error for record in records if record.error), None),
            warnings=tuple(dict.fromkeys(w for record in records for w in record.warnings)),
            stubs=tuple(dict.fromkeys(s for record in records for s in record.stubs)),
        )


class Streams(Records[Responses]):
    """The responses of many requests that stream, a list for each, shown as one table."""

    def __init__(self, streams: Iterable[Responses] = ()) -> None:
        super().__init__(streams, "StreamRecord")

    @property
    def streams(self) -> Records[StreamRecord]:
        """Plain data about each stream."""
        return Records(replace(stream.stream_record, index=i) for i, stream in enumerate(self))

    @property
    def records(self) -> list[ResponseRecord]:
        """Plain data about all responses, stream by stream."""
        return [record for stream in self for record in stream.records]


def answers_of(result: Response | Responses | Streams) -> list[Response]:
    """Return the responses that a magic's result is made of."""
    if isinstance(result, Streams):
        return [response for stream in result for response in stream]
    return list(result) if isinstance(result, Responses) else [result]
