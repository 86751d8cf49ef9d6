"""Arrays on a GPU: what CuPy allows works, what it refuses is refused, on a simulated one too."""

from __future__ import annotations

import operator
import pickle
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.devices.conftest import Kit

A = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
B = np.linspace(0.5, 6, 12, dtype=np.float32).reshape(3, 4)


def same(there: Any, here: Any) -> None:
    """Equal, also in dtype and shape."""
    if isinstance(here, (list, tuple)):
        assert len(there) == len(here)
        for one, other in zip(there, here, strict=True):
            same(one, other)
        return
    found = there.get()
    here = np.asarray(here)
    assert (found.dtype, found.shape) == (here.dtype, here.shape)
    np.testing.assert_allclose(found, here, rtol=1e-5)


@pytest.mark.parametrize("convert", [
    np.asarray, np.array, np.ascontiguousarray, lambda x: np.asarray(x, np.float64), lambda x: np.array([x, x]),
    lambda x: np.zeros(4, np.float32).__setitem__(slice(None), x), lambda x: x.__array__(),
])  # fmt: skip
def test_no_implicit_conversion_to_numpy(gpu: Kit, convert: Callable[[Any], Any]) -> None:
    x = gpu.array([1, 2, 3, 4])
    with pytest.raises(TypeError, match=r"Implicit conversion.*Please use `\.get\(\)`"):
        convert(x)


@pytest.mark.parametrize("other", [A[0], [A[0]]])
@pytest.mark.parametrize(
    "mix", [operator.add, lambda x, y: y + x, np.multiply, lambda x, y: np.multiply(y, x), lambda x, y: x.dot(y)]
)
def test_cupy_and_numpy_arrays_do_not_mix(gpu: Kit, other: Any, mix: Callable[[Any, Any], Any]) -> None:
    if isinstance(other, list) and gpu.simulated is False:
        pytest.skip("what CuPy makes of lists is its own affair")
    x = gpu.array(A[0])
    with pytest.raises((TypeError, ValueError)):
        mix(x, other)


OPERATORS: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.lt, operator.ge, operator.eq, operator.ne, operator.matmul,
]  # fmt: skip


@pytest.mark.parametrize("op", OPERATORS)
def test_operators(gpu: Kit, op: Callable[[Any, Any], Any]) -> None:
    a, b = (A[:, :3].copy(), B[:, :3].copy())
    x, y = gpu.array(a), gpu.array(b)
    same(op(x, y), op(a, b))
    if op is not operator.matmul:
        same(op(x, 2), op(a, 2))
        same(op(3.5, y), op(3.5, b))


@pytest.mark.parametrize("op", [operator.iadd, operator.imul, operator.itruediv])
def test_operators_in_place(gpu: Kit, op: Callable[[Any, Any], Any]) -> None:
    x, a = gpu.array(A), A.copy()
    pointer = x.data.ptr
    result = op(x, 2)
    same(result, op(a, 2))
    assert result is x
    assert x.data.ptr == pointer


@pytest.mark.parametrize("function", [
    np.negative, np.exp, np.sqrt, np.isnan, np.floor, np.tanh, np.sum, np.mean, np.max,
    np.argmin, np.cumsum,
    np.transpose, np.squeeze, np.sort, np.ravel, np.count_nonzero, np.all, np.linalg.norm, np.diff,
    np.var,
    lambda x: np.concatenate([x, x], axis=1), lambda x: np.stack([x, x]), lambda x: np.where(x > 0, x, 0),
    lambda x: np.clip(x, -1, 1), lambda x: np.reshape(x, (2, 6)), lambda x: np.split(x, 3),
    lambda x: np.expand_dims(x, 0), lambda x: np.broadcast_to(x[0], (5, 4)), lambda x: np.zeros_like(x),
    lambda x: np.array_equal(x, x), lambda x: np.add.reduce(x, axis=1), lambda x: np.tensordot(x, x),
    lambda x: np.flip(x, 0), lambda x: np.tile(x, (2, 1)), lambda x: np.einsum("ij->j", x),
])  # fmt: skip
def test_numpys_functions(gpu: Kit, function: Callable[[Any], Any]) -> None:
    host = np.abs(B)
    same(function(gpu.array(host)), function(host))


