"""Map inputs of a configuration to arguments of `forward`, and outputs to its results.

Pure. The rules, the checks, their order and messages are those of Triton's backend (`ValidateInputs`,
`ValidateOutputs`): inputs are named like the arguments, or all are called `<name>__<index>`, or else they
keep the configuration's order; outputs are called `<name>__<index>`, or keep their order. A model that takes
one dict gets the inputs by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bls_notebook.backends.completed import INVALID, controls_of, dims_of
from bls_notebook.backends.errors import BackendError

_DATATYPES = frozenset(
    f"TYPE_{t}" for t in ("BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "STRING")
)


@dataclass(frozen=True)
class Argument:
    """An argument of `forward`: its name, the kind of its TorchScript type, and the type as text."""

    name: str
    kind: str
    type: str


@dataclass(frozen=True)
class TensorPositions:
    """Positions of arguments and results by tensor name, from 0."""

    inputs: dict[str, int]
    outputs: dict[str, int]
    takes_dict: bool = False


def positions_of(config: dict[str, Any], arguments: list[Argument]) -> TensorPositions:
    """Return the positions of a completed configuration's tensors; BackendError if it does not fit."""
    inputs = {name: _control_index(name, datatype) for name, datatype in controls_of(config).items()}
    takes_dict = len(arguments) == 1 and arguments[0].kind == "DictType"
    if not takes_dict:
        _check_arguments(config, arguments, len(inputs))
    inputs |= _positions(config, "input", [] if takes_dict else [a.name for a in arguments])
    outputs = _positions(config, "output", [])
    if not takes_dict and sorted(inputs.values()) != list(range(len(arguments))):
        given = ", ".join(f"'{name}' is argument {place}" for name, place in inputs.items())
        raise BackendError(
            f"model '{config['name']}': each of the {len(arguments)} arguments of its forward needs one "
            f"input, but of the configuration's {given}; count the indexes of <name>__<index> from 0",
            INVALID,
        )
    return TensorPositions(inputs, outputs, takes_dict)


def _check_arguments(config: dict[str, Any], arguments: list[Argument], controls: int) -> None:
    if any(a.kind == "DictType" for a in arguments[1:]):
        raise BackendError(
            "Multiple inputs of kind DictType were detected. Only a single input of type Dict(str, Tensor) "
            "is supported."
        )
    for argument in arguments:
        if argument.kind not in ("TensorType", "ListType"):
            raise BackendError(
                f"An input of type '{argument.type}' was detected in the model. Only a single input of type "
                "Dict(str, Tensor) or input(s) of type Tensor are supported."
            )
    expected = len(config["input"]) + controls
    if arguments and len(arguments) != expected:
        raise BackendError(
            f"unable to load model '{config['name']}', configuration expects {expected} inputs, model "
            f"provides {len(arguments)}: {', '.join(a.name for a in arguments)}",
            INVALID,
        )


def _positions(config: dict[str, Any], which: str, arguments: list[str]) -> dict[str, int]:
    """Return positions of the configuration's inputs or outputs."""
    tensors = config[which]
    if not tensors:
        raise BackendError(
            f"model configuration must contain at least one {which}, none were specified. Triton cannot "
            f"complete it from TorchScript: add {which} {{ name data_type dims }} to config.pbtxt"
            + (f", for the arguments {', '.join(arguments)}" if arguments else "")
        )
    for tensor in tensors:
        _check_tensor(config, which, tensor)
    names = [tensor["name"] for tensor in tensors]
    if arguments and all(name in arguments for name in names):
        return {name: arguments.index(name) for name in names}
    indexes = {name: index for name in names if (index := _index(name)) is not None}
    return indexes if len(indexes) == len(names) else {name: i for i, name in enumerate(names)}


def _check_tensor(config: dict[str, Any], which: str, tensor: dict[str, Any]) -> None:
    model, name, datatype = config["name"], tensor["name"], tensor["data_type"]
    if datatype not in _DATATYPES:
        raise BackendError(f"unsupported datatype {datatype} for {which} '{name}' for model '{model}'")
    if datatype == "TYPE_STRING" and len(dims_of(tensor)) + (config["max_batch_size"] > 0) > 1:
        raise BackendError(
            f"Triton only supports 1 dimensional List of String as {which} for '{name}' for model '{model}'"
        )


def _index(name: str) -> int | None:
    """Return the index of `<name>__<index>`, or None; an empty index is 0, as in C."""
    _, parted, index = name.partition("__")
    if not parted or not (index == "" or (index.isascii() and index.isdigit())):
        return None
    return int(index or 0)


def _control_index(name: str, datatype: str) -> int:
    index = _index(name)
    if index is None:
        raise BackendError(f"input '{name}' does not follow <name>__<index> naming convention.")
    if datatype not in ("", "TYPE_INVALID", *_DATATYPES) or datatype == "TYPE_STRING":
        raise BackendError(f"input '{name}' type '{datatype}' is not supported by PyTorch.")
    return index
