"""What a person may give as inputs, and the one clear line for what they may not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.pb_utils import MemoryType, PreferredMemory, Tensor
from bls_notebook.pb_utils.tensor import datatype_of
from tests.repository.models import ECHOES, HEAD

TYPES = {f"{name}{8 * size}": f"{code}{size}" for name, code in (("UINT", "u"), ("INT", "i")) for size in (1, 2, 4, 8)}
TYPES |= {"BOOL": "?", "FP16": "f2", "FP32": "f4", "FP64": "f8", "STRING": "O"}


@pytest.fixture(scope="module")
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        for name in TYPES:
            for rank in (1, 2):
                dims = ", ".join(["-1"] * rank)
                repository.define(
                    f"{name}{rank}",
                    ECHOES,
                    f'input [{{ name: "IN" data_type: TYPE_{name} dims: [{dims}] }}] '
                    f'output [{{ name: "OUT" data_type: TYPE_{name} dims: [{dims}] }}]',
                )
        yield repository


def sent(repo: bls.ModelRepository, model: str, value: Any) -> np.ndarray[Any, Any]:
    response = repo.infer(model, {"IN": value})
    assert response.error is None, response.error.message()
    return response["OUT"].as_numpy()


@pytest.mark.parametrize("name", [n for n in TYPES if n != "STRING"])
def test_lists_take_the_inputs_data_type(repo: bls.ModelRepository, name: str) -> None:
    for model, value in ((f"{name}1", [0, 1]), (f"{name}2", [[0, 1], [1, 0]]), (f"{name}1", (1, 0)), (f"{name}1", [])):
        array = sent(repo, model, value)
        assert (array.dtype, array.tolist()) == (np.dtype(TYPES[name]), np.array(value, TYPES[name]).tolist())
    for fits in ([True, False], [np.True_], range(2 if name == "BOOL" else 3), [np.int8(1), np.int64(0)]):
        assert sent(repo, f"{name}1", fits).tolist() == [int(v) for v in fits]


def test_text(repo: bls.ModelRepository) -> None:
    texts: list[tuple[Any, list[bytes]]] = [
        (["a", "b\u00e9"], [b"a", "b\u00e9".encode()]), ([b"raw", "text"], [b"raw", b"text"]),
        ([b"a\0", b"\xff"], [b"a\0", b"\xff"]), (["", b""], [b"", b""]), (np.array(["x", "yz"]), [b"x", b"yz"]),
        (np.array([b"x", b"yz"]), [b"x", b"yz"]), (np.array(["x", 3], np.object_), [b"x", b"3"]),
        ([1, 2.5], [b"1", b"2.5"]), (("a",), [b"a"]),
    ]  # fmt: skip
    for value, expected in texts:
        assert sent(repo, "STRING1", value).tolist() == expected
        assert sent(repo, "STRING2", [value, value]).tolist() == [expected, expected]


@pytest.mark.parametrize("name", TYPES)
def test_arrays_are_sent_as_they_are(repo: bls.ModelRepository, name: str) -> None:
    array = np.array([b"1", b"0"], object) if name == "STRING" else np.array([1, 0], TYPES[name])
    got = sent(repo, f"{name}1", array)
    assert (got.dtype, got.tolist()) == (array.dtype, array.tolist())
    turned = np.stack([array, array]).T  # not contiguous
    assert sent(repo, f"{name}2", turned).tolist() == turned.tolist()


def test_tensors(repo: bls.ModelRepository) -> None:
    array = np.array([1.5], np.float32)
    assert sent(repo, "FP321", Tensor("IN", array)).tolist() == [1.5]
    other = Tensor("OTHER", array)
    assert (sent(repo, "FP321", other).tolist(), other.name()) == ([1.5], "OTHER")


def test_objects_with_dlpack(repo: bls.ModelRepository) -> None:
    class Framework:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, *, stream: Any = None) -> object:
            return self.array.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert sent(repo, "FP321", Framework(np.array([2.5], np.float32))).tolist() == [2.5]
    with pytest.raises(bls.BLSError, match=r"model 'FP321', input 'IN': got .*Framework.*not contiguous"):
        repo.infer("FP321", {"IN": Framework(np.arange(6, dtype=np.float32)[::2])})


TEXTS = st.lists(st.text(st.characters(exclude_categories=("Cs",))) | st.binary())


@given(st.lists(st.integers(-(2**31), 2**31 - 1)), TEXTS)
def test_numbers_and_text_arrive_exactly(
    repo: bls.ModelRepository, numbers: list[int], texts: list[str | bytes]
) -> None:
    assert (sent(repo, "INT321", numbers).tolist(), sent(repo, "INT641", numbers).tolist()) == (numbers, numbers)
    assert sent(repo, "STRING1", texts).tolist() == [v if isinstance(v, bytes) else v.encode() for v in texts]


class Rude:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("model", "value"),
    [
        *[("FP321", v) for v in ([[1], [1, 2]], "word", ["word"], {"a": 1}, {1, 2}, object(), [object()], [1j])],
        *[("FP321", v) for v in (None, [None], [10**400], print, (i for i in range(2)), np.zeros(2, complex))],
        *[("FP321", np.zeros(2, kind)) for kind in (">f4", "M8[s]")],
        *[("INT321", v) for v in ([1.5], [2**31], ["1"], [None])],
        *[("UINT81", [256]), ("UINT81", [-1]), ("BOOL1", ["False"])],
        *[("STRING1", v) for v in ([None], ["\ud800"], np.array(["\ud800"], object), [["a"], "b"])],
    ],
    ids=lambda v: ascii(v).split(" at 0x")[0][:30],
)
def test_a_value_that_is_none_is_one_clear_line(repo: bls.ModelRepository, model: str, value: Any) -> None:
    for rude in (np.array([Rude()], object), [Rude()]):
        with pytest.raises(bls.BLSError):
            repo.infer("STRING1", {"IN": rude})
    with pytest.raises(bls.BLSError) as info:
        repo.infer(model, {"IN": value})
    text = str(info.value)
    assert text.startswith(f"model {model!r}, input 'IN': got ")
    assert ("expected " in text, len(text.splitlines()), len(text) < 500) == (True, 1, True)


@pytest.mark.parametrize("inputs", [None, [], [("IN", [1])], "IN", np.zeros(1), 5, {"IN"}])
def test_inputs_are_a_dict_and_names_are_text(repo: bls.ModelRepository, inputs: Any) -> None:
    with pytest.raises(bls.BLSError, match=r"^model 'FP321': inputs: got \w+, expected a dict of names to arrays"):
        repo.infer("FP321", inputs)
    for name in (None, 5, "", ("IN",)):
        with pytest.raises(bls.BLSError, match=r"^[^\n]+$"):
            repo.infer("FP321", {name: [1.0]})
    for model in (None, 5, [], b"FP321", {}):
        for ask in (lambda name: repo.infer(name, {"IN": [1.0]}), repo.ready):
            with pytest.raises(bls.BLSError):
                ask(model)


@pytest.mark.parametrize(
    "options",
    [
        *[{"outputs": v} for v in ("OUT", 5, [5], [None])],
        *[{"version": v} for v in ("1", 1.0, None)],
        *[{"timeout": v} for v in (-1, 1.5, "1")],
        *[{"request_id": 5}, {"correlation_id": -1}, {"correlation_id": 1.5}, {"flags": -1}, {"flags": "x"}],
        *[{"parameters": v} for v in ([1], "x", {1: "a"}, {"timeout": 5}, {"sequence_id": 5})],
        *[{"parameters": {"a": v}} for v in (None, [1], b"x", np.int64(1), "\ud800", 1 << 2000)],
        {"parameters": {"triton_enable_empty_final_response": True}},
        *[{"preferred_memory": v} for v in ("tpu", "gpu:x", "gpu:-1", "cpu:", "gpu:\u00b2", 5)],
        {"preferred_memory": MemoryType.TRITONSERVER_MEMORY_CPU},
    ],
    ids=str,
)
async def test_other_arguments_of_a_wrong_kind_are_one_clear_line(repo: bls.ModelRepository, options: Any) -> None:
    value = {"IN": [1.0]}
    with pytest.raises(bls.BLSError) as info:
        repo.infer("FP321", value, **options)
    assert len(str(info.value).splitlines()) == 1
    with pytest.raises(bls.BLSError):
        list(repo.stream("FP321", value, **options))
    with pytest.raises(bls.BLSError):
        await repo.infer_async("FP321", value, **options)
    with pytest.raises(bls.BLSError):
        [r async for r in repo.stream_async("FP321", value, **options)]


@pytest.mark.parametrize("memory", ["cpu", "cpu:0", None, PreferredMemory(MemoryType.TRITONSERVER_MEMORY_CPU)])
def test_preferred_memory_of_the_cpu(repo: bls.ModelRepository, memory: Any) -> None:
    response = repo.infer("FP321", {"IN": [1.0]}, preferred_memory=memory)
    assert response["OUT"].as_numpy().tolist() == [1.0]


BRAIN = f"""{HEAD}
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", r.inputs()[0])]) for r in requests
        ]
