"""What Triton refuses of `model_warmup`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .proto import ModelConfigMessage, model_config_pb2
from .refuse import refuse

__all__ = ["validate_warmup"]


def validate_warmup(config: ModelConfigMessage, folder: Path | None) -> None:
    """Raise for warm-up samples that could not be sent; a sample of batch size 0 is skipped."""
    for number, sample in enumerate(config.model_warmup):
        if sample.batch_size == 0:
            continue
        who = f"model_warmup '{sample.name}'" if sample.name else f"model_warmup[{number}]"
        most = max(1, config.max_batch_size)
        if sample.batch_size > most:
            refuse(config, f"{who} has batch_size {sample.batch_size}; the model takes at most {most}")
        inputs = {tensor.name: tensor for tensor in config.input}
        missing = [n for n, tensor in inputs.items() if not tensor.optional and n not in sample.inputs]
        if missing:
            refuse(config, f"{who} has no data for input '{missing[0]}'; add it to its inputs")
        for name in sorted(sample.inputs):
            _validate_input(config, f"{who}, input '{name}'", sample.inputs[name], inputs.get(name), folder)


def _validate_input(
    config: ModelConfigMessage, who: str, given: Any, declared: Any, folder: Path | None
) -> None:
    types = model_config_pb2().DataType
    dims = list(given.dims)
    if any(dim < 0 for dim in dims):
        refuse(config, f"{who} has dims {dims}; a warm-up needs fixed sizes, none of them -1")
    choice = given.WhichOneof("input_data_type")
    if choice is None:
        refuse(config, f"{who} has no data; set zero_data: true, random_data: true or input_data_file")
    if choice == "input_data_file" and folder is not None:
        path = folder / "warmup" / given.input_data_file
        if not path.is_file():
            refuse(config, f"{who}: there is no file {path}; put the data there")
    # Names that are no inputs are controls of a sequence model.
    if declared is None:
        return
    if given.data_type != declared.data_type:
        refuse(
            config,
            f"{who} has data_type {types.Name(given.data_type)}, "
            f"but the model expects {types.Name(declared.data_type)}",
        )
    expected = list(declared.dims)
    fits = len(dims) == len(expected) and all(e in (-1, d) for d, e in zip(dims, expected, strict=True))
    if not fits:
        refuse(config, f"{who} has dims {dims}, but the model expects {expected}")