@pytest.mark.parametrize("what", [
    lambda x: x.sum(), lambda x: x.sum(axis=0), lambda x: x.mean(1, keepdims=True), lambda x: x.max(),
    lambda x: x.argmax(), lambda x: x.reshape(4, 3), lambda x: x.reshape(-1), lambda x: x.T,
    lambda x: x.astype(np.int32), lambda x: x.copy(), lambda x: x[1], lambda x: x[::-1, 1:3],
    lambda x: x[x > 0],
    lambda x: x[[0, 2]], lambda x: x[..., None], lambda x: x[1, 2], lambda x: x.ravel(),
    lambda x: x.flatten(),
    lambda x: x.swapaxes(0, 1), lambda x: x.clip(0, 2), lambda x: x.round(), lambda x: x.std(),
    lambda x: x.dot(x.T), lambda x: x.view(np.int32), lambda x: x.nonzero(), lambda x: x.repeat(2),
    lambda x: x.cumsum(1), lambda x: x.all(), lambda x: x.any(axis=1), lambda x: x.prod(),
    lambda x: x.transpose(1, 0),
    lambda x: -x, lambda x: abs(x), lambda x: x**2,
])  # fmt: skip
def test_methods_slices_and_reductions(gpu: Kit, what: Callable[[Any], Any]) -> None:
    same(what(gpu.array(A)), what(A))


def test_views_share_memory_and_results_do_not(gpu: Kit) -> None:
    x = gpu.array(A)
    view, row, result = x.reshape(-1), x[1], x + 0
    x[1, 0] = 99
    assert float(view[4]) == float(row[0]) == 99
    assert float(result[1, 0]) == A[1, 0]


def test_elements_are_set(gpu: Kit) -> None:
    x, a = gpu.array(A), A.copy()
    x[0], a[0] = 7, 7
    x[1:, 2], a[1:, 2] = gpu.array([5, 6]), [5, 6]
    x[x < 0], a[a < 0] = 0, 0
    x[2, 3], a[2, 3] = np.array(8, np.float32), 8
    same(x, a)
    x[:] = B  # CuPy's one way to set from a NumPy array: of the same shape and dtype
    same(x, B)
    with pytest.raises((TypeError, ValueError)):
        x[0] = B[0]
    x.set(A)
    same(x, A)
    x.fill(3)
    same(x, np.full_like(A, 3))


def test_a_scalar_stays_on_the_gpu_until_asked_for(gpu: Kit) -> None:
    total = gpu.array(A).sum()
    assert total.shape == ()
    assert not isinstance(total, (float, np.generic))
    assert (float(total), int(total), total.item()) == (A.sum(), int(A.sum()), A.sum())
    assert bool(total == A.sum())
    assert gpu.array(A).tolist() == A.tolist()
    with pytest.raises(TypeError):
        range(gpu.array([4], dtype=np.int64)[0])


def test_out_is_written(gpu: Kit) -> None:
    x, out = gpu.array(A), gpu.array(np.zeros_like(A))
    assert np.add(x, 1, out=out) is out
    same(out, A + 1)
    with pytest.raises((TypeError, ValueError)):
        np.add(x, 1, out=np.zeros_like(A))


def test_get_gives_a_copy(gpu: Kit) -> None:
    x = gpu.array(A)
    host = x.get()
    host[:] = 0
    same(x, A)
    out = np.empty_like(A)
    assert x.get(out=out) is out
    np.testing.assert_array_equal(out, A)
    assert gpu.cupy.asnumpy(x).tolist() == A.tolist()


