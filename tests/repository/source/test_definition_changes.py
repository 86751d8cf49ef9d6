"""A model that is defined again: what its record says of what changed."""

from __future__ import annotations

import pytest

import bls_notebook as bls
from bls_notebook.repository.source.definition_changes import changes
from tests.repository.models import ECHO, saying


def test_what_came_and_what_went() -> None:
    (change,) = changes({"model.py": "a\nb\nc\nd\ne\nf\ng\n"}, {"model.py": "a\nB\nc\nd\ne\nf\ng\nh\n"})
    assert (change.file, change.added, change.removed) == ("model.py", 2, 1)
    assert change.lines == (
        (" ", "a"), ("-", "b"), ("+", "B"), (" ", "c"), ("…", ""), (" ", "g"), ("+", "h"),
    )  # fmt: skip


def test_nothing_to_compare_with_and_nothing_changed() -> None:
    assert (changes({}, {"model.py": "a"}), changes({"model.py": "a"}, {"model.py": "a"})) == ((), ())


def test_long_ones_stay_short_and_the_longest_are_not_compared() -> None:
    (change,) = changes({"a": ""}, {"a": "x\n" * 100})
    assert (change.added, len(change.lines), change.lines[-1]) == (100, 41, ("…", "60 more lines"))
    (change,) = changes({"a": "x\n" * 5000}, {"a": "y\n" * 5000})
    assert change.lines == (("…", "too long to compare"),)


def test_of_code_and_of_the_configuration(repo: bls.ModelRepository) -> None:
    source = saying("1")
    config = 'output [{ name: "OUT" data_type: TYPE_STRING dims: [-1] }]'
    assert (repo.define("a", source, config).changes, repo.define("a", source, config).changes) == ((), ())
    record = repo.define("a", source.replace("str(1)", "str(2)"), f"max_batch_size: 4 {config}")
    assert [change.file for change in record.changes] == ["model.py", "config.pbtxt"]
    assert ("+", "max_batch_size: 4") in record.changes[1].lines
    assert repo.record("a").changes == ()  # it is about the definition, not the model
    record = repo.set_config("a", config)
    assert record is not None
    assert [(c.file, c.added, c.removed) for c in record.changes] == [("config.pbtxt", 0, 1)]


def test_a_definition_that_failed_is_none(repo: bls.ModelRepository) -> None:
    repo.define("a", saying("1"), ECHO)
    with pytest.raises(bls.ModelLoadError):
        repo.define("a", "x = = 1", ECHO)
    assert repo.define("a", saying("1"), ECHO).changes == ()
