"""The steps of an ensemble as plain data: which tensor each reads and writes, and which are needed for what.

Made once a model version and never changed, so it may be used from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["EnsemblePlan", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """One model of an ensemble.

    Attributes
    ----------
    model : str
    version : int
        -1 for the newest.
    inputs : mapping of str to str
        The model's inputs, and the tensors of the ensemble that they are.
    outputs : mapping of str to str
        The model's outputs, and the tensors of the ensemble that they become.
    """

    model: str
    version: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


class EnsemblePlan:
    """The steps of an ensemble.

    Parameters
    ----------
    steps : iterable of Step

    Attributes
    ----------
    steps : tuple of Step
    readers : mapping of str to tuple of int
        The steps that read each tensor.
    """

    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps = tuple(steps)
        readers: dict[str, tuple[int, ...]] = {}
        self._writer: dict[str, int] = {}
        for number, step in enumerate(self.steps):
            for tensor in dict.fromkeys(step.inputs.values()):
                readers[tensor] = (*readers.get(tensor, ()), number)
            for tensor in step.outputs.values():
                self._writer[tensor] = number
        self.readers = readers
        self._needed: dict[frozenset[str], frozenset[int]] = {}

    @staticmethod
    def of(config: Any) -> EnsemblePlan:
        """Return the plan of a completed configuration."""
        return EnsemblePlan(
            Step(s.model_name, s.model_version, dict(s.input_map), dict(s.output_map))
            for s in config.ensemble_scheduling.step
        )

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the models of the steps, each once."""
        return tuple(dict.fromkeys(step.model for step in self.steps))

    def needed(self, outputs: frozenset[str]) -> frozenset[int]:
        """Return the steps without which these outputs cannot be made."""
        found = self._needed.get(outputs)
        if found is None:
            steps: set[int] = set()
            todo = list(outputs)
            while todo:
                number = self._writer.get(todo.pop())
                if number is not None and number not in steps:
                    steps.add(number)
                    todo.extend(self.steps[number].inputs.values())
            found = self._needed[outputs] = frozenset(steps)
        return found
