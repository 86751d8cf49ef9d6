from __future__ import annotations

import io
import wave
from base64 import b64decode
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook import pb_utils
from bls_notebook.inspection.records import Compared, ResponseView, TensorView
from bls_notebook.pb_utils.tensor import TextOnGPU
from bls_notebook.records.base import Record
from bls_notebook.simulation.cupy_array import ndarray

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([
            pb_utils.Tensor("IMAGE", np.zeros((28, 28), np.uint8)),
            pb_utils.Tensor("WORDS", np.array([b'{"a": 1}', b"plain"], object)),
        ]) for _ in requests]
"""


def view(value: Any, **options: Any) -> TensorView:
    record = bls.inspect(value, **options).record
    assert isinstance(record, TensorView)
    return record


def compared(first: Any, second: Any) -> Any:
    record = bls.inspect(first, second).record
    assert isinstance(record, Compared)
    return record.tensors[0]


@pytest.mark.parametrize(
    ("at", "index"),
    [
        ("[0, :, 1]", (0, slice(None), 1)), ("..., -1", (..., -1)), (" [1:3] ", slice(1, 3)),
        ("[2,::2]", (2, slice(None, None, 2))), ("[1, 2, 3]", (1, 2, 3)),
    ],
)  # fmt: skip
def test_a_slice_is_numpys(at: str, index: Any) -> None:
    array = np.arange(60.0).reshape(3, 4, 5)
    found = view(array, at=at)
    assert found.tensor.shape == array[index].shape
    assert found.tensor.figures is not None
    assert (found.tensor.figures.least, found.tensor.figures.greatest) == (array[index].min(), array[index].max())
    assert found.whole == (3, 4, 5)
    by_brackets = bls.inspect(array)[index]
    assert isinstance(by_brackets.record, TensorView)
    assert by_brackets.record.tensor.shape == array[index].shape
    assert bls.inspect(array)[1, :, ::2].at == "[1, :, ::2]"


@pytest.mark.parametrize(
    "at", ["[a]", "0]+[1", "[__import__('os')]", "[9]", "[0,0,0]", "[::0]", "[lambda: 0]", "(" * 300]
)
def test_wrong_slices_are_one_line(at: str) -> None:
    with pytest.raises(bls.BLSError, match=r"^slice") as error:
        bls.inspect(np.zeros((3, 3)), at=at)
    assert "\n" not in str(error.value)


def test_bytes_are_what_they_are() -> None:
    array = np.array([b'{"a": [1]}', "grün".encode(), b"\xff\xfe\x00", b"{no json"], object)
    assert [(text.kind, text.text.split("\n")[0]) for text in view(array).texts] == [
        ("JSON", "{"), ("text", "grün"),
        ("hex", "0000  ff fe 00                                         ..."),
        ("text", "{no json"),
    ]  # fmt: skip
    deep = b"[" * 100_000
    assert view(np.array([deep], object)).texts[0].kind == "text"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Hostile(Unprintable, np.ndarray[Any, Any]):
    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("no")


def test_objects_with_ways_of_their_own_do_no_harm() -> None:
    assert view(np.arange(40.0).view(Hostile), at="[3:5]").tensor.shape == (2,)
    assert view(np.array([Unprintable()], object)).texts[0].kind == "Unprintable"
    assert view(np.zeros((0, 3))).tensor.figures is None
    assert view(np.array([1 + 2j])).notes == ("NumPy complex128: no statistics",)


@pytest.mark.parametrize("value", [object(), None, {}, Unprintable()])
def test_values_that_cannot_be_inspected(value: Any) -> None:
    with pytest.raises(bls.BLSError, match=r"^inspect: got \w+, expected a response"):
        bls.inspect(value)


def test_a_row_of_numbers_is_a_sound() -> None:
    tone = np.sin(np.arange(8000) / 5).astype(np.float32)
    found = view(tone, rate=8000)
    assert found.sound is not None
    with wave.open(io.BytesIO(b64decode(found.sound.data))) as sound:
        assert (sound.getframerate(), sound.getnframes(), sound.getsampwidth()) == (8000, 8000, 2)
        samples = np.frombuffer(sound.readframes(8000), "<i2")
    assert np.abs(samples - tone * 32767).max() <= 1
    assert view(np.arange(8000.0)).sound is None  # nothing says that it is one


def test_differences_are_the_greatest_and_where_and_nan_equals_nan() -> None:
    first = np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 6)
    second = first.copy()
    second[3, 2] = np.nextafter(np.nextafter(second[3, 2], np.float32(9)), np.float32(9))
    second[4, 5] += 0.5
    found = compared(first, second)
    assert (found.differing, found.where, found.elements) == (2, (4, 5), 30)
    assert found.absolute == pytest.approx(0.5)
    assert found.relative == pytest.approx(1 / 3)
    second[4, 5] = first[4, 5]
    assert compared(first, second).ulps == 2
    assert compared(np.float32([-1e-45]), np.float32([1e-45])).ulps == 2  # across zero
    first = np.array([np.nan, np.inf, 1.0, np.nan])
    assert compared(first, first.copy()).differing == 0
    found = compared(first, np.array([np.nan, np.inf, 1.0, 2.0]))
    assert (found.differing, found.where, found.absolute) == (1, (3,), np.inf)


def test_tensors_that_cannot_be_compared() -> None:
    assert compared(np.zeros(3), np.zeros(4)).reason == "shapes differ: [3] and [4]"
    assert compared(np.zeros(1), [b"a"]).reason == "text and numbers"
    found = compared(np.array([b"a", b"b"], object), np.array([b"a", b"c"], object))
    assert (found.differing, found.where, found.values) == (1, (1,), ('"b"', '"c"'))


def test_of_a_gpu_nothing_but_small_parts_is_copied(simulated_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    get = ndarray.get

    def counting(self: Any, *args: Any, **options: Any) -> Any:
        copied.append(self.nbytes)
        return get(self, *args, **options)

    monkeypatch.setattr(ndarray, "get", counting)
    with simulated_gpu.cuda.Device(1):
        array = simulated_gpu.arange(1 << 20, dtype=np.float32).reshape(16, 256, 256)
    found = view(pb_utils.Tensor.from_dlpack("T", array))
    assert found.tensor.figures is not None
    assert (found.tensor.device, found.tensor.figures.greatest) == ("gpu:1 (simulated)", (1 << 20) - 1)
    assert len(found.tensor.pictures) == 16
    assert simulated_gpu.cuda.Device().id != 1
    with simulated_gpu.cuda.Device(1):
        other = array + 1
    assert compared(array, other).differing == 1 << 20
    assert sum(copied) < array.nbytes / 4
    assert compared(array, np.asarray(array.get())).differing == 0


def test_a_response_and_one_of_its_outputs() -> None:
    with bls.ModelRepository() as repository:
        config = """max_batch_size: 0
            output { name: "IMAGE" data_type: TYPE_UINT8 dims: [28, 28] }
            output { name: "WORDS" data_type: TYPE_STRING dims: [2] }"""
        repository.define("zoo", MODEL, config)
        answer = repository.infer("zoo", {})
    found = bls.inspect(answer)
    assert isinstance(found.record, ResponseView)
    assert found.tensors == {"IMAGE": (28, 28), "WORDS": (2,)}
    one = found["IMAGE"][2:4].record
    assert isinstance(one, ResponseView)
    assert [each.tensor.shape for each in one.tensors] == [(2, 28)]
    with pytest.raises(KeyError, match="no output 'X'; outputs of this response: IMAGE, WORDS"):
        found["X"]
    assert bls.inspect([answer]).record == found.record
    with pytest.raises(bls.BLSError, match=r"got 2 responses, expected one: add \[0\]"):
        bls.inspect([answer, answer])
    assert [each.differing for each in bls.inspect(answer, answer).record.tensors] == [0, 0]  # type: ignore[attr-defined]


def test_text_on_a_gpu_is_read_and_said_to_be_there(simulated_gpu: Any) -> None:
    text: Any = TextOnGPU.of(np.array([b"words"], object), 0)
    found = view(pb_utils.Tensor._of("T", text, "BYTES"))
    assert (found.texts[0].text, found.tensor.device) == ("words", "gpu:0 (simulated)")


def test_inspection_records_are_plain_data() -> None:
    two = np.zeros((28, 28)), np.ones((28, 28))
    for values in ((np.zeros((3, 28, 28)),), (np.array([b"a"], object),), (np.sin(np.arange(4000.0)),), two):
        record: Record = bls.inspect(*values).record
        assert type(record).from_dict(record.to_dict()) == record
