from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bls_notebook.records.responses import preview, tensor_record


class Untouchable:
    """Stands for an array on a device: whoever reads an element fails."""

    shape = (2, 3)
    nbytes = 24

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"read {name}")

    def __getitem__(self, key: object) -> Any:
        raise AssertionError("read an element")

    def __array__(self, *_: Any) -> Any:
        raise AssertionError("copied to the host")


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (np.array([1, 2, 3]), "[1, 2, 3]"),
        (np.arange(100), "[0, 1, 2, 3, …, 99]"),
        (np.arange(13).reshape(1, 13), "[[0, 1, 2, 3, …, 12]]"),
        (np.arange(16).reshape(4, 4), "[[0, 1, 2, 3], …]"),
        (np.arange(30).reshape(5, 6), "[[0, 1, 2, 3, 4, 5], …]"),
        (np.arange(4).reshape(2, 2), "[[0, 1], [2, 3]]"),
        (np.array(7, "u1"), "7"),
        (np.zeros((0, 3)), "empty"),
        (np.zeros((2, 0, 9)), "empty"),
        (np.array([True, False]), "[True, False]"),
        (np.array([np.nan, np.inf, -np.inf, -0.0], "f4"), "[nan, inf, -inf, -0.0]"),
        (np.array([0.1, 0.5, 1 / 3], "f4"), "[0.1, 0.5, 0.3333]"),
        (np.array([0.99999, 1.0]), "[1.000, 1.0]"),
        (np.array([1234.5678, 12345678.9, 1e-12, 1e300]), "[1234.6, 1.235e+07, 1e-12, 1e+300]"),
        (np.array([0.25], "f2"), "[0.25]"),
        (np.zeros((1,) * 32), "[" * 32 + "0.0" + "]" * 32),
        (np.ma.masked_array([1, 2], [True, False]), "[1, 2]"),  # a subclass indexes in ways of its own
        (np.arange(20)[::-2], "[19, 17, 15, 13, 11, 9, 7, 5, 3, 1]"),
    ],
)
def test_numbers(array: Any, shown: str) -> None:
    assert preview(array, "FP64") == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"a cat", '"a cat"'),
        ("text", '"text"'),
        (b"", '""'),
        (b'say "hi" \\', r'"say \"hi\" \\"'),
        ("naïve".encode(), '"naïve"'),
        (b"\xff\x00", r"b'\xff\x00'"),
        ("\u202e\n".encode(), r'"\u202e\n"'),
        (b"x" * 41, f'"{"x" * 40}…"'),
        (("é" * 500).encode(), f'"{"é" * 40}…"'),  # cut inside a character
        (b"\xff" * 100, repr(b"\xff" * 20) + "…"),
        (None, "None"),
    ],
)
def test_bytes(value: Any, shown: str) -> None:
    array = np.empty(1, object)
    array[0] = value
    assert preview(array, "BYTES") == f"[{shown}]"


def test_fixed_width_strings() -> None:
    assert preview(np.array([b"ab", b"c"]), "BYTES") == '["ab", "c"]'
    assert preview(np.array(["ab", "c"]), "BYTES") == '["ab", "c"]'


def test_an_objects_own_repr_is_never_called() -> None:
    class Loud:
        def __repr__(self) -> str:
            raise AssertionError("called")

        __str__ = __repr__

    array = np.array([Loud()], object)
    record = tensor_record("x", "BYTES", array)
    assert record.preview == "[<Loud>]"
    assert record.bytes == -1


def test_bf16() -> None:
    assert preview(None, "BF16") == "… (NumPy has no BF16)"
    assert preview(np.zeros(2, "u2"), "BF16") == "… (NumPy has no BF16)"
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert preview(np.array([1.5, 1 / 3], ml_dtypes.bfloat16), "BF16") == "[1.5, 0.3340]"


def test_values_that_are_no_numpy_array() -> None:
    assert preview(None, "FP32") == "… (no data)"
    assert preview([1, 2], "FP32") == "… (list is not a NumPy array)"
    assert preview(np.zeros(2, "M8[s]"), "INT64") == "… (NumPy datetime64[s])"


def test_numpy_is_not_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy")
    assert preview(object(), "FP32") == "… (object is not a NumPy array)"
    assert "numpy" not in sys.modules


@pytest.mark.parametrize("device", ["gpu:0", "gpu:1 (simulated)"])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_nothing_is_read_from_a_device(device: str, datatype: str) -> None:
    record = tensor_record("x", datatype, Untouchable(), device)
    assert record.preview == f"on {device}, not copied"
    assert record.shape == (2, 3)
    assert record.bytes == (24 if datatype == "FP32" else -1)


def test_sizes() -> None:
    def size(*arguments: Any, **named: Any) -> int:
        return tensor_record("x", *arguments, **named).bytes

    assert size("FP32", np.zeros((2, 3), "f4")) == 24
    assert size("FP16", None, shape=(5,)) == 10
    assert size("BF16", None, shape=(2, 4)) == 16
    assert size("ODD", None, shape=(2, 4)) == -1
    assert size("BYTES", np.array([b"abc", "é", b""], object)) == 3 * 4 + 3 + 2
    assert size("BYTES", np.zeros((0,), object)) == 0
    assert size("BYTES", np.full(1001, b"a", object)) == -1


def test_plain_values_only() -> None:
    record = tensor_record("x", "FP32", np.zeros((np.int64(2), 3), "f4"))
    assert [type(n) for n in record.shape] == [int, int]
    assert type(record.bytes) is int


def test_work_is_bounded_for_a_huge_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    import bls_notebook.records.responses as module

    huge = np.broadcast_to(np.float32(0.5), (1000, 1000, 1000, 1000))  # 3.6 TiB, if anybody copied it
    seen: list[Any] = []
    monkeypatch.setattr(module, "_element", lambda value: seen.append(value) or "0.5")
    assert preview(huge, "FP32") == "[[[[0.5, 0.5, 0.5, 0.5, …, 0.5], …], …], …]"
    assert len(seen) == 5


@given(hnp.arrays(st.sampled_from(["f4", "f8", "i8", "u1", "?", "f2"]), hnp.array_shapes(min_dims=0, min_side=0)))
def test_any_array_gives_a_short_line(array: Any) -> None:
    text = preview(array, "FP32")
    assert "\n" not in text
    assert text.count("[") == text.count("]")
    assert (text == "empty") == (array.size == 0)
    assert len(text) <= 12 * 24 + 12 * 12
