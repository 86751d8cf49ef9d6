"""What Triton refuses of inputs, outputs, reshapes, labels, batch inputs and warm-up samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .proto import ModelConfigMessage, model_config_pb2

_DIM_RULE = "use sizes of 1 and more, or -1 for a size that varies"


def tensor_problems(config: ModelConfigMessage, folder: Path | None) -> Iterator[str]:
    """Yield what Triton refuses of a model's inputs and outputs.

    It accepts a name that is listed twice, and a model without any input or output.
    """
    formats = model_config_pb2().ModelInput
    for tensor in config.input:
        yield from _of_tensor(config, tensor, "input")
        if tensor.format in (formats.FORMAT_NHWC, formats.FORMAT_NCHW) and len(tensor.dims) != 3:
            has = f"input '{tensor.name}' has an image format but {len(tensor.dims)} dims"
            yield f"{has}; give it 3, or no format"
    for tensor in config.output:
        yield from _of_tensor(config, tensor, "output")
        if tensor.label_filename and folder is not None:
            yield from _of_labels(f"output '{tensor.name}'", tensor.label_filename, folder)
    yield from _of_batch_tensors(config)


def _of_tensor(config: ModelConfigMessage, tensor: Any, direction: str) -> Iterator[str]:
    who = f"{direction} '{tensor.name}'"
    if not tensor.name:
        yield f"an {direction} has no name; give it one"
    if tensor.data_type == 0:
        yield f"{who} has no data_type; set it, for instance to TYPE_FP32"
    dims = list(tensor.dims)
    if not dims:
        yield f"{who} has no dims; set them, for instance to [ -1 ]"
    if any(dim < 1 and dim != -1 for dim in dims):
        yield f"{who} has dims {dims}; {_DIM_RULE}"
    if tensor.HasField("reshape"):
        yield from _of_reshape(config, who, dims, list(tensor.reshape.shape))
    if config.platform != "tensorrt_plan":
        if tensor.is_shape_tensor:
            yield f"{who} is a shape tensor, which only TensorRT models have; leave that out"
        if tensor.is_non_linear_format_io:
            yield f"{who} has a non-linear format, which only TensorRT models have; leave that out"


def _of_reshape(config: ModelConfigMessage, who: str, dims: list[int], shape: list[int]) -> Iterator[str]:
    if not shape and config.max_batch_size == 0:
        yield (
            f"{who} has an empty reshape, which would make it a scalar in a model that does not batch; "
            "leave reshape out, or set max_batch_size"
        )
    if any(dim < 1 and dim != -1 for dim in shape):
        yield f"{who} has reshape {shape}; {_DIM_RULE}"
    if _runs(dims) != _runs(shape):
        yield (
            f"{who} has dims {dims} but reshape {shape}; both must hold equally many elements, "
            "also between sizes that vary"
        )


def _runs(dims: Sequence[int]) -> list[int]:
    """Return the number of elements of each stretch between sizes that vary."""
    runs = [1]
    for dim in dims:
        if dim == -1:
            runs.append(1)
        else:
            runs[-1] *= dim
    return runs


def _of_labels(who: str, filename: str, folder: Path) -> Iterator[str]:
    path = folder / filename
    if not path.resolve().is_relative_to(folder.resolve()):
        yield f"{who}: label file '{filename}' is outside the model's folder; put it inside"
    if not path.is_file():
        yield f"{who}: there is no label file {path}; add it, or leave label_filename out"


def _of_batch_tensors(config: ModelConfigMessage) -> Iterator[str]:
    pb = model_config_pb2()
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for number, batch in enumerate(config.batch_input):
        who = f"batch_input[{number}]"
        yield from _of_source(who, pb.BatchInput.Kind, batch, inputs)
        if batch.data_type not in (pb.TYPE_INT32, pb.TYPE_FP32):
            yield f"{who} must be of data_type TYPE_INT32 or TYPE_FP32"
    for number, batch in enumerate(config.batch_output):
        who = f"batch_output[{number}]"
        yield from _of_source(who, pb.BatchOutput.Kind, batch, inputs)
        targets = list(batch.target_name)
        for target in targets:
            if target not in outputs:
                yield f"{who} names '{target}', which is no output; use one of {_listed(outputs)}"
            if targets.count(target) > 1:
                yield f"{who} names output '{target}' twice; keep one of them"


def _of_source(who: str, kinds: Any, batch: Any, inputs: set[str]) -> Iterator[str]:
    if batch.kind not in kinds.values():
        yield f"{who} has kind {batch.kind}; use one of {', '.join(kinds.keys())}"
    if len(batch.source_input) != 1:
        yield f"{who} needs exactly one source_input, got {len(batch.source_input)}"
    name = batch.source_input[0]
    if name not in inputs:
        yield f"{who} names source_input '{name}', which is no input; use one of {_listed(inputs)}"


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "(there are none)"


# -- warm-up -----------------------------------------------------------------------------------------


def warmup_problems(config: ModelConfigMessage, folder: Path | None) -> Iterator[str]:
    """Yield warm-up samples that could not be sent; a sample of batch size 0 is skipped."""
    for number, sample in enumerate(config.model_warmup):
        if sample.batch_size == 0:
            continue
        who = f"model_warmup '{sample.name}'" if sample.name else f"model_warmup[{number}]"
        most = max(1, config.max_batch_size)
        if sample.batch_size > most:
            yield f"{who} has batch_size {sample.batch_size}; the model takes at most {most}"
        inputs = {tensor.name: tensor for tensor in config.input}
        for name, tensor in inputs.items():
            if not tensor.optional and name not in sample.inputs:
                yield f"{who} has no data for input '{name}'; add it to its inputs"
        for name, given in sorted(sample.inputs.items()):
            yield from _of_warmup_input(f"{who}, input '{name}'", given, inputs.get(name), folder)


def _of_warmup_input(who: str, given: Any, declared: Any, folder: Path | None) -> Iterator[str]:
    types = model_config_pb2().DataType
    dims = list(given.dims)
    if any(dim < 0 for dim in dims):
        yield f"{who} has dims {dims}; a warm-up needs fixed sizes, none of them -1"
    choice = given.WhichOneof("input_data_type")
    if choice is None:
        yield f"{who} has no data; set zero_data: true, random_data: true or input_data_file"
    if choice == "input_data_file" and folder is not None:
        path = folder / "warmup" / given.input_data_file
        if not path.is_file():
            yield f"{who}: there is no file {path}; put the data there"
    # Names that are no inputs are controls of a sequence model.
    if declared is None:
        return
    has, wants = given.data_type, declared.data_type
    if has != wants:
        yield f"{who} has data_type {types.Name(has)}, but the model expects {types.Name(wants)}"
    expected = list(declared.dims)
    if len(dims) != len(expected) or any(e not in (-1, d) for d, e in zip(dims, expected, strict=True)):
        yield f"{who} has dims {dims}, but the model expects {expected}"
