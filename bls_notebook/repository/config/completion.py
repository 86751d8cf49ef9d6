"""Complete a configuration as Triton does: defaults, instance groups, and the model's `auto_complete_config`.

The order is the server's: backend and file name, defaults, first validation, instance groups, and after
`auto_complete_config` the defaults again. Values that are set never change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from typing import Any

from bls_notebook.devices.registry import why_no_gpu
from bls_notebook.engine.errors import ConfigError
from bls_notebook.pb_utils.model_config import ModelConfig

from .parsing import parse_json
from .protobuf_message import ModelConfigMessage, model_config_pb2, to_json
from .validation import KNOWN_BACKENDS, validate_model

MOST_INSTANCES = 1024
# Backends with two instances per group on the CPU unless the group has a count.
_TWO_ON_CPU = frozenset({"tensorflow", "onnxruntime"})


def complete_instance_groups(config: ModelConfigMessage, gpus: int, auto: bool) -> None:
    """Set, in place, the name, kind, count and devices of every instance group.

    `gpus` is the number of GPUs; `auto` says whether `KIND_AUTO` may become `KIND_GPU`. An ensemble has no instances
    and stays unchanged.
    """
    if config.HasField("ensemble_scheduling"):
        return
    kinds = model_config_pb2().ModelInstanceGroup
    if not config.instance_group:
        config.instance_group.add(name=config.name)
    for number, group in enumerate(config.instance_group):
        if not group.name:
            group.name = f"{config.name}_{number}"
        if group.kind == kinds.KIND_AUTO:
            on_gpu = auto and gpus > 0 and all(0 <= device < gpus for device in group.gpus)
            group.kind = kinds.KIND_GPU if on_gpu else kinds.KIND_CPU
        if group.count < 1:
            on_cpu = group.kind == kinds.KIND_CPU
            group.count = 2 if on_cpu and config.backend in _TWO_ON_CPU else 1
        if group.kind == kinds.KIND_GPU and not group.gpus:
            group.gpus.extend(range(gpus))
        for why, reason in _problems(config, group, gpus):
            error = ConfigError(f"model '{config.name}': instance group '{group.name}' {why}")
            error.reason = reason and f"Invalid argument: instance group {group.name} of model {config.name} {reason}"
            raise error
    count = sum(group.count * max(1, len(group.gpus)) for group in config.instance_group)
    if count > MOST_INSTANCES:
        raise ConfigError(
            f"model '{config.name}': its instance groups have {count:,} instances, expected at most "
            f"{MOST_INSTANCES:,}, because each is a process on a server; lower instance_group.count"
        )


def _problems(config: ModelConfigMessage, group: Any, gpus: int) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an instance group, and Triton's words for it, if it has some."""
    kinds = model_config_pb2().ModelInstanceGroup
    if group.kind not in kinds.Kind.values():
        yield f"has kind {group.kind}, which is not one of {', '.join(kinds.Kind.keys())}", ""
    if group.kind == kinds.KIND_GPU:
        existing = f"GPUs here: {', '.join(map(str, range(gpus)))}" if gpus else "there is no GPU here"
        if not group.gpus:
            remedy = f"use KIND_CPU, or leave the kind out ({why_no_gpu()})"
            yield f"has kind KIND_GPU, but {existing}; {remedy}", "has kind KIND_GPU but no GPUs are available"
        for device in group.gpus:
            if not 0 <= device < gpus:
                why = "" if gpus else f" ({why_no_gpu()})"
                supported = ", ".join(map(str, range(gpus)))
                yield (
                    f"asks for GPU {device}, but {existing}; change gpus, or use KIND_CPU{why}",
                    f"specifies invalid or unsupported gpu id {device}. GPUs with at least the minimum required CUDA "
                    f"compute compatibility of 6.000000 are: {supported}",
                )
    elif group.gpus:
        kind = kinds.Kind.Name(group.kind)
        yield (
            f"is of kind {kind} but lists gpus {list(group.gpus)}; leave gpus out, or use kind: KIND_GPU with GPUs "
            "that exist",
            f"has kind {kind} but specifies one or more GPUs",
        )
    if group.profile and config.platform != "tensorrt_plan":
        yield (
            "gives a profile, which only TensorRT models have; leave profile out",
            (f"and platform {config.platform}specifies profile field which is only supported for TensorRT models"),
        )


_SEQUENCE_IDLE_MICROSECONDS = 1_000_000


def complete(
    config: ModelConfigMessage,
    *,
    model: str,
    files: Collection[str] = ("model.py",),
    gpus: int = 0,
    runs_on_gpu: Callable[[str], bool] = lambda backend: True,
) -> ModelConfigMessage:
    """Return a new configuration with the values that Triton fills in without running the model's code.

    `model` is the name of the model's folder or cell. If the configuration names no backend, the names of the `files`
    in the first version's folder determine it. The number of `gpus`, and whether the backend runs on GPUs, determine
    `KIND_AUTO` and the default instance group.
    """
    completed = deepcopy(config)
    completed.name = completed.name or model
    if completed.name != model:
        raise ConfigError(
            f'model \'{model}\': its configuration has name: "{completed.name}", expected "{model}"; change the '
            "name, or leave it out"
        )
    _fill_backend(completed, files)
    _fill_defaults(completed)
    validate_model(completed)
    complete_instance_groups(completed, gpus, gpus > 0 and runs_on_gpu(completed.backend))
    if completed.HasField("ensemble_scheduling"):
        # Triton overwrites an ensemble's policy with its members' policy.
        completed.model_transaction_policy.decoupled = False
    return completed


