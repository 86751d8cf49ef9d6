"""Attempts at puzzles: another right solution, and wrong ones with words of their hints.

An attempt is the reference solution with replacements, or the naive model if it begins with ``NAIVE``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.course.exercises.exercise import Changes, ch


@dataclass(frozen=True)
class Attempts:
    """Words of the naive hint, another right solution, wrong ones with words of their hints, and more right ones."""

    naive: str
    right: Changes
    wrong: tuple[tuple[Changes, str], ...]
    rights: tuple[Changes, ...] = ()


NAIVE = ch("NAIVE", "")
