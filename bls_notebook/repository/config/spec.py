"""A completed configuration as plain frozen data, for the path of each request."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE

from .proto import ModelConfigMessage, model_config_pb2
from .render import to_json

__all__ = ["InstanceSpec", "ModelSpec", "Scheduler", "TensorSpec"]

Scheduler = Literal["default", "dynamic", "sequence", "ensemble"]
_SCHEDULERS: dict[str | None, Scheduler] = {
    None: "default",
    "dynamic_batching": "dynamic",
    "sequence_batching": "sequence",
    "ensemble_scheduling": "ensemble",
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output as the configuration declares it.

    Attributes
    ----------
    name : str
    datatype : str
        Triton's name, such as ``FP32`` or ``BYTES``; ``INVALID`` for a number that is no data type.
    dtype : numpy.dtype or None
        object for BYTES, None for BF16 (which NumPy lacks) and INVALID.
    dims : tuple of int
        As in config.pbtxt, -1 where the size varies, without the batch dimension.
    shape : tuple of int
        The whole shape of a request's tensor: `dims`, after a -1 where the model batches.
    model_shape : tuple of int
        What the model is handed: `shape` with `reshape` in place of `dims` where there is one.
    reshape : tuple of int or None
    optional, is_shape_tensor, allow_ragged_batch : bool
        Always False for outputs.
    """

    name: str
    datatype: str
    dtype: np.dtype[Any] | None
    dims: tuple[int, ...]
    shape: tuple[int, ...]
    model_shape: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    optional: bool = False
    is_shape_tensor: bool = False
    allow_ragged_batch: bool = False


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """One instance of a model.

    Attributes
    ----------
    name : str
        Triton's name: that of the group and the number in it. On several GPUs it repeats.
    kind : str
        ``CPU``, ``GPU`` or ``MODEL``, as `initialize` is told.
    device_id : int
        0 but for GPUs.
    passive : bool
        It is initialised, but never handed a request.
    """

    name: str
    kind: str
    device_id: int
    passive: bool = False


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What a request's path needs of a configuration.

    Attributes
    ----------
    config : ModelConfig
        The completed message itself; do not change it.
    json : str
        What `initialize` gets as `model_config`.
    inputs, outputs : mapping of str to TensorSpec
        In the declared order. Of a name that is listed twice the first counts, as in Triton.
    required : frozenset of str
        Names of the inputs that a request must have.
    instances : tuple of InstanceSpec
        Empty for an ensemble.
    """

    name: str
    backend: str
    filename: str
    max_batch_size: int
    decoupled: bool
    scheduler: Scheduler
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    required: frozenset[str]
    instances: tuple[InstanceSpec, ...]
    instance_kind: str
    response_cache: bool
    force_cpu_only_input_tensors: bool
    parameters: Mapping[str, str]
    json: str = field(repr=False)
    config: ModelConfigMessage = field(repr=False, compare=False)

    @classmethod
    def of(cls, config: ModelConfigMessage) -> ModelSpec:
        """Return the spec of a configuration that has been completed and validated."""
        batching = config.max_batch_size > 0
        inputs = _tensors(config.input, batching)
        instances = tuple(_instances(config))
        parameters = {key: config.parameters[key].string_value for key in config.parameters}
        return cls(
            name=config.name,
            backend=config.backend or config.platform,
            filename=config.default_model_filename,
            max_batch_size=config.max_batch_size,
            decoupled=config.model_transaction_policy.decoupled,
            scheduler=_SCHEDULERS[config.WhichOneof("scheduling_choice")],
            inputs=MappingProxyType(inputs),
            outputs=MappingProxyType(_tensors(config.output, batching)),
            required=frozenset(name for name, tensor in inputs.items() if not tensor.optional),
            instances=instances,
            instance_kind=instances[0].kind if instances else "",
            response_cache=config.response_cache.enable,
            force_cpu_only_input_tensors=parameters.get("FORCE_CPU_ONLY_INPUT_TENSORS") != "no",
            parameters=MappingProxyType(parameters),
            json=to_json(config),
            config=config,
        )

    def versions_to_load(self, available: Iterable[int]) -> list[int]:
        """Return the versions that the version policy picks, in ascending order.

        It can be empty: Triton then refuses the model.
        """
        return pick_versions(self.config, available)


def pick_versions(config: ModelConfigMessage, available: Iterable[int]) -> list[int]:
    """Return which of the available versions a completed configuration's policy picks, ascending."""
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
        datatype = _datatypes().get(tensor.data_type, "INVALID")
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
        for number in range(group.count):
            for device in group.gpus if kind == "GPU" else (0,):
                yield InstanceSpec(f"{group.name}_{number}", kind, device, group.passive)


@functools.cache
def _datatypes() -> dict[int, str]:
    names = model_config_pb2().DataType
    return {
        number: "BYTES" if name == "TYPE_STRING" else name.removeprefix("TYPE_")
        for name, number in names.items()
    }
