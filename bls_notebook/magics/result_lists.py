"""Lists that magics return: records, responses of a stream or of many requests, and streams; each has a display."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, TypeVar

from bls_notebook import Response
from bls_notebook.pb_utils.tensor import datatype_of
from bls_notebook.records.responses import CHARACTERS
from bls_notebook.records.visible_text import first_line

if TYPE_CHECKING:
    from bls_notebook.records.responses import ResponseRecord, StreamRecord

T = TypeVar("T")


class Records(list[T]):
    """A list that a cell displays as one table; `of` is the class name of its records."""

    def __init__(self, records: Iterable[T] = (), of: str = "ModelRecord") -> None:
        super().__init__(records)
        self.of = of  # a name, because record classes are imported on first use

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,}>"


class Responses(Records[Response]):
    """Responses of one streaming request, or one response per request, displayed as one table.

    A stream is `complete` after its final response, and `running` while more may arrive; `shown_in` is the number of
    the cell that displayed the responses as they arrived.
    """

    def __init__(self, responses: Iterable[Response] = (), *, stream: bool = False) -> None:
        super().__init__(responses, "ResponseRecord")
        self.stream = stream
        self.complete = self.running = False
        self.shown_in: int | None = None

    @property
    def records(self) -> list[ResponseRecord]:
        """The records of the responses; separate requests are numbered from 0."""
        if self.stream:
            records = [response.record for response in self]
            if records and self.complete:  # the final flag may have arrived without a response
                records[-1] = replace(records[-1], final=True)
            return records
        return [replace(response.record, index=i) for i, response in enumerate(self)]

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """The joined text of each output whose responses are pieces of text, as (name, text) pairs."""
        if not self.stream:
            return ()
        names = dict.fromkeys(name for response in self for name in response)
        joined = ((name, self._joined(name)) for name in names)
        return tuple((name, text) for name, text in joined if text is not None)

    def text(self, name: str = "") -> str:
        """Join the pieces of text of an output, by default of the first output with text.

        Raises KeyError if there is no such output or it is not text.
        """
        texts = dict(self.texts)
        return texts[name] if name or not texts else next(iter(texts.values()))

    def _joined(self, name: str) -> str | None:
        """Join an output that has one BYTES element per response; None if it is not text, or short and complete."""
        pieces: list[bytes] = []
        for response in self:
            if name not in response:
                continue
            tensor = response[name]
            if datatype_of(tensor) != "BYTES" or not tensor.is_cpu() or prod(tensor.shape()) != 1:
                return None
            pieces.append(bytes(tensor.as_numpy().reshape(-1)[0]))
        is_single = len(pieces) < 2
        if len(pieces) > 2 and all(len(a) < len(b) and b.startswith(a) for a, b in pairwise(pieces)):
            del pieces[:-1]  # every response repeats the text so far
        whole = b"".join(pieces)
        if is_single and len(whole) <= CHARACTERS:  # the table shows all of it
            return None
        try:
            # Incremental, because the last piece may end within a character.
            return codecs.getincrementaldecoder("utf-8")().decode(whole)
        except UnicodeDecodeError:
            return None

    @property
    def stream_record(self) -> StreamRecord:
        """The record of the whole stream."""
        from bls_notebook.records.responses import StreamRecord  # imported on first use

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
    """Many streams, one list of responses for each, displayed as one table."""

    def __init__(self, streams: Iterable[Responses] = ()) -> None:
        super().__init__(streams, "StreamRecord")

    @property
    def streams(self) -> Records[StreamRecord]:
        """The record of each stream."""
        return Records(replace(stream.stream_record, index=i) for i, stream in enumerate(self))

    @property
    def records(self) -> list[ResponseRecord]:
        """The records of all responses, stream by stream."""
        return [record for stream in self for record in stream.records]


def responses_in(result: Response | Responses | Streams) -> list[Response]:
    """Return all responses in a magic's result."""
    if isinstance(result, Streams):
        return [response for stream in result for response in stream]
    return list(result) if isinstance(result, Responses) else [result]
