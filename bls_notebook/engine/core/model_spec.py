"""`ModelSpec`: the parts of a configuration that a request's path needs, as frozen data for each model version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

SchedulerKind = Literal["default", "dynamic", "sequence", "ensemble"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output as the configuration declares it; the last three fields are False for outputs."""

    name: str
    datatype: str  # Triton's name, such as ``FP32`` or ``BYTES``; ``INVALID`` for an unknown number
    dtype: np.dtype[Any] | None  # object for BYTES, None for BF16 (which NumPy lacks) and INVALID
    dims: tuple[int, ...]  # as in config.pbtxt: -1 for a varying size, without the batch dimension
    shape: tuple[int, ...]  # of a request's tensor: `dims`, with a leading -1 if the model batches
    model_shape: tuple[int, ...]  # of the model's tensor: `shape` with `reshape` in place of `dims`
    reshape: tuple[int, ...] | None = None
    optional: bool = False
    is_shape_tensor: bool = False
    allow_ragged_batch: bool = False


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """One instance of a model."""

    name: str  # as in Triton: name of the group and number in it; the same on each GPU of the group
    kind: str  # ``CPU``, ``GPU`` or ``MODEL``, as `initialize` gets it
    device_id: int
    passive: bool = False  # initialized, but never given a request
    rate_limiter: Any = field(default=None, repr=False, compare=False)  # the `ModelRateLimiter` of its group
    like: object = field(default=None, repr=False, compare=False)  # equal for interchangeable instances


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The parts of a configuration that a request's path needs."""

    name: str
    backend: str
    filename: str
    max_batch_size: int
    decoupled: bool
    scheduler: SchedulerKind
    inputs: Mapping[str, TensorSpec]  # in the declared order; the first one of a name counts, as in Triton
    outputs: Mapping[str, TensorSpec]
    declared: int  # number of declarations of inputs; Triton counts an input that is declared twice as two
    required: tuple[str, ...]  # names of inputs; twice if declared twice
    instances: tuple[InstanceSpec, ...]
    instance_kind: str
    response_cache: bool
    force_cpu_only_input_tensors: bool
    parameters: Mapping[str, str]
    json: str = field(repr=False)  # what `initialize` gets as `model_config`
    config: Any = field(repr=False, compare=False)  # the completed message; do not change it

    @property
    def in_python(self) -> bool:
        """True if Triton's Python backend runs the model, directly or for a Python-based backend."""
        return self.backend == "python" or getattr(self.config, "runtime", "") == "model.py"
