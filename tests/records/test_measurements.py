from __future__ import annotations

import math
import random
from statistics import median

import pytest

from bls_notebook.profiling.sync_vs_async import ratio, relative_error


def test_the_middle_half_of_the_turns_counts() -> None:
    assert ratio([(3, 1), (4, 2), (2, 1), (100, 1)]) == pytest.approx(math.sqrt(6))
    assert ratio([(6, 2)]) == pytest.approx(3)
    assert ratio([]) == 0
    assert ratio([(0, 1), (1, 0)]) == 0


def test_swapped_turns_have_the_inverse_ratio() -> None:
    turns = [(3, 1), (4, 1), (9, 2), (5, 3), (1, 7)]
    assert ratio([(b, a) for a, b in turns]) == pytest.approx(1 / ratio(turns))


def test_a_machine_that_changes_its_speed_changes_no_ratio() -> None:
    chance = random.Random(1)
    speeds = [chance.uniform(0.5, 2) for _ in range(20)]
    turns = [(3.0 * speed, 2.0 * speed) for speed in speeds]
    assert ratio(turns) == pytest.approx(1.5)
    assert relative_error(turns) == pytest.approx(0, abs=1e-9)


def test_doubt_is_how_far_the_ratio_may_be_off() -> None:
    chance = random.Random(2)

    def measured() -> list[tuple[float, float]]:
        return [(2 * math.exp(chance.gauss(0, 0.2)), 1.0) for _ in range(12)]

    assert [relative_error([(2, 1)] * turns) for turns in (0, 2)] == [math.inf, math.inf]
    many = [measured() for _ in range(400)]
    told = median(relative_error(turns) for turns in many)
    assert told == pytest.approx(0.2 / math.sqrt(12), rel=0.15)
    off = [abs(math.log(ratio(turns) / 2)) for turns in many]
    assert sum(each < 2 * told for each in off) > 0.88 * len(off)
