"""Auto-completion of a configuration from the graph, as Triton's onnxruntime backend does it."""

from __future__ import annotations

from typing import Any

from bls_notebook.backends.errors import BackendError

from .signature import Signature, TensorInfo

# The server's --backend-config=onnxruntime,default-max-batch-size where it is not given.
DEFAULT_MAX_BATCH_SIZE = 4


def needs_completing(config: dict[str, Any]) -> bool:
    """Whether inputs or outputs are missing; otherwise Triton leaves everything as it is."""
    inputs = len(config.get("input", ())) + len(config.get("batch_input", ()))
    return not inputs or not config.get("output")


def complete(config: dict[str, Any], signature: Signature) -> None:
    """Fill in, in place, the largest batch size, a dynamic batcher, and missing inputs and outputs."""
    if signature.can_batch:
        if config.get("max_batch_size", 0) == 0:
            config["max_batch_size"] = DEFAULT_MAX_BATCH_SIZE
        if config["max_batch_size"] > 1 and "sequence_batching" not in config:
            config.setdefault("dynamic_batching", {})
    elif config.get("max_batch_size", 0) != 0:
        raise BackendError(
            f"autofill failed for model '{config['name']}': model does not support batching while non-zero "
            "max_batch_size is specified",
            "Invalid argument",
        )
    batching = config.get("max_batch_size", 0) > 0
    if not config.get("input") and not config.get("batch_input"):
        config["input"] = [_tensor(info, batching) for info in signature.inputs.values()]
    if not config.get("output"):
        config["output"] = [_tensor(info, batching) for info in signature.outputs.values()]


def _tensor(info: TensorInfo, batching: bool) -> dict[str, Any]:
    tensor: dict[str, Any] = {"name": info.name, "data_type": info.config_datatype}
    dims = list(info.dims[1:] if batching else info.dims)
    if not dims:  # Triton has no tensors without dimensions
        dims = [1]
        if batching:
            tensor["reshape"] = {"shape": []}
    tensor["dims"] = dims
    return tensor
