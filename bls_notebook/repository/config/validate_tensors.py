"""What Triton refuses of inputs, outputs, reshapes, labels and batch inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .proto import ModelConfigMessage, model_config_pb2
from .refuse import refuse

__all__ = ["validate_tensors"]

_DIM_RULE = "use sizes of 1 and more, or -1 for a size that varies"


def validate_tensors(config: ModelConfigMessage, folder: Path | None = None) -> None:
    """Raise for what Triton refuses of a model's inputs and outputs.

    It accepts a name that is listed twice, and a model without any input or output.
    """
    formats = model_config_pb2().ModelInput
    for tensor in config.input:
        who = _validate_tensor(config, tensor, "input")
        if tensor.format in (formats.FORMAT_NHWC, formats.FORMAT_NCHW) and len(tensor.dims) != 3:
            refuse(config, f"{who} has an image format but {len(tensor.dims)} dims; give it 3, or no format")
    for tensor in config.output:
        who = _validate_tensor(config, tensor, "output")
        if tensor.label_filename and folder is not None:
            _validate_labels(config, who, tensor.label_filename, folder)
    _validate_batch_tensors(config)


def _validate_tensor(config: ModelConfigMessage, tensor: Any, direction: str) -> str:
    who = f"{direction} '{tensor.name}'"
    if not tensor.name:
        refuse(config, f"an {direction} has no name; give it one")
    if tensor.data_type == 0:
        refuse(config, f"{who} has no data_type; set it, for instance to TYPE_FP32")
    dims = list(tensor.dims)
    if not dims:
        refuse(config, f"{who} has no dims; set them, for instance to [ -1 ]")
    if any(dim < 1 and dim != -1 for dim in dims):
        refuse(config, f"{who} has dims {dims}; {_DIM_RULE}")
    if tensor.HasField("reshape"):
        _validate_reshape(config, who, dims, list(tensor.reshape.shape))
    if config.platform != "tensorrt_plan":
        if tensor.is_shape_tensor:
            refuse(config, f"{who} is a shape tensor, which only TensorRT models have; leave that out")
        if tensor.is_non_linear_format_io:
            refuse(config, f"{who} has a non-linear format, which only TensorRT models have; leave that out")
    return who


def _validate_reshape(config: ModelConfigMessage, who: str, dims: list[int], shape: list[int]) -> None:
    if not shape and config.max_batch_size == 0:
        refuse(
            config,
            f"{who} has an empty reshape, which would make it a scalar in a model that does not batch; "
            "leave reshape out, or set max_batch_size",
        )
    if any(dim < 1 and dim != -1 for dim in shape):
        refuse(config, f"{who} has reshape {shape}; {_DIM_RULE}")
    if _runs(dims) != _runs(shape):
        refuse(
            config,
            f"{who} has dims {dims} but reshape {shape}; both must hold equally many elements, "
            "also between sizes that vary",
        )


def _runs(dims: Sequence[int]) -> list[int]:
    """Return the number of elements of each stretch between sizes that vary."""
    runs: list[int] = []
    stretch: list[int] = []
    for dim in dims:
        if dim == -1:
            runs.append(math.prod(stretch))
            stretch = []
        else:
            stretch.append(dim)
    return [*runs, math.prod(stretch)]


def _validate_labels(config: ModelConfigMessage, who: str, filename: str, folder: Path) -> None:
    path = folder / filename
    if not path.resolve().is_relative_to(folder.resolve()):
        refuse(config, f"{who}: label file '{filename}' is outside the model's folder; put it inside")
    if not path.is_file():
        refuse(config, f"{who}: there is no label file {path}; add it, or leave label_filename out")


def _validate_batch_tensors(config: ModelConfigMessage) -> None:
    pb = model_config_pb2()
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for number, batch in enumerate(config.batch_input):
        who = f"batch_input[{number}]"
        _validate_source(config, who, pb.BatchInput.Kind, batch, inputs)
        if batch.data_type not in (pb.TYPE_INT32, pb.TYPE_FP32):
            refuse(config, f"{who} must be of data_type TYPE_INT32 or TYPE_FP32")
    for number, batch in enumerate(config.batch_output):
        who = f"batch_output[{number}]"
        _validate_source(config, who, pb.BatchOutput.Kind, batch, inputs)
        targets = list(batch.target_name)
        for target in targets:
            if target not in outputs:
                refuse(config, f"{who} names '{target}', which is no output; use one of {_listed(outputs)}")
            if targets.count(target) > 1:
                refuse(config, f"{who} names output '{target}' twice; keep one of them")


def _validate_source(config: ModelConfigMessage, who: str, kinds: Any, batch: Any, inputs: set[str]) -> None:
    if batch.kind not in kinds.values():
        refuse(config, f"{who} has kind {batch.kind}; use one of {', '.join(kinds.keys())}")
    if len(batch.source_input) != 1:
        refuse(config, f"{who} needs exactly one source_input, got {len(batch.source_input)}")
    if batch.source_input[0] not in inputs:
        refuse(
            config,
            f"{who} names source_input '{batch.source_input[0]}', which is no input; "
            f"use one of {_listed(inputs)}",
        )


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "(there are none)"