def test_making_arrays(gpu: Kit) -> None:
    cupy = gpu.cupy
    same(cupy.zeros((2, 3), np.int32), np.zeros((2, 3), np.int32))
    same(cupy.ones(4), np.ones(4))
    same(cupy.full((2,), 7.0), np.full((2,), 7.0))
    same(cupy.arange(5), np.arange(5))
    same(cupy.linspace(0, 1, 5), np.linspace(0, 1, 5))
    same(cupy.eye(3), np.eye(3))
    same(cupy.array([[1, 2], [3, 4]], dtype=np.float32), np.array([[1, 2], [3, 4]], np.float32))
    same(cupy.zeros_like(cupy.asarray(A)), np.zeros_like(A))
    assert cupy.empty((2, 2), np.float16).shape == (2, 2)
    assert isinstance(cupy.zeros(1), cupy.ndarray)
    x = cupy.asarray(A)
    assert cupy.asarray(x) is x
    assert cupy.array(x) is not x
    same(cupy.concatenate([x, x]), np.concatenate([A, A]))
    assert cupy.get_array_module(x) is cupy
    assert cupy.get_array_module(A) is np
    assert cupy.random.rand(3, 2).shape == (3, 2)
    same(cupy.maximum(x, 0), np.maximum(A, 0))
    with pytest.raises((TypeError, ValueError)):
        cupy.asarray(np.array(["text"], object))


def test_work_needs_the_arrays_gpu_to_be_current(two: Kit) -> None:
    x = two.array(A, index=1)
    assert int(x.device) == 1
    if two.simulated:
        with pytest.raises(ValueError, match=r"array resides \(1\) is different from the current device \(0\)"):
            x + 1
    with two.cupy.cuda.Device(1):
        y = x + 1
    assert int(y.device) == 1
    same(y, A + 1)
    moved = two.cupy.asarray(y)  # to the current one
    assert int(moved.device) == 0
    same(moved, A + 1)
    assert int(y.copy().device) == 0
    same(y[1], A[1] + 1)  # a view needs no work


def test_simulated_is_written_wherever_it_is_shown(simulated: Kit) -> None:
    cupy = simulated.cupy
    x = cupy.ones(2)
    for shown in (x, x.device, x.data, cupy, x._memory, cupy.cuda.Stream.null, x.data.mem):
        assert "simulated" in repr(shown)
    assert (str(x), f"{x.sum():.1f}") == ("[1. 1.]", "2.0")


def test_cuda_only_and_unknown_attributes_of_cupy(simulated: Kit) -> None:
    x = simulated.array(A)
    with pytest.raises(AttributeError, match=r"cupy\.RawKernel does not exist on a simulated GPU.*CUDA"):
        simulated.cupy.RawKernel
    with pytest.raises(AttributeError, match=r"cupy\.linalg\.nonsense does not exist"):
        simulated.cupy.linalg.nonsense
    assert "zeros" in dir(simulated.cupy)
    with pytest.raises(AttributeError, match=r"cupy\.insert does not exist"):
        simulated.cupy.insert
    with pytest.raises(TypeError, match=r"no implementation found for 'numpy\.insert'"):
        np.insert(x, 0, 1)
    with pytest.raises(TypeError):
        np.spacing(x)
    assert "insert" not in dir(simulated.cupy)


def test_cupy_has_whatever_the_simulation_has(simulated: Kit) -> None:
    cupy = pytest.importorskip("cupy")  # needs no GPU for this
    for there, real in (
        (simulated.cupy, cupy),
        (simulated.cupy.linalg, cupy.linalg),
        (simulated.cupy.fft, cupy.fft),
        (simulated.cupy.random, cupy.random),
    ):
        names = [n for n in dir(there) if n[0] != "_" and not isinstance(_get(there, n), types.ModuleType)]
        assert [n for n in names if _get(there, n) is not None and not hasattr(real, n)] == []


def _get(module: Any, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        return None


def test_the_buffer_protocol_gives_nothing_away(simulated: Kit) -> None:
    x = simulated.array(A)
    with pytest.raises(TypeError):
        memoryview(x)
    assert not hasattr(x, "__array_interface__")
    assert not hasattr(x, "__cuda_array_interface__")


def test_iteration_length_and_pickling(gpu: Kit) -> None:
    x = gpu.array(A)
    same(pickle.loads(pickle.dumps(x)), A)
    assert len(x) == 3
    same(list(x), list(A))
    with pytest.raises(TypeError):
        len(x.sum())
    with pytest.raises(TypeError):
        iter(x.sum()).__next__()
