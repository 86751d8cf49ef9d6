"""Requests one after the other, whose answers are compared with those of the model as it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bls_notebook.records.visible import first_line
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.requests.response import Response

from .workload import Inputs, Run, Workload


class Sequential(Workload):
    """Requests one after the other, to a model as it is written and in another way."""

    def __init__(self, repository: ModelRepository, model: str, inputs: list[Inputs]) -> None:
        super().__init__(repository, model, inputs)
        self.inputs = inputs
        self.answers: list[Response] = []
        self.problem = ""
        self._expected: list[Response] = []

    def answered(self, response: Response) -> None:
        self.answers.append(response)

    def sequential(self, name: str = "as it is written") -> Run:
        self.answers = []
        run = super().sequential(name)
        self._expected = self.answers
        return run

    def answers_compared(self, name: str) -> Run:
        """Run what serves now, and compare its answers."""
        self.answers = []
        run = super().sequential(name)
        self.problem = self.problem or self.differs()  # one round is enough
        return run

    def differs(self) -> str:
        """Say where answers are not the same as those of the model as it is written; empty where they are."""
        return differs(self._expected, self.answers)


def failed(answers: Sequence[Response]) -> str:
    """Say which request fails; empty where none does."""
    error = next((each.error for each in answers if each.error is not None), None)
    return "" if error is None else f"a request fails: {first_line(error.message())}"


def differs(expected: Sequence[Response], found: Sequence[Response]) -> str:
    """Say where answers are not the same, bit for bit; empty where they are."""
    for number, (one, other) in enumerate(zip(expected, found, strict=True), start=1):
        where = f"request {number}: " if len(expected) > 1 else ""
        if (one.error is None) != (other.error is None):
            error = one.error or other.error
            assert error is not None
            way = "as it is written" if one.error else "with its calls sent ahead"
            return f"{where}{way}: {first_line(error.message())}"
        tensors = [{t.name(): t for t in each.output_tensors()} for each in (one, other)]
        if tensors[0].keys() != tensors[1].keys():
            return f"{where}outputs {sorted(tensors[0])} and {sorted(tensors[1])}"
        for name, tensor in tensors[0].items():
            if not _same(tensor._array, tensors[1][name]._array):
                return (
                    f"{where}output {name!r} is not the same: models share something that no tensor shows, "
                    "or draw random numbers"
                )
    return ""


def _same(one: Any, other: Any) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if isinstance(one, np.ndarray) and one.dtype != object:
        return bool(one.tobytes() == other.tobytes())
    return bool((one == other).all())
