"""What Tab offers in a claim of %blscheck."""

from __future__ import annotations

from bls_notebook.course.check_magic import after
from bls_notebook.testing.claim_checks import FORMS


def test_a_claim_begins_with_one_of_its_forms() -> None:
    assert after([], []) == list(FORMS)
    assert after(["speedup", ">", "2", "and"], []) == list(FORMS)


def test_nothing_follows_a_word_that_begins_no_claim() -> None:
    assert after(["nonsense"], []) == []


def test_a_comparison_or_a_second_claim_follows() -> None:
    assert after(["speedup"], []) == ["==", "!=", "<", "<=", ">", ">="]
    assert after(["speedup", ">", "2"], []) == ["and"]
