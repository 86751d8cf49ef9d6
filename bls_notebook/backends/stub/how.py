"""`Stub`: how a model is stood in for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bls_notebook.backends.protocol import BackendInstance, OpenModel

from .values import Values


@dataclass(frozen=True)
class Stub:
    """How a model is stood in for."""

    reason: str = ""  # why, in a line
    values: Values = "zeros"
    seed: int = 0  # of random values: the same request gets the same answer
    seconds: float = 0.0  # that each `execute` takes
    responses: int = 3  # that a request gets, where the model is decoupled
    recorded: Mapping[str, Any] = field(default_factory=dict)  # outputs that are given as they are, by name
    gpu: int | None = None  # that numbers are on, as those of a TensorRT engine are
    # The model's own backend, whose `auto_complete_config` is asked first; where that fails, it is taken
    # as it is configured.
    asks: OpenModel | None = None
    # Who gives the answers (`repository.stubbing.answers`); without, they are made up from the configuration.
    answers: Any = None
    # Makes an instance from the arguments of a Python model's `initialize`, in place of the above.
    make: Callable[[Mapping[str, str]], BackendInstance] | None = None
