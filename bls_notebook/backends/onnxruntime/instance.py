"""An instance of an ONNX model: requests in, one run of the session, responses out.

Guarantees: every request gets one response; requests of equal shapes are run as one batch; outputs that
nobody asked for are not fetched (their nodes run all the same, as on Triton); a request that cannot be run
does not fail the others of its batch. The session lets go of the interpreter while it runs.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from bls_notebook.observe.visible import encodable
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

from . import bfloat16
from .session import ort_message
from .signature import Signature

_Array = np.ndarray[Any, Any]


class _RefusedError(Exception):
    """Why a request cannot be run, or a result not be given."""


class OnnxInstance:
    """One instance of an ONNX model, with `onnxruntime.RunOptions` for every run, or None."""

    is_async = False

    def __init__(self, session: Any, options: Any, config: dict[str, Any], signature: Signature) -> None:
        self._session = session
        self._options = options
        self._name: str = config["name"]
        self._batching: bool = config["max_batch_size"] > 0
        self._outputs = {o["name"]: signature.outputs[o["name"]].datatype for o in config["output"]}
        inputs = {**signature.inputs, **signature.overridable}
        self._scalars = frozenset(i.name for i in inputs.values() if not i.dims)
        self._scalar_outputs = {
            o["name"]: tuple(int(d) for d in o["dims"])
            for o in config["output"]
            if not signature.outputs[o["name"]].dims
        }
        tensors = [*inputs.values(), *signature.outputs.values()]
        self._has_bfloat16 = any(t.datatype == "BF16" for t in tensors)

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        """Run the requests, those of equal shapes together."""
        responses: dict[int, InferenceResponse] = {}
        groups: dict[Any, list[tuple[int, dict[str, _Array]]]] = {}
        for i, request in enumerate(requests):
            try:
                feed = self._feed(request)
            except _RefusedError as error:
                responses[i] = _failed(str(error))
                continue
            # Without a batch dimension there is nothing to join along.
            joins = self._batching and len(requests) > 1
            key = tuple(sorted((n, a.shape[1:]) for n, a in feed.items())) if joins else i
            groups.setdefault(key, []).append((i, feed))
        for group in groups.values():
            answers = self._run_group([requests[i] for i, _ in group], [feed for _, feed in group])
            responses.update(zip([i for i, _ in group], answers, strict=True))
        return [responses[i] for i in range(len(requests))]

    def finalize(self) -> None:
        """Let go of the session; it ends with the last instance that shares it."""
        self._session = None

    def ready(self) -> bool:
        """Whether the instance has not been finalized."""
        return self._session is not None

    # -- one run -----------------------------------------------------------------------------------

    def _run_group(
        self, requests: list[InferenceRequest], feeds: list[dict[str, _Array]]
    ) -> list[InferenceResponse]:
        joined = feeds[0]
        if len(feeds) > 1:
            joined = {name: np.concatenate([feed[name] for feed in feeds]) for name in joined}
        names = [name for name in self._outputs if any(name in r._requested for r in requests)]
        ends = list(accumulate(len(next(iter(feed.values()))) if self._batching else 0 for feed in feeds))
        try:
            results = self._run(names, joined)
            if self._batching:
                self._check_rows(names, results, ends[-1])
        except _RefusedError as error:
            return [_failed(str(error)) for _ in feeds]
        if len(feeds) == 1:
            return [self._response(names, results)]
        return [
            self._response(names, [result[start:end] for result in results])
            for start, end in zip([0, *ends], ends, strict=False)
        ]

    def _feed(self, request: InferenceRequest) -> dict[str, _Array]:
        feed = {}
        for tensor in request._inputs:
            array = _text(tensor) if tensor._datatype == "BYTES" else tensor._array
            feed[tensor._name] = array.reshape(()) if tensor._name in self._scalars else array
        return feed

    def _run(self, names: list[str], feed: dict[str, _Array]) -> list[_Array]:
        if not names:
            return []
        try:
            if self._has_bfloat16:
                return bfloat16.run(self._session, names, feed, self._options)
            return self._session.run(names, feed, self._options)  # type: ignore[no-any-return]
        except Exception as error:  # the runtime's exceptions have no common class of their own
            raise _RefusedError(ort_message(error)) from error

    def _check_rows(self, names: list[str], results: list[_Array], rows: int) -> None:
        for name, result in zip(names, results, strict=True):
            if result.ndim == 0 or len(result) != rows:
                raise _RefusedError(
                    f"model '{self._name}', output '{name}': the graph gave shape {list(result.shape)} for a "
                    f"batch of {rows}; the first dimension of every output must be the batch's, or set "
                    "max_batch_size: 0"
                )

    def _response(self, names: list[str], results: list[_Array]) -> InferenceResponse:
        tensors = []
        for name, result in zip(names, results, strict=True):
            if name in self._scalar_outputs:
                result = np.reshape(result, self._scalar_outputs[name])
            tensors.append(Tensor._of(name, result, self._outputs[name]))
        return InferenceResponse(tensors)


def _text(tensor: Tensor) -> _Array:
    """BYTES as the runtime takes them: text, which ends at the first zero byte as on Triton."""
    array = tensor._array
    out = np.empty(array.shape, np.object_)
    flat = out.reshape(-1)
    for i, element in enumerate(array.reshape(-1).tolist()):
        try:
            text = element.decode("utf-8") if isinstance(element, bytes) else str(element)
        except UnicodeDecodeError as error:
            raise _RefusedError(
                f"input '{tensor._name}': element {i} is not UTF-8 text ({error.reason} at byte "
                f"{error.start}), which ONNX Runtime's Python package cannot take"
            ) from error
        flat[i] = text.partition("\0")[0]
    return out


def _failed(message: str) -> InferenceResponse:
    return InferenceResponse([], TritonError(encodable(message), ErrorCode.INTERNAL))
