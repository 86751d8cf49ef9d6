from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.completion.magic_lines import MagicLine, suggest
from bls_notebook.devices import registry
from bls_notebook.magics.cell_errors import FailedRequest
from bls_notebook.records.statistics import DeviceTable
from tests.devices.test_registry import no_gpu  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("no_gpu")


def test_config_lists_them(cells) -> None:
    assert "BLSNotebook" in cells("%config").stdout
    listed = cells("%config BLSNotebook").stdout
    for name in ("repository", "strict", "show_warnings", "width"):
        assert f"BLSNotebook.{name}=" in listed


def test_repository(cells, folder: Path) -> None:
    for value in (f"[r'{folder}']", f"r'{folder}'"):
        cells(f"%config BLSNotebook.repository = {value}")
        assert bls.current_repository().paths == (folder.resolve(),)


def test_strict(cells, folder: Path) -> None:
    assert not bls.current_repository().strict
    cells("%config BLSNotebook.strict = True")
    assert bls.current_repository().strict
    cells(f"%tritonrepo use {folder}")
    assert bls.current_repository().strict


def test_width(cells) -> None:
    cells.model()
    cells("%config BLSNotebook.width = 50")
    assert max(map(len, cells("%bls times IN=[-1]").text.splitlines()[:4])) <= 50


def test_warnings_may_be_hidden(cells) -> None:
    cells.model()
    response = bls.current_repository().infer("times", {"IN": [1]})
    cells.shell.user_ns["response"] = replace(response.record, warnings=("beware",))
    assert "beware" in cells("response").text
    cells("%config BLSNotebook.show_warnings = False")
    shown = cells("response")
    assert "OUT" in shown.text
    assert "beware" not in shown.text + shown.html


def test_a_profile_sets_them_before_loading(shell, folder: Path) -> None:
    shell.config.BLSNotebook.repository = [str(folder)]
    shell.extension_manager.load_extension("bls_notebook")
    assert bls.current_repository().paths == (folder.resolve(),)
    shell.extension_manager.unload_extension("bls_notebook")


def test_a_bad_value_changes_nothing(cells) -> None:
    cells.model()
    cells("%config BLSNotebook.repository = 'no/such/folder'")
    assert bls.current_repository().ready("times")


BODY = """%%bls
import numpy as np, triton_python_backend_utils as pb_utils
tensor = pb_utils.Tensor("IN", np.array([-1], np.float32))
request = pb_utils.InferenceRequest(model_name="times", requested_output_names=["OUT"], inputs=[tensor])
"""
SYNC = BODY + "response = request.exec()"
AWAITED = BODY + "response = await request.async_exec()"
MAGICS = {
    "%bls times IN=[-1]": 1,
    "answer = %bls times IN=[-1] -q": 1,
    "%bls times IN=[-1] -n 3": 3,
    "%bls times IN=[-1] -n 2 --async": 2,
    SYNC: 1,
    AWAITED: 1,
    SYNC.replace("%%bls", "%%blsprofile"): 1,
    SYNC.replace("%%bls", "%%blsmemory"): 1,
    "%blsprofile times IN=[-1] -n 1 --repeat 1": 1,
}


def test_a_cell_with_an_error_response_fails_only_with_it_and_shows_the_same(cells) -> None:
    cells.model()
    assert all(cells(cell).success for cell in MAGICS)
    cells("%config BLSNotebook.raise_errors = True")
    for cell, count in MAGICS.items():
        outcome = cells(cell)
        assert isinstance(outcome.error, FailedRequest), cell
        assert "negative" in outcome.text
        assert (f"{count} requests failed" in str(outcome.error)) == (count > 1)
        assert outcome.stdout.count("FailedRequest: ") == 1
    assert "answer" in cells.shell.user_ns


def test_raise_errors_leaves_successes_and_handled_errors(cells) -> None:
    cells.model()
    cells("%config BLSNotebook.raise_errors = True")
    assert cells("%bls times IN=[1]").success
    assert cells(SYNC.replace("[-1]", "[1]")).success
    caught = cells("try:\n    %bls times IN=[-1]\nexcept Exception as error:\n    print('caught', error)")
    assert caught.success
    assert "caught" in caught.stdout


def test_a_definition_that_fails_is_an_error_for_programs_too(cells) -> None:
    assert not cells("%%tritonmodel broken\nx = = 1").stdout
    cells("%config BLSNotebook.raise_errors = True")
    assert "ModelLoadError: " in cells("%%tritonmodel broken\nx = = 1").stdout
    with pytest.raises(AssertionError):
        assert cells("%tritonrepo load nosuch").success


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


def test_the_first_error_response_says_once_how_run_all_stops(cells) -> None:
    cells.model()
    texts = [cells(f"%bls times IN=[{value}]").text for value in (1, -1, -2, -1)]
    assert ["BLSNotebook.raise_errors = True" in text for text in texts] == [False, True, False, True]
