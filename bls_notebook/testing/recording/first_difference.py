"""Where a difference begins: two recordings of a request, then and now, followed hop by hop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bls_notebook.records.record_file import told
from bls_notebook.records.recorded import RequestKept, TensorKept

from .recording import Recording
from .values import digest

_Content = tuple[object, ...]


class Beginning:
    """Follows differences through two recordings of the same requests, with the tensors of every hop."""

    def __init__(self, then: Recording, now: Recording) -> None:
        self._then = _Hops(then)
        self._now = _Hops(now)

    def of(self, then: RequestKept, now: RequestKept) -> str:
        """Return which hop is the first that is other than it was, of requests answered differently."""
        left = self._now.sent_by(now.id)
        for before in self._then.sent_by(then.id):
            asked = self._then.asked(before)
            after = next((each for each in left if self._now.asked(each) == asked), None)
            if after is None:
                who, whom = told(then.model), told(before.model)
                if any(each.model == before.model for each in left):
                    return f"begins in {who}: it asks {whom} something else than in request {before.id}"
                return f"begins in {who}: it does not ask {whom} any more, as in request {before.id}"
            left.remove(after)
            if self._then.answered(before) != self._now.answered(after):
                return self.of(before, after)
        called = "" if not self._then.sent_by(then.id) else "; what it calls answers as it did"
        return f"begins in {told(then.model)}, request {then.id}: the same inputs, another answer{called}"


class _Hops:
    """The requests of a recording, by who sent them, and what they carry."""

    def __init__(self, recording: Recording) -> None:
        self._arrays = recording.arrays
        self._sent: dict[int, list[RequestKept]] = {}
        for request in recording.record.requests:
            self._sent.setdefault(request.parent, []).append(request)

    def sent_by(self, number: int) -> list[RequestKept]:
        return list(self._sent.get(number, ()))

    def asked(self, request: RequestKept) -> _Content:
        return (request.model, request.parameters, *sorted(self._content(request.inputs)))

    def answered(self, request: RequestKept) -> _Content:
        return tuple(
            (response.error and response.error.partition("\n")[0], *sorted(self._content(response.tensors)))
            for response in request.responses
        )

    def _content(self, tensors: Iterable[TensorKept]) -> Iterator[tuple[str, str, tuple[int, ...], bytes]]:
        for tensor in tensors:
            values = self._arrays.get(tensor.values)
            of = b"" if values is None else digest(values, tensor.datatype)
            yield tensor.name, tensor.datatype, tensor.shape, of
