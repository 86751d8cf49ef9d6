"""Which devices there are, and what is said where a GPU is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import device, registry
from bls_notebook.devices.device import parse_size
from bls_notebook.engine.errors import BLSError
from tests.devices.conftest import Kit
from tests.devices.models import KEEP, define

SWITCHES = ("bls.simulate_gpus(1)", "BLS_NOTEBOOK_SIMULATED_GPUS=1")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without any GPU; what a test simulates is removed."""
    bls.simulate_gpus(0)
    monkeypatch.setattr(registry, "_cuda", None)
    monkeypatch.setattr(registry, "_asked_cuda", True)
    monkeypatch.setattr(registry, "cuda_gpu_count", lambda: 0)
    yield
    bls.simulate_gpus(0)


def test_names_of_devices() -> None:
    devices = [device.parse_device(text) for text in ("cpu", "cpu:0", "gpu", "gpu:0", "gpu:12")]
    assert devices == [("cpu", 0), ("cpu", 0), ("gpu", 0), ("gpu", 0), ("gpu", 12)]
    for text in ("", "gpu:", "gpu:x", "gpu:-1", "cuda:0", "cpu:1", "GPU:0", "gpu:²", "gpu 0"):
        with pytest.raises(ValueError, match="expected 'cpu', 'gpu' or 'gpu:<number>'"):
            device.parse_device(text)


