"""The steps of an ensemble as plain data: which tensor each reads and writes, and which are needed for what.

Made once a model version and never changed, so it may be used from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.tensors.reshape import output_reshapes


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One model of an ensemble.

    `version`: -1 for the newest. `inputs`: the model's inputs, and the tensors of the ensemble that they are.
    `outputs`: the model's outputs, and the tensors of the ensemble that they become.
    """

    model: str
    version: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


class EnsemblePlan:
    """The steps of an ensemble.

    `spec`: of the ensemble.
    `models`: the models and versions of the steps, each once.
    `readers`: the steps that read each tensor.
    `reshapes`: of the outputs, for `reshape_all`.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.steps = tuple(
            EnsembleStep(s.model_name, s.model_version, dict(s.input_map), dict(s.output_map))
            for s in spec.config.ensemble_scheduling.step
        )
        self.models = tuple(dict.fromkeys((step.model, step.version) for step in self.steps))
        self.reshapes = output_reshapes(spec.outputs)
        self.readers: dict[str, tuple[int, ...]] = {}
        self._writer: dict[str, int] = {}
        for number, step in enumerate(self.steps):
            for tensor in dict.fromkeys(step.inputs.values()):
                self.readers[tensor] = (*self.readers.get(tensor, ()), number)
            self._writer.update(dict.fromkeys(step.outputs.values(), number))
        self._needed: dict[frozenset[str], frozenset[int]] = {}

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
