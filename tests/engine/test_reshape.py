"""Reshapes of the configuration: what a model sees, and what its caller gets."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.engine.core.signature_check import Reshape
from tests.engine import gates
from tests.engine.ensembles import ensemble
from tests.engine.sources import model

ECHO = model("""
import numpy as np
def execute(self, requests):
    out = []
    for r in requests:
        array = pb.get_input_tensor_by_name(r, "X").as_numpy()
        gates.log.put(array.shape)
        out.append(pb.InferenceResponse([pb.Tensor("Y", array)]))
    return out
""")
MAKES = model("""
import numpy as np
def execute(self, requests):
    out = []
    for r in requests:
        shape = pb.get_input_tensor_by_name(r, "X").as_numpy().ravel().tolist()
        array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
        out.append(pb.InferenceResponse([pb.Tensor("Y", array)]))
    return out
""")


def config(dims: Any, reshape: Any, batch: int = 0, more: str = "") -> str:
    both = [
        f'{kind} {{ name: "{name}" data_type: TYPE_INT32 dims: {dims} reshape {{ shape: {reshape} }} }}'
        for kind, name in (("input", "X"), ("output", "Y"))
    ]
    return f'backend: "python" max_batch_size: {batch} {" ".join(both)} {more}'


def makes(dims: Any, reshape: Any, batch: int = 0) -> str:
    return (
        f'backend: "python" max_batch_size: {batch} '
        'input { name: "X" data_type: TYPE_INT32 dims: -1 } '
        f'output {{ name: "Y" data_type: TYPE_INT32 dims: {dims} reshape {{ shape: {reshape} }} }}'
    )


def ask(repo: bls.ModelRepository, name: str, array: Any) -> Any:
    response = repo.infer(name, {"X": np.asarray(array, np.int32)})
    assert response.error is None, response.error
    return response


@pytest.mark.parametrize(("dims", "reshape", "batch", "given", "sees"), [
    ([2, 3], [6], 0, (2, 3), (6,)), ([2, 3], [6], 4, (3, 2, 3), (3, 6)), ([1], [], 4, (3, 1), (3,)),
    ([-1, 2, -1], [-1, 1, 2, -1], 4, (1, 5, 2, 7), (1, 5, 1, 2, 7)), ([-1, 2], [-1, 2, 1], 0, (0, 2), (0, 2, 1)),
])  # fmt: skip
@pytest.mark.parametrize("more", ["", "dynamic_batching { }", "response_cache { enable: true }"])
def test_the_model_sees_the_reshape_and_the_caller_the_dims(
    repo: bls.ModelRepository, dims: Any, reshape: Any, batch: int, given: Any, sees: Any, more: str
) -> None:
    if "dynamic" in more and not batch:
        batch, given, sees = 4, (2, *given), (2, *sees)
    repo.define("m", ECHO, config(dims, reshape, batch, more))
    array = np.arange(prod(given), dtype=np.int32).reshape(given)
    gates.logged()
    for _ in range(2):
        np.testing.assert_array_equal(ask(repo, "m", array)["Y"].as_numpy(), array)
    assert set(gates.logged()) == {sees}


@pytest.mark.parametrize("size", [6, 6000])
def test_the_callers_array_keeps_its_shape(repo: bls.ModelRepository, size: int) -> None:
    repo.define("m", ECHO, config([size // 3, 3], [size]))
    array = np.ones((size // 3, 3), np.int32)
    response = ask(repo, "m", array)
    assert array.shape == response["Y"].as_numpy().shape == (size // 3, 3)
    assert response["Y"].as_numpy().flags.writeable
    assert not response.warnings


def test_fortran_order(repo: bls.ModelRepository) -> None:
    repo.define("m", ECHO, config([2, 3], [6]))
    array = np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3))
    np.testing.assert_array_equal(ask(repo, "m", array)["Y"].as_numpy(), array)


def test_an_ensemble_reshapes_too(repo: bls.ModelRepository) -> None:
    repo.define("m", ECHO, config([2, 3], [6]))
    words = ensemble(("m", {"X": "X"}, {"Y": "Y"}))
    words = words.replace("dims: [ -1 ]", "dims: 6 reshape { shape: [ 2, 3 ] }")
    repo.define("e", "", words)
    gates.logged()
    assert ask(repo, "e", np.arange(6))["Y"].as_numpy().tolist() == list(range(6))
    assert gates.logged() == [(6,)]


def test_warm_up_is_reshaped(repo: bls.ModelRepository) -> None:
    sample = 'inputs { key: "X" value { data_type: TYPE_INT32 dims: [ 2, 3 ] zero_data: true } }'
    gates.logged()
    repo.define("m", ECHO, config([2, 3], [6], 4, f'model_warmup {{ name: "w" batch_size: 1 {sample} }}'))
    assert gates.logged() == [(1, 6)]


def test_an_output_of_as_many_elements_gets_the_dims(repo: bls.ModelRepository) -> None:
    repo.define("m", MAKES, makes([2, 3], [6]))
    response = ask(repo, "m", [6, 1])
    assert response["Y"].as_numpy().shape == (2, 3)
    assert "got shape [6, 1], the configuration says [6]" in response.warnings[0]


@pytest.mark.parametrize("shape", [[5], [7], [2, 2]])
def test_an_output_of_too_few_or_too_many_elements_stays_and_is_told(
    repo: bls.ModelRepository, shape: list[int]
) -> None:
    repo.define("m", MAKES, makes([2, 3], [6]))
    response = ask(repo, "m", shape)
    assert list(response["Y"].as_numpy().shape) == shape
    assert "fills it up with other memory" in response.warnings[0]


@given(
    sizes=st.lists(st.sampled_from([-1, 1, 2, 3]), min_size=1, max_size=4),
    ones=st.lists(st.integers(0, 4), max_size=3),
    batch=st.integers(0, 1),
    data=st.data(),
)
def test_reshaped_inputs_and_outputs(sizes: list[int], ones: list[int], batch: int, data: st.DataObject) -> None:
    after = list(sizes)
    for place in ones:
        after.insert(min(place, len(after)), 1)
    shape = tuple(data.draw(st.integers(0, 4)) if s == -1 else s for s in [-1] * batch + sizes)
    there, back = Reshape(batch, tuple(sizes), tuple(after)), Reshape(batch, tuple(after), tuple(sizes))
    wanted = there.of(shape)
    assert wanted is not None
    assert prod(wanted) == prod(shape)
    assert back.of(wanted) == shape
