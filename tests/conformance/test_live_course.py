"""The solutions of the course's puzzles and the mended models of its cases, with their callees, on a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.course.case_text import arrays, case_folders, read_case
from bls_notebook.course.puzzle_text import PuzzleData, puzzle_names, read_puzzle
from bls_notebook.display import render
from bls_notebook.shipping.proof.prover import Prover, proving
from bls_notebook.shipping.servers.server_programs import ServerEnvironment

pytestmark = [pytest.mark.extra, pytest.mark.triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
ON_GPU = {"stay"}  # that server has no CuPy
PUZZLES = [read_puzzle(name) for name in puzzle_names() if name not in ON_GPU]


CASES = {number: read_case(number, 0) for number in case_folders()}


class Strict(ServerEnvironment):
    """A server that does not complete configurations, which takes one more process for each model."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        return [*super().command(arguments), "--disable-auto-complete-config"]


def define(repository: bls.ModelRepository, prefix: str, models: Mapping[str, tuple[str, str]]) -> None:
    """Define models, given by source and configuration, under names that no other puzzle or case has."""
    pattern = re.compile(rf"(['\"])({'|'.join(models)})\1")
    for name, texts in models.items():
        source, config = (pattern.sub(rf"\g<1>{prefix}_\2\1", text) for text in texts)
        config = re.sub(r"\bcount: \d+", "count: 1", config)  # each instance is a process
        repository.define(f"{prefix}_{name}", source, config)


@pytest.fixture(scope="module")
def prover(environment: ServerEnvironment) -> Iterator[Prover]:
    with bls.ModelRepository() as repository:
        for puzzle in PUZZLES:
            models = {callee.name: (callee.source, callee.config) for callee in puzzle.callees}
            define(repository, puzzle.name, models | {puzzle.naive.name: (puzzle.solution, puzzle.naive.config)})
        for number, case in CASES.items():
            mended = (*case["models"], *case["fixed"])
            define(repository, f"case{number}", {model.name: (model.source, model.config) for model in mended})
        with proving(repository, [record.name for record in repository.index()], Strict(**vars(environment))) as prover:
            yield prover
            prover.server.stop(graceful=False)


@pytest.mark.parametrize("puzzle", PUZZLES, ids=[puzzle.name for puzzle in PUZZLES])
def test_a_solution_answers_as_on_a_server(prover: Prover, puzzle: PuzzleData) -> None:
    asked: list[Any] = [json.loads(line) for line in puzzle.measured]
    flat = [request for each in asked for request in (each if isinstance(each, list) else [each])]
    inputs = [{key: value for key, value in request.items() if key.isupper()} for request in flat]
    found = prover.prove(f"{puzzle.name}_{puzzle.naive.name}", *inputs, tolerance=1e-5)
    assert found.equal, render(found).text


@pytest.mark.parametrize("number", CASES)
def test_a_mended_case_answers_as_on_a_server(prover: Prover, number: int) -> None:
    case, draw = CASES[number], np.random.default_rng(number)
    inputs = [arrays(spec, draw) for specs in case["rounds"] for spec in specs]
    found = prover.prove(f"case{number}_{case['model']}", *inputs, tolerance=1e-5)
    assert found.equal, render(found).text
