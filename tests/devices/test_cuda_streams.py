"""Nobody ever reads unfinished work, whatever stream it is being done on.

On a simulated GPU work is done at once; on CUDA's these models hand over arrays while a non-blocking stream
is still busy with them.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.tensors.handover import hand_over
from bls_notebook.pb_utils import Tensor
from tests.devices.conftest import Kit
from tests.devices.models import KEEP, define, model

ROUNDS = 12

SLOW = model(
    """
def initialize(self, args):
    self.stream = cupy.cuda.Stream(non_blocking=True)
    self.a = cupy.full((SIDE, SIDE), 1.0 / SIDE, dtype=cupy.float32)
    cupy.cuda.Device(0).synchronize()
def execute(self, requests):
    out = []
    for request in requests:
        with self.stream:
            x = cupy.ones((SIDE, SIDE), cupy.float32)
            for _ in range(12):
                x = self.a @ x
            y = x[0] * 3
            MAKE
        out.append(pb_utils.InferenceResponse([tensor]))
    return out
""",
    """import cupy
SIDE = NUMBER
""",
)
MAKE = {
    "the array": 'tensor = pb_utils.Tensor.from_dlpack("OUT", y)',
    "a capsule": 'tensor = pb_utils.Tensor.from_dlpack("OUT", y.toDlpack())',
    "written later": (
        'z = cupy.zeros_like(y); tensor = pb_utils.Tensor.from_dlpack("OUT", z)\n'
        "                for _ in range(4): x = self.a @ x\n"
        "                z[:] = x[0] * 3"
    ),
    "kept": 'self.kept = y; tensor = pb_utils.Tensor.from_dlpack("OUT", y)',
    "kept and written later": (
        'self.kept = cupy.zeros_like(y); tensor = pb_utils.Tensor.from_dlpack("OUT", self.kept)\n'
        "                for _ in range(4): x = self.a @ x\n"
        "                self.kept[:] = x[0] * 3"
    ),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("preferred", [None, "cpu", "gpu:0"])
@pytest.mark.parametrize("made", MAKE, ids=MAKE.keys())
@pytest.mark.parametrize("way", ["infer", "async"])
def test_an_output_is_finished_when_it_is_read(
    gpu: Kit, repo: bls.ModelRepository, made: str, preferred: str | None, way: str
) -> None:
    side = side_of(gpu)
    define(repo, "slow", SLOW.replace("MAKE", MAKE[made]).replace("NUMBER", str(side)))
    for _ in range(3):
        if way == "infer":
            response = repo.infer("slow", {"IN": [0]}, preferred_memory=preferred)
        else:
            response = asyncio.run(repo.infer_async("slow", {"IN": [0]}, preferred_memory=preferred))
        assert response.error is None, response.error.message()
        tensor = response["OUT"]
        if tensor.is_cpu():
            seen = tensor.as_numpy()
        else:
            with gpu.cupy.cuda.Stream(non_blocking=True):  # which waits for nobody
                seen = gpu.cupy.from_dlpack(tensor).get()
        np.testing.assert_allclose(seen, np.full(side, 3.0, np.float32), rtol=1e-3)


def side_of(gpu: Kit) -> int:
    """Of matrices that a GPU works on for a while; a simulated one is not busy anyway."""
    return 64 if gpu.simulated else 1500


def busy(gpu: Kit) -> tuple[Any, Any]:
    """An array that a stream of its own is still working on, and that stream."""
    cupy, side = gpu.cupy, side_of(gpu)
    stream = cupy.cuda.Stream(non_blocking=True)
    a = cupy.full((side, side), 1.0 / side, dtype=cupy.float32)
    cupy.cuda.Device(0).synchronize()
    with stream:
        x = cupy.ones((side, side), cupy.float32)
        for _ in range(ROUNDS):
            x = a @ x
        y = x[0] * 3
    return y, stream


@pytest.mark.parametrize("cpu_only", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_an_input_is_finished_when_it_is_read(gpu: Kit, cpu_only: bool, given: bool) -> None:
    side = side_of(gpu)
    array, stream = busy(gpu)
    tensors = [Tensor._of("T", array, "FP32")]
    del array
    (out,) = hand_over(tensors, given, cpu_only)
    seen = out.as_numpy() if cpu_only else gpu.cupy.from_dlpack(out).get()
    np.testing.assert_allclose(seen, np.full(side, 3.0, np.float32), rtol=1e-3)
    assert stream.done or cpu_only or not given


def test_from_dlpack_waits_for_the_stream_that_is_at_work(gpu: Kit) -> None:
    side = side_of(gpu)
    array, stream = busy(gpu)
    tensor = Tensor.from_dlpack("T", array)
    assert stream.done
    with gpu.cupy.cuda.Stream(non_blocking=True):
        seen = gpu.cupy.from_dlpack(tensor).get()
    np.testing.assert_allclose(seen, np.full(side, 3.0, np.float32), rtol=1e-3)


def test_memory_is_not_written_while_earlier_work_still_reads_it(gpu: Kit, repo: bls.ModelRepository) -> None:
    """CuPy's pool hands freed memory out again while a kernel may still read it: a transfer must wait."""
    cupy, side = gpu.cupy, side_of(gpu)
    define(repo, "keep", KEEP)
    big = np.full(side * side, 7, np.float32)
    for _ in range(3):
        a = cupy.full((side, side), 1.0 / side, dtype=cupy.float32)
        x = cupy.ones((side, side), cupy.float32)
        for _ in range(ROUNDS):
            x = a @ x
        result = a @ x
        del a, x
        moved = repo.infer("keep", {"IN": big}, preferred_memory="gpu:0")
        np.testing.assert_allclose(result.get(), np.ones((side, side), np.float32), rtol=1e-3)
        assert (cupy.from_dlpack(moved["OUT"]) == 7).all()
