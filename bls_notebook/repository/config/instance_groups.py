"""Default and resolved instance groups, and what Triton refuses of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bls_notebook.devices.registry import why_no_gpu

from .proto import ModelConfigMessage, model_config_pb2
from .validate import refuse

MOST_INSTANCES = 1024
# Backends that get two instances a group on a CPU where no count is given.
_TWO_ON_CPU = frozenset({"tensorflow", "onnxruntime"})


def complete_instance_groups(config: ModelConfigMessage, gpus: int, auto: bool) -> None:
    """Give every instance group, in place, its name, kind, count and devices.

    There are so many `gpus`, numbered from 0; `auto` says whether `KIND_AUTO` may become `KIND_GPU`. An
    ensemble has no instances and stays as it is.
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
        refuse(config, _problems(config, group, gpus))
    refuse(config, _too_many(config))


def _too_many(config: ModelConfigMessage) -> Iterator[str]:
    count = sum(group.count * max(1, len(group.gpus)) for group in config.instance_group)
    if count > MOST_INSTANCES:
        yield (
            f"its instance groups ask for {count:,} instances, expected at most {MOST_INSTANCES:,}: on a "
            "server each is a process of its own; lower instance_group.count"
        )


def _problems(config: ModelConfigMessage, group: Any, gpus: int) -> Iterator[str]:
    kinds = model_config_pb2().ModelInstanceGroup
    who = f"instance group '{group.name}'"
    if group.kind not in kinds.Kind.values():
        yield f"{who} has kind {group.kind}, which is not one of {', '.join(kinds.Kind.keys())}"
    if group.kind == kinds.KIND_GPU:
        there = f"GPUs here: {', '.join(map(str, range(gpus)))}" if gpus else "there is no GPU here"
        if not group.gpus:
            remedy = f"use KIND_CPU, or leave the kind out ({why_no_gpu()})"
            yield f"{who} has kind KIND_GPU, but {there}; {remedy}"
        for device in group.gpus:
            if not 0 <= device < gpus:
                why = "" if gpus else f" ({why_no_gpu()})"
                yield f"{who} asks for GPU {device}, but {there}; change gpus, or use KIND_CPU{why}"
    elif group.gpus:
        yield (
            f"{who} is of kind {kinds.Kind.Name(group.kind)} but lists gpus {list(group.gpus)}; "
            "leave gpus out, or use kind: KIND_GPU with GPUs that exist"
        )
    if group.profile and config.platform != "tensorrt_plan":
        yield f"{who} gives a profile, which only TensorRT models have; leave profile out"
