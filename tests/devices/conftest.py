"""A GPU for the tests of this folder: a simulated one, and CUDA's where there is one.

On a machine with a GPU, CuPy and pytest, but without IPython and pytest-asyncio, those on the GPU are run by
`python -m pytest -c /dev/null --rootdir . -m gpu tests/devices tests/simulation`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import registry
from bls_notebook.devices.registry import gpus
from bls_notebook.pb_utils import Tensor
from bls_notebook.simulation import gpu_memory

CAPACITY = 16 << 20


@dataclass
class Kit:
    """GPUs of one kind.

    Attributes
    ----------
    kind : str
        ``simulated`` or ``cuda``.
    cupy : module
        CuPy, or what stands in for it.
    """

    kind: str
    cupy: Any
    count: int

    @property
    def simulated(self) -> bool:
        return self.kind == "simulated"

    def array(self, values: Any, index: int = 0, dtype: Any = np.float32) -> Any:
        """An array on a GPU."""
        with self.cupy.cuda.Device(index):
            return self.cupy.asarray(np.asarray(values, dtype))

    def used(self, index: int = 0) -> int:
        """Bytes of arrays on a GPU; CuPy counts in steps of 512."""
        with self.cupy.cuda.Device(index):
            return int(self.cupy.get_default_memory_pool().used_bytes())

    def label(self, index: int = 0) -> str:
        return f"gpu:{index} (simulated)" if self.simulated else f"gpu:{index}"


def pointer(tensor: Tensor) -> int:
    """The address of a tensor's memory on a GPU."""
    array: Any = tensor._array
    return int(array.data.ptr)


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device_kind(request: pytest.FixtureRequest) -> str:
    """The same test on a simulated GPU and on CUDA's."""
    return str(request.param)


@pytest.fixture
def gpu(device_kind: str) -> Iterator[Kit]:
    if device_kind == "simulated":
        bls.simulate_gpus(2, CAPACITY, even_with_cuda=True)
    else:
        bls.simulate_gpus(0)
        assert registry.cuda() is not None
    there = gpus()
    assert there is not None
    there.set_current(0)
    yield Kit(device_kind, bls.cupy(), there.count)
    there.set_current(0)
    if device_kind == "simulated":
        nothing_left()
    bls.simulate_gpus(0)


def nothing_left() -> None:
    """No test leaves memory of a simulated GPU behind."""
    if any(one.used for one in gpu_memory.gpus()):  # a test's own circles
        gc.collect()
    assert [one.used for one in gpu_memory.gpus()] == [0] * len(gpu_memory.gpus())


@pytest.fixture
def simulated() -> Iterator[Kit]:
    """Two simulated GPUs, whatever the machine has."""
    bls.simulate_gpus(2, CAPACITY, even_with_cuda=True)
    yield Kit("simulated", bls.cupy(), 2)
    nothing_left()
    bls.simulate_gpus(0)


@pytest.fixture
def two(gpu: Kit) -> Kit:
    """GPUs of which there are two."""
    if gpu.count < 2:
        pytest.skip("needs two GPUs")
    return gpu


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        yield repository