"""
BRAIN_CONFIG = """
input {{ name: "IN" data_type: TYPE_BF16 dims: [ {dims} ] }}
output {{ name: "OUT" data_type: TYPE_BF16 dims: [ {dims} ] }}
"""


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ([1.0, -2.5], [1.0, -2.5]),
        ([1, 257], [1.0, 256.0]),  # a tie, to even
        ([1 + 3 / 256], [1 + 4 / 256]),  # the other way
        ([3.4e38, float("-inf")], [float("inf"), float("-inf")]),
        ([float("nan")], [float("nan")]),
        (7, [7.0]),
        (np.float32(0.5), [0.5]),
    ],
)
def test_numbers_for_bf16_are_rounded(repo: bls.ModelRepository, given: Any, got: list[float]) -> None:
    repo.define("m", BRAIN, BRAIN_CONFIG.format(dims="-1"))
    answer = repo.infer("m", {"IN": given})
    assert answer.error is None
    assert datatype_of(answer["OUT"]) == "BF16"
    outputs = answer.as_numpy()
    assert outputs["OUT"].dtype == np.float32
    np.testing.assert_array_equal(outputs["OUT"], got)


def test_arrays_of_bfloat16_are_bf16(repo: bls.ModelRepository) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    repo.define("m", BRAIN, BRAIN_CONFIG.format(dims="-1, 2"))
    values = np.arange(8).reshape(2, 4).astype(ml_dtypes.bfloat16)
    assert repo.infer("m", {"IN": values.T}).as_numpy()["OUT"].tolist() == values.T.astype(float).tolist()
    refused = repo.infer("m", {"IN": np.zeros((1, 2), np.float32)})  # an array is sent as it is
    assert refused.error is not None
    assert "'FP32', but model 'm' expects 'BF16'" in refused.error.message()
