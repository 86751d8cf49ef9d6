"""`Recording`: requests with their tensors, in memory: to look at, to send again, to answer with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bls_notebook.pb_utils import Tensor
from bls_notebook.records.exceptions import BLSError
from bls_notebook.records.record_file import told
from bls_notebook.records.recorded import RequestKept, ResponseKept, TensorKept
from bls_notebook.testing.records.recorded import Recorded

from . import file
from .other_formats import captured
from .recorded_answers import RecordedAnswers
from .requests import RecordedRequest, RecordedResponse
from .values import Array

if TYPE_CHECKING:
    from bls_notebook.profiling.records.session import Session
    from bls_notebook.repository.repository import ModelRepository

ALL = "record(..., tensors='all') keeps the tensors of every request"


class Recording:
    """Requests that were kept, with the tensors that were kept of them; see `record` and `bls.load`.

    Attributes
    ----------
    record : Recorded
        All but the values.
    arrays : mapping of str to numpy.ndarray
        The values by what the record calls them, read-only; BYTES as bytes, BF16 as its bits in uint16.
    """

    def __init__(self, record: Recorded, arrays: Mapping[str, Array]) -> None:
        self.record = record
        self.arrays = arrays

    def __repr__(self) -> str:
        name = f" {told(self.record.name)!r}" if self.record.name else ""
        return f"<Recording{name}: {len(self):,} requests of {', '.join(map(told, self.models))}>"

    def __len__(self) -> int:
        return len(self.record.requests)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Names of the models that were asked, at any hop, in the order in which they first were."""
        return tuple(dict.fromkeys(request.model for request in self.record.requests))

    @property
    def session(self) -> Session | None:
        """The profile of the same time; None where the requests were not recorded here."""
        return self.record.session

    def requests(self, model: str | None = None, *, hops: bool = False) -> tuple[RecordedRequest, ...]:
        """Return the requests that were sent from outside any model, in order; the arrays are copies.

        Parameters
        ----------
        model : str, optional
            Those to this model alone.
        hops : bool
            Those that models have sent too.

        Raises
        ------
        BLSError
            There is none of this model, or the values of an input were not kept.
        """
        found = [
            request
            for request in self.record.requests
            if (hops or request.outside) and model in (None, request.model)
        ]
        if not found and model is not None:
            raise BLSError(self._no_requests(model, hops))
        for request in found:
            self._check_whole(request)
        return tuple(map(self.with_values, found))

    def request(self, number: int) -> RecordedRequest:
        """Return the request with this id.

        Raises
        ------
        BLSError
            There is none, or the values of an input were not kept.
        """
        found = next((each for each in self.record.requests if each.id == number), None)
        if found is None:
            ids = [each.id for each in self.record.requests]
            known = f"they go from {ids[0]} to {ids[-1]}" if ids else "it has none"
            raise BLSError(f"{self._called}: there is no request {number!r}; {known}")
        self._check_whole(found)
        return self.with_values(found)

    def answer_of(self, model: str) -> RecordedAnswers:
        """Return a function that answers as the model did, for `ModelRepository.stub`.

        Requests are told apart by what they carry: inputs (names, data types, shapes, values), parameters and
        the outputs that they ask for; one that asks for fewer than were recorded is answered too. One that
        was recorded several times is answered in that order, and by the last answer from then on. Of a
        decoupled model the function returns a list of responses.

        Raises
        ------
        BLSError
            The model was not asked, or the tensors of some request of it were not kept. The function raises
            `pb_utils.TritonModelException` for a request that was never recorded: it names the nearest one.
        """
        asked = [request for request in self.record.requests if request.model == model and request.responses]
        if not asked:
            raise BLSError(self._no_requests(model, True))
        for request in asked:
            self._check_whole(request, answers=True)
        return RecordedAnswers(self._called, model, list(map(self.with_values, asked)))

    def save(self, path: str | Path) -> Path:
        """Write it to a file, which is replaced when all of it has been written."""
        where = Path(path)
        file.writeable(where)
        return file.save(where, self.record, self.arrays)

    def with_values(self, request: RequestKept) -> RecordedRequest:
        """Return a request with what was kept of its values."""
        inputs = {tensor.name: self._value(tensor) for tensor in request.inputs if tensor.values}
        responses = tuple(map(self._response, request.responses))
        parameters = json.loads(request.parameters)
        return RecordedRequest(
            request.model, inputs, parameters, request.correlation_id, request.flags, responses, request
        )

    def _response(self, kept: ResponseKept) -> RecordedResponse:
        tensors = tuple(self._tensor(tensor) for tensor in kept.tensors if tensor.values)
        outputs = {t._name: t if t._datatype == "BF16" else t._array for t in tensors}
        return RecordedResponse(
            outputs, tensors, json.loads(kept.parameters), kept.error, kept.code, kept.final
        )

    def _value(self, kept: TensorKept) -> Any:
        tensor = self._tensor(kept)
        return tensor if kept.datatype == "BF16" else tensor._array

    def _tensor(self, kept: TensorKept) -> Tensor:
        return Tensor._of(kept.name, np.array(self.arrays[kept.values]), kept.datatype)

    @property
    def _called(self) -> str:
        return f"recording {told(self.record.name)!r}" if self.record.name else "recording"

    def _no_requests(self, model: str, hops: bool) -> str:
        sent = {r.model for r in self.record.requests if hops or r.outside}
        known = f"it has requests to {', '.join(map(told, sorted(sent)))}" if sent else "it has no requests"
        inside = not hops and model in self.models
        by = " from outside (only other models asked it)" if inside else ""
        return f"{self._called}: no request to model {told(model)!r}{by}; {known}"

    def _check_whole(self, request: RequestKept, answers: bool = False) -> None:
        for tensor in request.tensors if answers else request.inputs:
            if not tensor.values:
                limit = f"there was no room for it within the limit of {self.record.limit:,} bytes"
                why = limit if tensor.cut else ALL
                raise BLSError(
                    f"{self._called}: request {request.id} to {told(request.model)!r}: the values of "
                    f"{told(tensor.name)!r} were not kept: {why}"
                )


def load_recording(
    path: str | Path, model: str | None = None, repo: ModelRepository | None = None
) -> Recording:
    """Read requests that were kept: by `record`, or as others keep them.

    Parameters
    ----------
    path : str or Path
        A file of `record`. Or JSON: bodies of KServe v2 requests (one, a list, or one a line), or
        perf_analyzer's input data.
    model : str, optional
        Whose requests JSON has: it does not say. For perf_analyzer's, which has no data types either, it has
        to serve in the repository.
    repo : ModelRepository, optional
        By default the one that magics use.

    Returns
    -------
    Recording

    Raises
    ------
    FileError
        It is neither, or is damaged: one line says what.
    """
    where = Path(path)
    with file.reading(where):
        record, arrays = file.load(where) or captured(where, model, repo)
    return Recording(replace(record, name=where.name), arrays)
