"""Fields of a configuration change in its text; every other line stays."""

from __future__ import annotations

from typing import Any

import pytest

from bls_notebook.repository.config import parse_config, to_pbtxt
from bls_notebook.shipping.exports.config_text import changed_text

TEXT = """# of release 7: "max_batch_size: 9"
name: "m"   backend: "python" # both
max_batch_size: 8
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ] # free
parameters { key: "a{" value { string_value: 'it"s } #1' } }
# two groups
instance_group { count: 1 kind: KIND_CPU }
instance_group { count: 2 kind: KIND_CPU };
output { name: "Y" data_type: TYPE_FP32 dims: 1 }
"""


def changed(text: str, fields: dict[str, Any], removed: str = "") -> str:
    before = parse_config(text, model="m")
    after = parse_config(text, model="m")
    for name in (*fields, *([removed] if removed else [])):
        after.ClearField(name)
    after.MergeFrom(parse_config({**fields, "name": "m"}, model="m"))
    out = changed_text(text, before, after)
    assert parse_config(out, model="m") == after
    return out


@pytest.mark.parametrize(
    ("fields", "removed", "old", "new"),
    [
        ({"max_batch_size": 4}, "", "max_batch_size: 8\n", "max_batch_size: 4\n"),
        ({"backend": "other"}, "", 'backend: "python" # both', 'backend: "other" # both'),
        ({}, "parameters", TEXT.splitlines()[4] + "\n", "\n"),
        ({"dynamic_batching": {"preferred_batch_size": [4]}}, "", "dims: 1 }\n",
         "dims: 1 }\ndynamic_batching {\n  preferred_batch_size: 4\n}\n"),
    ],
)  # fmt: skip
def test_only_the_changed_field_changes(fields: dict[str, Any], removed: str, old: str, new: str) -> None:
    assert old in TEXT
    assert changed(TEXT, fields, removed) == TEXT.replace(old, new)


def test_repeated_fields_become_one_place() -> None:
    out = changed(TEXT, {"instance_group": [{"count": 5, "kind": "KIND_CPU"}]})
    assert out.count("instance_group") == 1
    assert "# two groups" in out
    assert out.startswith(TEXT.partition("instance_group")[0])


def test_a_text_that_cannot_be_changed_is_written_anew() -> None:
    before, after = parse_config("max_batch_size: 8", model="m"), parse_config("max_batch_size: 4", model="m")
    before.name = after.name = "m"
    assert changed_text("} max_batch_size: 8", before, after) == to_pbtxt(after)
