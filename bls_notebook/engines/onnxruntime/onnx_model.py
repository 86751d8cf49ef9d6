"""An ONNX model and its instances: one run of a session per batch.

Outputs that were not requested are not copied, although their nodes run, as on Triton. The session releases
the GIL while it runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.backends.batched import BatchedInstance, BatchError
from bls_notebook.backends.errors import BackendError
from bls_notebook.backends.protocol import VersionFiles
from bls_notebook.pb_utils.model_config import ModelConfig
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.tensor import Tensor

from .graph_config import Signature, check_config, complete_config, needs_completing, signature_of
from .onnx_session import new_session, ort_message, run_options, run_with_bfloat16

_FILE = "model.onnx"


def open_model(files: VersionFiles) -> OnnxModel:
    """Open a model whose file exists."""
    path = files.folder / (files.filename or _FILE)
    if path.is_dir():  # the graph and files with its weights
        path = path / _FILE
    if not path.is_file():
        raise BackendError(f"unable to find '{path}' for model instance '{files.name}'", "Unavailable")
    return OnnxModel(path)


class OnnxModel:
    """One version of an ONNX model.

    Instances of the same kind and device share a session, whose `run` is thread-safe: the weights are in
    memory once, and more instances do not take longer to load.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._sessions: dict[tuple[str, int], Any] = {}

    def auto_complete_config(self, model_config: ModelConfig) -> ModelConfig:
        """Complete a configuration from the graph if inputs or outputs are missing."""
        config = model_config.as_dict()
        if needs_completing(config):
            groups = config.get("instance_group", ())
            gpu = any(group.get("kind") == "KIND_GPU" for group in groups)
            complete_config(config, signature_of(self._session(config, "GPU" if gpu else "CPU", 0)))
        return model_config

    def make_instance(self, arguments: dict[str, str]) -> OnnxInstance:
        """Check the configuration against the graph and create an instance."""
        config = json.loads(arguments["model_config"])
        kind, device = arguments["model_instance_kind"], int(arguments["model_instance_device_id"])
        session = self._session(config, kind, device)
        signature = signature_of(session)
        check_config(config, signature)
        gpu = device if kind == "GPU" else None
        return OnnxInstance(session, run_options(config), config, signature, gpu)

    def _session(self, config: dict[str, Any], kind: str, device: int) -> Any:
        key = ("GPU", device) if kind == "GPU" else ("CPU", 0)
        if key not in self._sessions:
            self._sessions[key] = new_session(self._file, config, *key)
        return self._sessions[key]


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
        """Drop the session; the last instance that shares it ends it."""
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
                return run_with_bfloat16(self._session, names, feed, self._options)
            return self._session.run(names, feed, self._options)  # type: ignore[no-any-return]
        except Exception as error:  # ONNX Runtime's exceptions have no common base class
            raise BatchError(ort_message(error)) from error

    def _tensor(self, name: str, result: _Array) -> Tensor:
        if name in self._scalar_outputs:
            result = np.reshape(result, self._scalar_outputs[name])
        return Tensor._of(name, result, self._outputs[name])


def _text(tensor: Tensor) -> _Array:
    """Convert BYTES to str for ONNX Runtime; text ends at the first zero byte, as on Triton."""
    array = tensor._array
    out = np.empty(array.shape, np.object_)
    flat = out.reshape(-1)
    for i, element in enumerate(array.reshape(-1).tolist()):
        try:
            text = element.decode("utf-8") if isinstance(element, bytes) else str(element)
        except UnicodeDecodeError as error:
            raise BatchError(
                f"input '{tensor._name}': element {i} is not UTF-8 text ({error.reason} at byte "
                f"{error.start}), which ONNX Runtime's Python package cannot take"
            ) from error
        flat[i] = text.partition("\0")[0]
    return out
