"""Tests of each model alone: its outputs for given inputs."""

import numpy as np
import pytest

LETTERS = list("abcdefghijklmnopqrstuvwxyzäåéèêçñöüß")


def texts(*lines):
    return np.array([line.encode() for line in lines], dtype=np.object_)


def test_letters_are_counted_whatever_their_case(triton_repository):
    answer = triton_repository.infer("letters", {"TEXT": texts("Abba 1999", "Äh, é!")})
    expected = [["abba".count(letter) for letter in LETTERS], [int(letter in "ähé") for letter in LETTERS]]
    triton_repository.assert_answer(answer, {"COUNTS": expected})


def test_no_letters_could_be_any_language(triton_repository):
    answer = triton_repository.infer("language", {"COUNTS": np.zeros((1, len(LETTERS)), np.float32)})
    triton_repository.assert_answer(answer, {"PROBABILITIES": [[0.2] * 5]}, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 64])
def test_probabilities_sum_to_one(triton_repository, rows):
    counts = np.random.default_rng(7).integers(0, 9, (rows, len(LETTERS))).astype(np.float32)
    answer = triton_repository.infer("language", {"COUNTS": counts})
    np.testing.assert_allclose(answer.as_numpy()["PROBABILITIES"].sum(axis=1), 1, rtol=1e-6)
    triton_repository.assert_no_warnings()
