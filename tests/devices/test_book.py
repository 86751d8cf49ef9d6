"""A log that was shortened says the same as one that was read from beginning to end."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from bls_notebook.devices.allocation_log import IN, OUT, WIDTH, Recording
from bls_notebook.lifetimes.allocation_table import Book
from bls_notebook.pb_utils import Tensor


def tensor(array: Any) -> Tensor:
    return Tensor._of("T", array, "UINT8")


class Twice:
    """The same told to two recordings: one is read at the end, the other is shortened again and again."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.whole, self.short = (Recording(1 << 30, lambda: None) for _ in range(2))
        self.book = Book(1 << 30, self.short.base)
        self.arrays: list[Any] = []
        self.open: list[int] = []
        self.shortened = 0

    def crossed(self, before: Any, after: Any, what: int, at: int, number: int, *more: Any) -> None:
        for recording in (self.whole, self.short):
            recording.crossed([before], [after], what, at, recording.base + number, *more)

    def step(self, at: int) -> None:
        chance = self.random.random()
        if chance < 0.4 or not self.arrays:
            self.arrays.append(np.zeros(self.random.randrange(1, 50), np.uint8))
            if self.random.random() < 0.3:
                self.arrays[-1] = self.arrays[-1][1:]
        array = self.random.choice(self.arrays)
        given = tensor(array)
        got = given if self.random.random() < 0.3 else tensor(array.copy())
        if self.random.random() < 0.4:
            self.arrays.append(got._array)
        if chance < 0.6 or not self.open:
            self.open.append(at)
            self.crossed(given, got, IN, at, at, 0, (f"m{at % 3}", 1), None, 0)
        else:
            number = self.open.pop(self.random.randrange(len(self.open)))
            self.crossed(given, got, OUT, at, number, "m_0_0")
        del array, given, got
        while len(self.arrays) > 30:
            del self.arrays[self.random.randrange(len(self.arrays))]

    def shorten(self) -> None:
        log, deaths = self.short.log, self.short.deaths[:]
        most = self.random.randrange(len(log) // WIDTH + 1) * WIDTH
        if self.random.random() < 0.3:
            self.book.read(log[:], deaths)
            log.clear()
            del self.short.deaths[: len(deaths)]
            return
        skimmed = self.book.skim(log, deaths, most)
        assert skimmed is not None
        self.shortened += len(skimmed[0]) < most
        log[:most], self.short.deaths[: len(deaths)] = skimmed


@pytest.mark.parametrize("seed", range(20))
def test_shortening_changes_nothing_about_what_is_alive(seed: int) -> None:
    twice = Twice(seed)
    for at in range(1, 600):
        twice.step(at)
        if twice.random.random() < 0.05:
            twice.shorten()
    assert twice.shortened
    expected = Book(1 << 30, twice.whole.base)
    expected.read(twice.whole.log, twice.whole.deaths)
    twice.book.read(twice.short.log, twice.short.deaths)
    assert twice.book.in_use == expected.in_use
    alive = [[block for block in book.blocks() if block.died < 0] for book in (twice.book, expected)]
    for short, whole in zip(*alive, strict=True):
        assert (short.bytes, short.born) == (whole.bytes, whole.born)
        assert [stop[0] for stop in short.stays] == [stop[0] for stop in whole.stays]
        assert [stop[5] and stop[5].model for stop in short.stays] == [
            stop[5] and stop[5].model for stop in whole.stays
        ]
    assert len(list(twice.book.blocks())) + twice.book.dropped == len(list(expected.blocks()))
