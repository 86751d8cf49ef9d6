"""Checks a configuration against the graph, in the order and words of Triton's onnxruntime backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bls_notebook.backends.completed import INVALID, controls_of, dims_of, refuse_parts
from bls_notebook.backends.errors import BackendError

from .signature import Signature, TensorInfo


def check(config: dict[str, Any], signature: Signature) -> None:
    """Refuse a configuration that does not fit the graph: other inputs, names, data types or shapes."""
    refuse_parts(config)
    _check_inputs(config, signature)
    for output in config.get("output", ()):
        info = _info(config["name"], "output", output, signature.outputs)
        _check_shape(config, output, info, exact=True)


def _check_inputs(config: dict[str, Any], signature: Signature) -> None:
    model, inputs = config["name"], config.get("input", ())
    controls = controls_of(config)
    expected = sum(not i.get("optional", False) for i in inputs) + len(controls)
    for control in controls:
        if control not in signature.inputs:
            raise BackendError(
                f"configuration specified sequence control '{control}', but model does not provide that input"
            )
    if len(signature.inputs) != expected:
        raise BackendError(
            f"unable to load model '{model}', configuration expects {expected} inputs, model provides "
            f"{len(signature.inputs)}",
            INVALID,
        )
    allowed = {**signature.inputs, **signature.overridable}
    for tensor in inputs:
        if tensor.get("optional") and config["max_batch_size"]:
            raise BackendError(
                f"unable to load model '{model}', optional input '{tensor['name']}' is not supported for "
                "models that support batching",
                INVALID,
            )
        info = _info(model, "input", tensor, allowed)
        _check_shape(config, tensor, info, exact=False)


def _info(model: str, which: str, tensor: dict[str, Any], allowed: dict[str, TensorInfo]) -> TensorInfo:
    name, datatype = tensor["name"], tensor["data_type"]
    info = allowed.get(name)
    if info is None:
        names = ", ".join(sorted(allowed))
        raise BackendError(f"unexpected inference {which} '{name}', allowed {which}s are: {names}", INVALID)
    if datatype in ("TYPE_INVALID", ""):
        raise BackendError(f"unsupported datatype {datatype} for {which} '{name}' for model '{model}'")
    if datatype != info.config_datatype:
        raise BackendError(
            f"unable to load model '{model}', configuration expects datatype {datatype} for {which} "
            f"'{name}', model provides TYPE_{info.datatype}",
            INVALID,
        )
    return info


def _check_shape(config: dict[str, Any], tensor: dict[str, Any], info: TensorInfo, exact: bool) -> None:
    model, name = config["name"], tensor["name"]
    dims = dims_of(tensor)
    if not info.dims:
        if any(d != 1 for d in dims):
            raise BackendError(
                f"unable to load model '{model}', scalar tensor '{name}', should only provide 1 in the model "
                f"configuration when the model doesn't support batching. Model configuration provided: "
                f"{_shown(dims)}.",
                INVALID,
            )
        return
    where = f"model '{model}', tensor '{name}':"
    note = ""
    if config["max_batch_size"] > 0:
        if info.dims[0] != -1:
            raise BackendError(
                f"{where} for the model to support batching the shape should have at least 1 dimension and "
                f"the first dimension must be -1; but shape expected by the model is {_shown(info.dims)}",
                INVALID,
            )
        dims = [-1, *dims]
        note = (
            "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
            "making complete "
        )
    fits = len(dims) == len(info.dims) and all(
        has == says or (has == -1 and not exact) for has, says in zip(info.dims, dims, strict=True)
    )
    if not fits:
        raise BackendError(
            f"{where} the model expects {len(info.dims)} dimensions (shape {_shown(info.dims)}) but the "
            f"model configuration specifies {len(dims)} dimensions ({note}shape {_shown(dims)})",
            INVALID,
        )


def _shown(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"
