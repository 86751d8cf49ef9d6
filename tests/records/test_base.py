from __future__ import annotations

import importlib
import json
import pkgutil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook.records
from bls_notebook.records import messages, models, responses
from bls_notebook.records.base import Record
from bls_notebook.records.errors import ErrorRecord, FrameRecord
from bls_notebook.records.models import ModelRecord
from bls_notebook.records.responses import ResponseRecord, TensorRecord

FOUND = {kind for module in (messages, models, responses) for kind in vars(module).values() if isinstance(kind, type)}
ALL = sorted((kind for kind in FOUND - {Record} if issubclass(kind, Record)), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_json_gives_the_record_again_and_a_repr_is_a_line(kind: type[Any], data: st.DataObject) -> None:
    record = data.draw(st.from_type(kind))
    again = kind.from_dict(json.loads(json.dumps(record.to_dict())))
    assert repr(again.to_dict()) == repr(record.to_dict())  # repr, because NaN is not equal to itself
    said = repr(record)
    assert said.startswith(f"{kind.__name__}(")
    assert "\n" not in said
    assert len(said) < 250


def kinds(base: type[Record] = Record) -> list[type[Record]]:
    return [each for kind in base.__subclasses__() for each in (kind, *kinds(kind))]


def test_every_record_is_short_inside_something_else() -> None:
    for module in pkgutil.walk_packages(bls_notebook.records.__path__, "bls_notebook.records."):
        importlib.import_module(module.name)
    found = [kind for kind in kinds() if kind.__module__.startswith("bls_notebook.")]
    assert len(found) > 40
    own = {kind.__name__ for kind in found if kind.__repr__ is not Record.__repr__}
    assert own <= {"Judgement"}  # whose text is what an `assert` shows


def test_a_repr_tells_what_is_not_by_default() -> None:
    tensors = tuple(TensorRecord(f"T{i}", "FP32", (2, 3), "cpu", 24, "x" * 100) for i in range(3))
    assert repr(tensors[0]) == (
        f"TensorRecord(name='T0', datatype='FP32', shape=(2, 3), bytes=24, preview='{'x' * 39}…')"
    )
    error = ErrorRecord("no", chain=tuple("abcdef"))
    assert repr(ResponseRecord("m", 1, tensors=tensors, error=error, warnings=("w",))) == (
        "ResponseRecord(model='m', version=1, tensors=<3 TensorRecord>, error=<ErrorRecord>, warnings=('w',))"
    )
    assert repr(error) == "ErrorRecord(message='no', chain=<6 items>)"


def test_booleans_integers_and_floats_stay_apart() -> None:
    record = ResponseRecord("m", seconds=2, parameters=(("a", True), ("b", 1), ("c", "1")))
    again = ResponseRecord.from_dict(json.loads(json.dumps(record.to_dict())))
    assert [type(value) for _, value in again.parameters] == [bool, int, str]
    assert (again.seconds, type(again.seconds)) == (2.0, float)


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (TensorRecord, {"name": "a"}, "TensorRecord: field 'datatype' is missing"),
        (TensorRecord, [], "TensorRecord: expected a mapping, got list"),
        (ModelRecord, {"name": "a", "colour": 1}, "ModelRecord: no field 'colour'"),
        (ModelRecord, {"name": 3}, "ModelRecord.name: expected str, got int"),
        (ModelRecord, {"name": "a", "version": True}, "ModelRecord.version: expected int, got bool"),
        (ErrorRecord, {"message": "m", "chain": "abc"}, "ErrorRecord.chain: expected a list, got str"),
        (FrameRecord, {"model": "m", "source": [[1, "a"], [2]]}, r"FrameRecord.source\[1\]: expected 2 items, got 1"),
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