def _fill_defaults(config: ModelConfigMessage) -> None:
    """Set, in place, the missing defaults of version policy, batching and optimization."""
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    batching = config.WhichOneof("scheduling_choice")
    if batching == "dynamic_batching":
        _prefer_full_batches(config.dynamic_batching.preferred_batch_size, config.max_batch_size)
    elif batching == "sequence_batching":
        sequence = config.sequence_batching
        if sequence.max_sequence_idle_microseconds == 0:
            sequence.max_sequence_idle_microseconds = _SEQUENCE_IDLE_MICROSECONDS
        if sequence.HasField("oldest"):
            _prefer_full_batches(sequence.oldest.preferred_batch_size, config.max_batch_size)
    if batching != "ensemble_scheduling":
        optimization = config.optimization
        for pinned in ("input_pinned_memory", "output_pinned_memory"):
            if not optimization.HasField(pinned):
                getattr(optimization, pinned).enable = True


def _prefer_full_batches(preferred: list[int], max_batch_size: int) -> None:
    if not preferred and max_batch_size > 0:
        preferred.append(max_batch_size)


def _fill_backend(config: ModelConfigMessage, files: Collection[str]) -> None:
    if config.platform == "ensemble":
        return
    for backend, filenames in KNOWN_BACKENDS.items():
        if not config.backend and _recognised(filenames, config, files):
            config.backend = backend
        if config.backend == backend:
            first = next(iter(filenames))
            config.platform = config.platform or first
            if not config.default_model_filename and (backend != "pytorch" or config.runtime != "model.py"):
                config.default_model_filename = filenames.get(config.platform, filenames[first])
            return
    if config.backend or config.platform or config.default_model_filename:
        return
    _, dot, backend_name = config.name.partition(".")
    if not dot:
        raise ConfigError(
            f"model '{config.name}': it has no backend, and its files do not identify one"
            f"{' (' + ', '.join(sorted(files)) + ')' if files else ''}; "
            'add backend: "python", or platform: "ensemble", to its configuration'
        )
    # The name `model.<backend>` contains the backend.
    config.backend = backend_name
    config.default_model_filename = f"model.{backend_name}"


def _recognised(filenames: dict[str, str], config: ModelConfigMessage, files: Collection[str]) -> bool:
    platform, named = config.platform, config.default_model_filename
    if platform or named:
        return (platform != "" and platform in filenames) or named in filenames.values()
    return any(name in files for name in filenames.values())


def auto_complete(config: ModelConfigMessage, model_class: object) -> ModelConfigMessage:
    """Return a new configuration with the additions of the `auto_complete_config` of the model or its backend.

    As in Triton, only max_batch_size, the inputs, the outputs, a scheduler (if there was none) and the transaction
    policy are taken from the result; other changes are ignored.

    If the result is not a valid configuration (for example a data type without `TYPE_`), Triton discards it: it then
    rejects a model without config.pbtxt, and silently serves any other model without the additions. Here both are
    errors, and so is a change of the scheduler.
    """
    completed = deepcopy(config)
    function = getattr(model_class, "auto_complete_config", None)
    if function is None:
        return completed
    result = function(ModelConfig(to_json(config)))
    if not isinstance(result, ModelConfig):
        kind = "None" if result is None else f"a {type(result).__name__}"
        problem = f"auto_complete_config function in model '{config.name}' must return a valid pb.ModelConfig object."
        raise _refused(f"{problem} It returned {kind}; return its argument", problem)
    source = "auto_complete_config"
    try:
        # As text, like on Triton: values that JSON cannot represent must fail here, too.
        text = json.dumps(result.as_dict())
    except (TypeError, ValueError) as error:
        message = f"model '{config.name}': {source}: {error}; use plain numbers, texts, lists and dicts"
        raise _refused(message, f"{type(error).__name__}: {error}") from None
    _merge(completed, parse_json(text, model=config.name, source=source))
    _fill_defaults(completed)
    return completed


def _refused(message: str, reason: str) -> ConfigError:
    error = ConfigError(message)
    error.reason = f"Internal: {reason}"
    return error


def _merge(config: ModelConfigMessage, result: ModelConfigMessage) -> None:
    config.max_batch_size = result.max_batch_size
    for tensors in ("input", "output"):
        config.ClearField(tensors)
        getattr(config, tensors).extend(getattr(result, tensors))
    scheduler_before, scheduler_after = config.WhichOneof("scheduling_choice"), result.WhichOneof("scheduling_choice")
    if scheduler_before is None and scheduler_after is not None:
        getattr(config, scheduler_after).CopyFrom(getattr(result, scheduler_after))
    elif scheduler_before != scheduler_after:
        raise ConfigError(
            f"model '{config.name}': auto_complete_config replaced {scheduler_before} by "
            f"{scheduler_after or 'nothing'}; keep the scheduler that the configuration names"
        )
    if result.HasField("model_transaction_policy"):
        config.model_transaction_policy.decoupled = result.model_transaction_policy.decoupled
