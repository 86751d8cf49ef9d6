"""`Response`: a response to a request from outside any model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bls_notebook.devices.allocation_log import owner_kinds
from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils import InferenceResponse, Tensor, TritonError
from bls_notebook.pb_utils.dtypes import from_bits
from bls_notebook.records.base import Printable
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.models import stubs_in, went_through, without_stubs
from bls_notebook.records.responses import tensor_record
from bls_notebook.records.visible_text import first_line

if TYPE_CHECKING:
    from bls_notebook.records.advice import Known
    from bls_notebook.records.responses import ResponseRecord


class Response(Printable):
    """The response to a request, or one response of a stream.

    Attributes
    ----------
    model : str
        Name of the requested model.
    version : int
        Version that answered; 0 if none did.
    request_id : str
    error : TritonError or None
        The error of a failed request. A failed request raises nothing.
    warnings : tuple of str
        Problems that Triton ignores.
    seconds : float
        Time (s) from sending the request to this response.
    index : int
        Position in a stream, from 0.
    final : bool
        Whether no more responses follow.

    Examples
    --------
    >>> r = repo.infer("add_sub", {"INPUT0": [1, 2], "INPUT1": [3, 4]})
    >>> r["OUTPUT0"].as_numpy()
    array([4., 6.], dtype=float32)
    """

    def __init__(
        self,
        response: InferenceResponse,
        model: str,
        version: int = 0,
        request_id: str = "",
        seconds: float | None = None,
        index: int = 0,
        final: bool = True,
        known: Callable[[], Known | None] = lambda: None,
    ) -> None:
        self._response = response
        self._known = known  # names for advice on errors; None once the repository is gone
        self.model = model
        self.version = version
        self.request_id = request_id
        self.seconds = seconds
        self.index = index
        self.final = final
        self._written: Mapping[str, str] = {}

    def __getitem__(self, name: str) -> Tensor:
        __tracebackhide__ = True  # so that pytest shows the caller's line
        for tensor in self._response._outputs:
            if tensor._name == name:
                return tensor
        if self.error is not None:
            raise KeyError(f"no output {name!r}: the request failed: {self.error.message()}")
        raise KeyError(f"no output {name!r}; outputs of this response: {', '.join(self) or 'none'}")

    def __iter__(self) -> Iterator[str]:
        return iter([t._name for t in self._response._outputs])

    def __len__(self) -> int:
        return len(self._response._outputs)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)  # completions of `response["`

    def __contains__(self, name: object) -> bool:
        return any(t._name == name for t in self._response._outputs)

    @property
    def error(self) -> TritonError | None:
        """The error of a failed request; None if it succeeded."""
        return self._response._error

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems that Triton ignores, preceded by a warning if stubs took part in the response."""
        warnings = without_stubs(self._response._warnings)
        return (went_through(self.stubs), *warnings) if self.stubs else warnings

    @property
    def stubs(self) -> tuple[str, ...]:
        """Names of the models that stubs answered for on the way to this response, whose values are then made up."""
        return stubs_in(self._response._warnings)

    def output_tensors(self) -> list[Tensor]:
        """Return the output tensors."""
        return self._response.output_tensors()

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the model set on the response."""
        return json.loads(self._response._parameters)  # type: ignore[no-any-return]

    def as_numpy(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return every output as an array, by name.

        BF16, which NumPy lacks, becomes float32.

        Raises
        ------
        BLSError
            The request failed, or an output is on a GPU.
        """
        if self.error is not None:
            raise BLSError(f"model {self.model!r} answered with an error: {self.error.message()}")
        for tensor in self._response._outputs:
            if not tensor.is_cpu():
                raise BLSError(
                    f"model {self.model!r}, output {tensor._name!r} is on {tensor._device()}, expected cpu; send the "
                    f'request with preferred_memory="cpu", or use to_dlpack() of this output'
                )
        return {
            t._name: from_bits(t._array) if t._datatype == "BF16" else t.as_numpy() for t in self._response._outputs
        }

    def sent_as(self, written: Mapping[str, str]) -> None:
        """Set the expressions of the inputs by name, for the remedy of an error."""
        self._written = written

    @property
    def record(self) -> ResponseRecord:
        """Plain data about this response, for displays and files."""
        from bls_notebook.records.advice import Known, advised
        from bls_notebook.records.responses import ResponseRecord

        error = self.error
        failure = None
        if error is not None:
            failure = error._origin or ErrorRecord(
                error.message(), error.code().name, (self.model,) if self.model else ()
            )
            failure = advised(failure, replace(self._known() or Known(), written=self._written))
        return ResponseRecord(
            self.model,
            self.version,
            self.request_id,
            tuple(tensor_record(t._name, t._datatype, t._array, t._device().label) for t in self._response._outputs),
            failure,
            without_stubs(self._response._warnings),
            tuple(self.parameters().items()),
            self.seconds,
            self.final,
            self.index,
            self.stubs,
        )

    def summarized(self) -> ResponseRecord:
        """Return `record` with statistics and small pictures of the outputs, computed at a bounded cost."""
        from .tensor_summary import quick_summary

        record = self.record
        summaries = map(quick_summary, self._response._outputs)
        tensors = tuple(replace(t, **summary) for t, summary in zip(record.tensors, summaries, strict=True))
        return replace(record, tensors=tensors)

    def __repr__(self) -> str:
        if self.error is not None:
            return f"<Response of {self.model!r}: error {first_line(self.error.message())!r}>"
        outputs = self._response._outputs
        shown = [f"{t._name} {t._datatype}{list(t.shape())}" for t in outputs[:4]]
        more = [f"{len(outputs) - 4} more"] if len(outputs) > 4 else []
        return f"<Response of {self.model!r}: {', '.join(shown + more) or 'no outputs'}>"


owner_kinds[Response] = "response"
