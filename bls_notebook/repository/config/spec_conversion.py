"""Convert a completed configuration to frozen plain data, which requests read quickly."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from bls_notebook.engine.core.model_spec import InstanceSpec, ModelSpec, SchedulerKind, TensorSpec
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE

from .protobuf_message import ModelConfigMessage, model_config_pb2, to_json

_SCHEDULERS: dict[str | None, SchedulerKind] = {
    None: "default", "dynamic_batching": "dynamic", "sequence_batching": "sequence", "ensemble_scheduling": "ensemble",
}  # fmt: skip


def model_spec(config: ModelConfigMessage) -> ModelSpec:
    """Return the spec of a completed and validated configuration."""
    batching = config.max_batch_size > 0
    instances = tuple(_instances(config))
    parameters = {key: config.parameters[key].string_value for key in config.parameters}
    return ModelSpec(
        name=config.name,
        backend=config.backend or config.platform,
        filename=config.default_model_filename,
        max_batch_size=config.max_batch_size,
        decoupled=config.model_transaction_policy.decoupled,
        scheduler=_SCHEDULERS[config.WhichOneof("scheduling_choice")],
        inputs=MappingProxyType(_tensors(config.input, batching)),
        outputs=MappingProxyType(_tensors(config.output, batching)),
        declared=len(config.input),
        required=tuple(tensor.name for tensor in config.input if not tensor.optional),
        instances=instances,
        instance_kind=instances[0].kind if instances else "",
        response_cache=config.response_cache.enable,
        force_cpu_only_input_tensors=parameters.get("FORCE_CPU_ONLY_INPUT_TENSORS") != "no",
        parameters=MappingProxyType(parameters),
        json=to_json(config),
        config=config,
    )


def pick_versions(config: ModelConfigMessage, available: Iterable[int]) -> list[int]:
    """Return the available versions that a completed configuration's policy picks, ascending."""
    versions = sorted(set(available))
    policy = config.version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "specific":
        wanted = set(policy.specific.versions)
        return [version for version in versions if version in wanted]
    if choice == "latest":
        newest = policy.latest.num_versions
        return versions[-newest:] if newest else []
    return versions


def _tensors(declared: Iterable[Any], batching: bool) -> dict[str, TensorSpec]:
    out: dict[str, TensorSpec] = {}
    for tensor in declared:
        datatype = datatypes().get(tensor.data_type, "INVALID")
        dims = tuple(tensor.dims)
        reshape = tuple(tensor.reshape.shape) if tensor.HasField("reshape") else None
        batch = (-1,) if batching else ()
        # Outputs have neither optional nor allow_ragged_batch.
        spec = TensorSpec(
            name=tensor.name,
            datatype=datatype,
            dtype=DTYPE_OF_DATATYPE.get(datatype),
            dims=dims,
            shape=batch + dims,
            model_shape=batch + (dims if reshape is None else reshape),
            reshape=reshape,
            optional=getattr(tensor, "optional", False),
            is_shape_tensor=tensor.is_shape_tensor,
            allow_ragged_batch=getattr(tensor, "allow_ragged_batch", False),
        )
        out.setdefault(spec.name, spec)
    return out


def _instances(config: ModelConfigMessage) -> Iterable[InstanceSpec]:
    kinds = model_config_pb2().ModelInstanceGroup.Kind
    for group in config.instance_group:
        kind = kinds.Name(group.kind).removeprefix("KIND_")
        unnamed = deepcopy(group)
        unnamed.ClearField("name")
        unnamed.ClearField("count")
        alike = unnamed.SerializeToString(deterministic=True)
        for number in range(group.count):
            for device in group.gpus if kind == "GPU" else (0,):
                name, like = f"{group.name}_{number}", (alike, device)
                yield InstanceSpec(name, kind, device, group.passive, group.rate_limiter, like)


@functools.cache
def datatypes() -> dict[int, str]:
    """Return Triton's names of data types, such as ``FP32`` and ``BYTES``, by their protobuf numbers."""
    names = model_config_pb2().DataType
    return {number: "BYTES" if name == "TYPE_STRING" else name.removeprefix("TYPE_") for name, number in names.items()}


def environment_parameter(config: ModelConfigMessage) -> str:
    """Return the value of the parameter ``EXECUTION_ENV_PATH``; empty without it."""
    parameters = config.parameters
    return str(parameters["EXECUTION_ENV_PATH"].string_value) if "EXECUTION_ENV_PATH" in parameters else ""