@pytest.mark.parametrize(("text", "expected"), [
    (1, 1), ("1", 1), ("4 GiB", 4 << 30), ("512MiB", 512 << 20), ("1.5 kib", 1536), ("2GB", 2 * 10**9),
    (" 3 m ", 3 * 10**6), ("7 b", 7),
])  # fmt: skip
def test_sizes(text: int | str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", [0, -1, "", "GiB", "4 iB", "-4", "1e9", "4 PiB", True, None, 2.5])
def test_parse_size_refuses(text: Any) -> None:
    with pytest.raises(ValueError, match="expected bytes, or text such as"):
        parse_size(text)


def test_simulated_gpus_come_and_go(no_gpu: None) -> None:
    assert ([d.name for d in bls.list_devices()], bls.simulate_gpus(2, "1 MiB")) == (["cpu"], 2)
    assert [d.label for d in registry.devices()] == ["cpu", "gpu:0 (simulated)", "gpu:1 (simulated)"]
    records = bls.list_devices()
    assert [(d.name, d.simulated, d.total) for d in list(records)[1:]] == [
        ("gpu:0", True, 1 << 20),
        ("gpu:1", True, 1 << 20),
    ]
    assert records["gpu:1"].ours == 0
    x = bls.cupy().zeros(100, np.uint8)
    assert (bls.list_devices()["gpu:0"].ours, bls.simulate_gpus(0)) == (x.nbytes, 0)
    assert len(bls.list_devices()) == 1
    with pytest.raises(KeyError, match="no device 'gpu:0'; the devices are cpu"):
        bls.list_devices()["gpu:0"]


def test_bad_counts_and_capacity() -> None:
    bad: list[Any] = [-1, 65, "1", 1.0, True, None]
    for count in bad:
        with pytest.raises(BLSError, match="expected a number of GPUs from 0 to 64"):
            bls.simulate_gpus(count)
    with pytest.raises(BLSError, match="size of memory: got 'lots'"):
        bls.simulate_gpus(1, "lots")


def test_the_cpu_is_a_device() -> None:
    record = bls.list_devices()["cpu"]
    assert not record.simulated
    if sys.platform == "linux":
        assert 0 < record.ours < record.total
        assert record.others >= 0


def test_real_gpus_are_not_hidden_by_simulated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    class Real:
        simulated = False
        count = 1

    monkeypatch.setattr(registry, "_cuda", Real())
    monkeypatch.setattr(registry, "_asked_cuda", True)
    assert (bls.simulate_gpus(1), [d.label for d in registry.devices()]) == (0, ["cpu", "gpu:0"])
    assert bls.simulate_gpus(1, even_with_cuda=True) == 1
    assert ([d.label for d in registry.devices()], bls.simulate_gpus(0)) == (["cpu", "gpu:0 (simulated)"], 0)


def test_the_array_module_without_a_gpu(no_gpu: None) -> None:
    with pytest.raises(BLSError) as caught:
        bls.cupy()
    assert all(switch in str(caught.value) for switch in SWITCHES)
    assert "this machine has no CUDA GPU" in str(caught.value)


def test_preferred_memory_without_a_gpu(no_gpu: None, repo: bls.ModelRepository) -> None:
    define(repo, "keep", KEEP)
    response = repo.infer("keep", {"IN": [1]}, preferred_memory="gpu:0")
    assert response.error is not None
    message = response.error.message()
    assert message.startswith("BackendMemory::Create, all allocation types failed:")
    assert all(switch in message for switch in SWITCHES)
    assert repo.infer("keep", {"IN": [1]}, preferred_memory="cpu").error is None


@pytest.mark.parametrize("group", ["kind: KIND_GPU", "kind: KIND_GPU gpus: [ 0 ]"])
def test_kind_gpu_without_a_gpu(no_gpu: None, repo: bls.ModelRepository, group: str) -> None:
    with pytest.raises(BLSError) as caught:
        define(repo, "keep", KEEP, more=f"instance_group {{ {group} }}\n")
    assert "KIND_GPU" in str(caught.value) or "asks for GPU 0" in str(caught.value)
    assert all(switch in str(caught.value) for switch in SWITCHES)


def test_a_gpu_too_many(simulated: Kit, repo: bls.ModelRepository) -> None:
    define(repo, "keep", KEEP)
    response = repo.infer("keep", {"IN": [1]}, preferred_memory="gpu:2")
    assert "the devices here are cpu, gpu:0 (simulated), gpu:1 (simulated)" in response.error.message()
    assert "bls.simulate_gpus(3)" in response.error.message()


def test_a_driver_without_cupy(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "cuda_gpu_count", lambda: 1)
    monkeypatch.setattr(registry, "has_cupy", lambda: False)
    with pytest.raises(BLSError, match="there is a CUDA GPU, but CuPy is not installed"):
        bls.cupy()


def test_a_cupy_that_fails_is_told_once_and_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    bls.simulate_gpus(0)
    monkeypatch.setattr(registry, "_cuda", None)
    monkeypatch.setattr(registry, "_asked_cuda", False)
    monkeypatch.setattr(registry, "cuda_gpu_count", lambda: 1)
    monkeypatch.setattr(registry, "has_cupy", lambda: True)
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it raises
    with pytest.warns(RuntimeWarning, match="bls_notebook uses no GPU: CuPy finds none"):
        assert registry.gpu_count() == 0
    assert registry.gpu_count() == 0
    with pytest.raises(BLSError, match="CuPy does not work here"):
        bls.cupy()


def test_simulated_by_the_environment(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLS_NOTEBOOK_SIMULATED_GPUS", "2")
    monkeypatch.setenv("BLS_NOTEBOOK_SIMULATED_GPU_MEMORY", "1 MiB")
    monkeypatch.setattr(registry, "_asked_environment", False)
    assert [(d.name, d.total) for d in bls.list_devices()][1:] == [("gpu:0", 1 << 20), ("gpu:1", 1 << 20)]
    bls.simulate_gpus(0)


@pytest.mark.parametrize(("count", "memory"), [("many", ""), ("1", "lots"), ("-1", "")])
def test_nonsense_in_the_environment_is_told_and_ignored(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch, count: str, memory: str
) -> None:
    monkeypatch.setenv("BLS_NOTEBOOK_SIMULATED_GPUS", count)
    monkeypatch.setenv("BLS_NOTEBOOK_SIMULATED_GPU_MEMORY", memory)
    monkeypatch.setattr(registry, "_asked_environment", False)
    with pytest.warns(RuntimeWarning, match=f"BLS_NOTEBOOK_SIMULATED_GPUS='{count}'.*no GPU is simulated"):
        assert [d.name for d in bls.list_devices()] == ["cpu"]


def test_importing_asks_no_driver_and_nothing_heavy_is_imported_to_find_out() -> None:
    code = (
        "import sys, bls_notebook as bls\n"
        "from bls_notebook.devices import registry\n"
        "print(registry._asked_cuda, registry.cuda_gpu_count.cache_info().currsize)\n"
        "bls.list_devices(); bls.simulate_gpus(1, even_with_cuda=True); bls.cupy()\n"
        "print({'cupy', 'torch', 'IPython'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["False 0", "set()"], done.stderr
