"""What a request's path needs of a configuration: plain and frozen, made once a model version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Scheduler = Literal["default", "dynamic", "sequence", "ensemble"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output as the configuration declares it.

    `datatype`: Triton's name, such as ``FP32`` or ``BYTES``; ``INVALID`` for a number that is no data type.
    `dtype`: object for BYTES, None for BF16 (which NumPy lacks) and INVALID.
    `dims`: as in config.pbtxt, -1 where the size varies, without the batch dimension.
    `shape`: the whole shape of a request's tensor: `dims`, after a -1 where the model batches.
    `model_shape`: what the model is handed: `shape` with `reshape` in place of `dims` where there is one.
    `optional`, `is_shape_tensor`, `allow_ragged_batch`: always False for outputs.
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

    `name`: Triton's name: that of the group and the number in it. On several GPUs it repeats.
    `kind`: ``CPU``, ``GPU`` or ``MODEL``, as `initialize` is told.
    `device_id`: 0 but for GPUs.
    `passive`: it is initialised, but never handed a request.
    `like`: equal for instances that may stand for each other when the instance groups change: all of their
        group but its name and count.
    """

    name: str
    kind: str
    device_id: int
    passive: bool = False
    like: object = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What a request's path needs of a configuration.

    `config`: the completed message itself; do not change it.
    `json`: what `initialize` gets as `model_config`.
    `inputs`, `outputs`: in the declared order. Of a name that is listed twice the first counts, as in Triton.
    `required`: names of the inputs that a request must have.
    `instances`: empty for an ensemble.
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
    config: Any = field(repr=False, compare=False)

    @property
    def in_python(self) -> bool:
        """Whether Triton's Python backend runs it, by itself or for a backend made of Python."""
        return self.backend == "python" or getattr(self.config, "runtime", "") == "model.py"
