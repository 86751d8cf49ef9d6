from __future__ import annotations

from collections.abc import Iterator

import pytest

import bls_notebook as bls
from bls_notebook.devices import registry
from bls_notebook.magics.completion.magic_lines import MagicLine, suggest
from bls_notebook.records.devices import DeviceTable


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without CUDA; what a cell simulates is taken away."""
    monkeypatch.setattr(registry, "_cuda", None)
    monkeypatch.setattr(registry, "_asked_cuda", True)
    bls.simulate_gpus(0)
    yield
    bls.simulate_gpus(0)


def test_the_setting(cells) -> None:
    cells("%config BLSNotebook.simulated_gpus = 2")
    assert [d.name for d in bls.list_devices()] == ["cpu", "gpu:0", "gpu:1"]
    assert bls.list_devices()["gpu:0"].total == 4 << 30
    cells("%config BLSNotebook.simulated_gpu_memory = '512 MiB'")
    assert bls.list_devices()["gpu:1"].total == 512 << 20
    cells("%config BLSNotebook.simulated_gpus = 0")
    assert len(bls.list_devices()) == 1
    cells("%config BLSNotebook.simulated_gpu_memory = '1 MiB'")
    assert len(bls.list_devices()) == 1
    cells("%config BLSNotebook.simulated_gpus = 1")
    assert bls.list_devices()["gpu:0"].total == 1 << 20


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%config BLSNotebook.simulated_gpus = 'one'", "simulated_gpus"),
        ("%config BLSNotebook.simulated_gpus = -1", "simulated_gpus"),
        ("%config BLSNotebook.simulated_gpus = 65", "simulated_gpus"),
        ("%config BLSNotebook.simulated_gpu_memory = 'lots'", "size of memory: got 'lots'"),
    ],
)
def test_bad_settings(cells, line: str, told: str, caplog: pytest.LogCaptureFixture) -> None:
    cells(line)
    assert told in caplog.text  # which IPython shows
    assert len(bls.list_devices()) == 1


def test_real_gpus_are_used_instead(cells, monkeypatch: pytest.MonkeyPatch) -> None:
    class Real:
        simulated = False
        count = 0

    monkeypatch.setattr(registry, "_cuda", Real())
    shown = cells("%config BLSNotebook.simulated_gpus = 1")
    assert "This machine has CUDA GPUs, so none is simulated." in shown.stdout


def test_the_table_and_the_completions(cells) -> None:
    shown = cells("%tritonrepo devices")
    assert isinstance(shown.value, DeviceTable)
    assert "cpu" in shown.text
    assert "%config BLSNotebook.simulated_gpus = 1" in shown.text
    cells("%config BLSNotebook.simulated_gpus = 3")
    shown = cells("%tritonrepo devices")
    assert "gpu:0 (simulated)" in shown.text
    assert set(shown.bundles[0]) == {"text/plain", "text/html"}
    line = MagicLine("%bls", ("times", "--device"), "")
    assert suggest(line, [], {}) == ("", ["cpu", "gpu:0", "gpu:1", "gpu:2"])


def test_device_of_a_request(cells) -> None:
    cells.model()
    refused = cells("%bls times IN=[1, 2] --device gpu:0")
    assert "BLSNotebook.simulated_gpus = 1" in refused.text
    cells("%config BLSNotebook.simulated_gpus = 1")
    shown = cells("%bls times IN=[1, 2] --device gpu:0")
    assert shown.value["OUT"]._device().label == "gpu:0 (simulated)"
    assert "gpu:0 (simulated)" in shown.text
    assert "not copied" in shown.text
    assert cells("%bls times IN=[1, 2] --device cpu").value["OUT"].is_cpu()
    nonsense = cells("%bls times IN=[1, 2] --device moon")
    assert "expected 'cpu', 'gpu' or 'gpu:<number>'" in nonsense.text + str(nonsense.error)
