"""Records go to JSON and back unchanged, and say where bad data is wrong."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.observe import records
from bls_notebook.observe.plain import Record
from bls_notebook.observe.records import ErrorRecord, FrameRecord, ModelRecord, ResponseRecord, TensorRecord

ALL = [kind for kind in vars(records).values() if isinstance(kind, type) and issubclass(kind, Record)]
ALL.remove(Record)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_json_round_trip(kind: type[Any], data: st.DataObject) -> None:
    record = data.draw(st.from_type(kind))
    again = kind.from_dict(json.loads(json.dumps(record.to_dict())))
    assert repr(again) == repr(record)  # repr, because NaN is not equal to itself


def test_booleans_and_integers_stay_apart() -> None:
    record = ResponseRecord("m", parameters=(("a", True), ("b", 1), ("c", "1")))
    again = ResponseRecord.from_dict(json.loads(json.dumps(record.to_dict())))
    assert [type(value) for _, value in again.parameters] == [bool, int, str]


def test_records_are_frozen_and_hashable() -> None:
    record = ModelRecord("m")
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.name = "n"  # type: ignore[misc]
    assert hash(record) == hash(ModelRecord("m"))


def test_an_integer_will_do_for_seconds() -> None:
    seconds = ResponseRecord.from_dict({"model": "m", "seconds": 2}).seconds
    assert seconds == 2.0
    assert type(seconds) is float


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (TensorRecord, {"name": "a"}, "TensorRecord: field 'datatype' is missing"),
        (TensorRecord, [], "TensorRecord: expected a mapping, got list"),
        (ModelRecord, {"name": "a", "colour": 1}, "ModelRecord: no field 'colour'"),
        (ModelRecord, {"name": 3}, "ModelRecord.name: expected str, got int"),
        (ModelRecord, {"name": "a", "version": True}, "ModelRecord.version: expected int, got bool"),
        (ErrorRecord, {"message": "m", "chain": "abc"}, "ErrorRecord.chain: expected a list, got str"),
        (
            FrameRecord,
            {"model": "m", "source": [[1, "a"], [2]]},
            r"FrameRecord.source\[1\]: expected 2 items, got 1",
        ),
        (
            ResponseRecord,
            {"model": "m", "error": {"message": "x", "frames": [{"model": "a", "line": "9"}]}},
            r"ResponseRecord.error.frames\[0\].line: expected int, got str",
        ),
        (
            ResponseRecord,
            {"model": "m", "parameters": [["k", 1.5]]},
            r"parameters\[0\]\[1\]: expected str or int or bool, got float",
        ),
    ],
)
def test_bad_data_is_named_by_its_path(kind: type[Any], data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind.from_dict(data)
