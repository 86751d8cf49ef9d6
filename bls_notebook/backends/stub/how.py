"""`Stub`: how a model is stood in for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bls_notebook.backends.protocol import OpenModel

from .values import Values


@dataclass(frozen=True)
class Stub:
    """How a model is stood in for.

    Attributes
    ----------
    reason : str
        Why, in a line.
    values : str
        ``zeros`` or ``random``.
    seed : int
        Of random values: the same request gets the same answer.
    seconds : float
        How long each `execute` takes.
    responses : int
        How many a request gets, where the model is decoupled.
    recorded : mapping of str to array
        Outputs that are given as they are, by name.
    gpu : int, optional
        Number of the GPU that numbers are on, as those of a TensorRT engine are.
    asks : OpenModel, optional
        The model's own backend, whose `auto_complete_config` is asked first; where that fails, the
        configuration is taken as it is.
    answers : object, optional
        Who gives the answers (`repository.stubbing.answers.GivenAnswers`); they are made up from the
        configuration without.
    """

    reason: str = ""
    values: Values = "zeros"
    seed: int = 0
    seconds: float = 0.0
    responses: int = 3
    recorded: Mapping[str, Any] = field(default_factory=dict)
    gpu: int | None = None
    asks: OpenModel | None = None
    answers: Any = None
