"""Ensembles with decoupled steps, as a real tritonserver 2.51 has them."""

from __future__ import annotations

from typing import Any

import pytest

import bls_notebook as bls
from tests.engine.ensembles import chain, ensemble, with_steps
from tests.engine.harness import ints, message


@pytest.fixture
def models(repo: bls.ModelRepository) -> bls.ModelRepository:
    return with_steps(repo)


def streamed(repo: bls.ModelRepository, name: str, x: int, output: str = "Y") -> list[Any]:
    return [
        "error" if r.error is not None else int(r[output].as_numpy()[0]) if output in r else None
        for r in repo.stream(name, ints(x))
    ]


def test_a_decoupled_step_makes_a_decoupled_ensemble(models: bls.ModelRepository) -> None:
    record = models.define("e", "", chain("countdown", "double"))
    assert record.decoupled
    assert models.config("e").model_transaction_policy.decoupled
    assert [v for v in streamed(models, "e", 3) if v is not None] == [6, 4, 2]
    assert [v for v in streamed(models, "e", 0) if v is not None] == []
    assert "using the decoupled" in message(models.infer("e", ints(1)))


def test_a_decoupled_step_does_not_go_with_a_response_cache(models: bls.ModelRepository) -> None:
    """Nor does it with the ensemble that has such an ensemble as a step."""
    cached = "response_cache { enable: true }"
    words = "Response Cache does not currently support model {} with 'decoupled' transaction policy"
    models.define("inner", "", chain("countdown", "double"))
    for name, steps in {"e": ("countdown", "double"), "f": ("plus", "inner")}.items():
        with pytest.raises(bls.ModelLoadError, match=words.format(name)):
            models.define(name, "", chain(*steps) + cached)
        assert not models.ready(name)
    models.define("e", "", chain("plus", "double") + cached)


def test_a_decoupled_step_at_the_end(models: bls.ModelRepository) -> None:
    models.define("e", "", chain("plus", "countdown"))
    assert [v for v in streamed(models, "e", 2) if v is not None] == [3, 2, 1]


def test_responses_of_a_decoupled_step_stay_apart(models: bls.ModelRepository) -> None:
    """What is made of one response never meets what is made of another."""
    models.define("e", "", ensemble(
        ("countdown", {"X": "X"}, {"Y": "t"}),
        ("double", {"X": "t"}, {"Y": "a"}), ("plus", {"X": "t"}, {"Y": "b"}),
        ("sum", {"A": "a", "B": "b"}, {"Y": "Y"}),
    ))  # fmt: skip
    assert sorted(v for v in streamed(models, "e", 40) if v is not None) == [3 * n + 1 for n in range(1, 41)]


def test_decoupled_after_decoupled(models: bls.ModelRepository) -> None:
    models.define("e", "", chain("countdown", "countdown"))
    assert sorted(v for v in streamed(models, "e", 3) if v is not None) == [1, 1, 1, 2, 2, 3]


def test_an_error_ends_the_stream(models: bls.ModelRepository) -> None:
    models.define("e", "", chain("countdown", "raises"))
    last = list(models.stream("e", ints(2)))[-1]
    assert last.final
    assert message(last).startswith("in ensemble 'e', Failed to process")


def test_an_ensemble_that_is_not_decoupled_can_be_streamed(models: bls.ModelRepository) -> None:
    models.define("e", "", chain("plus", "double"))
    assert streamed(models, "e", 1) == [4]
