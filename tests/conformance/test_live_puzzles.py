"""The reference solutions of the course's puzzles, with their callees, on a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.course.puzzle_text import PuzzleData, puzzle_names, read_puzzle
from bls_notebook.display import render
from bls_notebook.shipping.proof.prover import Prover, proving
from bls_notebook.shipping.servers.server_programs import ServerEnvironment

pytestmark = [pytest.mark.extra, pytest.mark.triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
ON_GPU = {"stay"}  # that server has no CuPy
PUZZLES = [read_puzzle(name) for name in puzzle_names() if name not in ON_GPU]


class Strict(ServerEnvironment):
    """A server that does not complete configurations, which takes one more process for each model."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        return [*super().command(arguments), "--disable-auto-complete-config"]


def define(repository: bls.ModelRepository, puzzle: PuzzleData) -> None:
    """Define the models of a puzzle, under names that no other puzzle has."""
    models = {callee.name: (callee.source, callee.config) for callee in puzzle.callees}
    models[puzzle.naive.name] = (puzzle.solution, puzzle.naive.config)
    pattern = re.compile(rf"(['\"])({'|'.join(models)})\1")
    for name, texts in models.items():
        source, config = (pattern.sub(rf"\g<1>{puzzle.name}_\2\1", text) for text in texts)
        config = re.sub(r"\bcount: \d+", "count: 1", config)  # each instance is a process
        repository.define(f"{puzzle.name}_{name}", source, config)


@pytest.fixture(scope="module")
def prover(environment: ServerEnvironment) -> Iterator[Prover]:
    with bls.ModelRepository() as repository:
        for puzzle in PUZZLES:
            define(repository, puzzle)
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
