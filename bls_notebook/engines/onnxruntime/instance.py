"""An instance of an ONNX model: requests in, one run of the session, responses out.

Outputs that nobody asked for are not fetched (their nodes run all the same, as on Triton). The session lets
go of the interpreter while it runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bls_notebook.backends.batched import BatchedInstance, RefusedError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.tensor import Tensor

from . import bfloat16
from .session import ort_message
from .signature import Signature

_Array = np.ndarray[Any, Any]


class OnnxInstance(BatchedInstance):
    """One instance of an ONNX model, with `onnxruntime.RunOptions` for every run, or None."""

    def __init__(
        self, session: Any, options: Any, config: dict[str, Any], signature: Signature, gpu: int | None
    ) -> None:
        super().__init__(config, gpu)
        self._session = session
        self._options = options
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

    def finalize(self) -> None:
        """Let go of the session; it ends with the last instance that shares it."""
        self._session = None

    def ready(self) -> bool:
        """Whether the instance has not been finalized."""
        return self._session is not None

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
            raise RefusedError(ort_message(error)) from error

    def _tensor(self, name: str, result: _Array) -> Tensor:
        if name in self._scalar_outputs:
            result = np.reshape(result, self._scalar_outputs[name])
        return Tensor._of(name, result, self._outputs[name])


def _text(tensor: Tensor) -> _Array:
    """BYTES as the runtime takes them: text, which ends at the first zero byte as on Triton."""
    array = tensor._array
    out = np.empty(array.shape, np.object_)
    flat = out.reshape(-1)
    for i, element in enumerate(array.reshape(-1).tolist()):
        try:
            text = element.decode("utf-8") if isinstance(element, bytes) else str(element)
        except UnicodeDecodeError as error:
            raise RefusedError(
                f"input '{tensor._name}': element {i} is not UTF-8 text ({error.reason} at byte "
                f"{error.start}), which ONNX Runtime's Python package cannot take"
            ) from error
        flat[i] = text.partition("\0")[0]
    return out
