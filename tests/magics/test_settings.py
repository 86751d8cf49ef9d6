from __future__ import annotations

from pathlib import Path

import bls_notebook as bls


def test_config_lists_them(cells) -> None:
    assert "BLSNotebook" in cells("%config").stdout
    listed = cells("%config BLSNotebook").stdout
    for name in ("repository", "strict", "show_warnings", "width"):
        assert f"BLSNotebook.{name}=" in listed


def test_repository(cells, folder: Path) -> None:
    cells(f"%config BLSNotebook.repository = [r'{folder}']")
    assert bls.current_repository().paths == (folder.resolve(),)
    cells(f"%config BLSNotebook.repository = r'{folder}'")
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
    cells("%%tritonmodel odd --output OUT FP32 [1]\n" + _ODD)
    response = bls.current_repository().infer("odd", {})
    cells.shell.user_ns["response"] = _with_warning(response)
    assert "beware" in cells("response").text
    cells("%config BLSNotebook.show_warnings = False")
    shown = cells("response")
    assert "OUT" in shown.text
    assert "beware" not in shown.text + shown.html


def _with_warning(response: bls.Response) -> object:
    from dataclasses import replace

    return replace(response.record, warnings=("beware",))


_ODD = """\
import numpy as np, triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.zeros(1, np.float32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


def test_a_profile_sets_them_before_loading(shell, folder: Path) -> None:
    shell.config.BLSNotebook.repository = [str(folder)]
    shell.extension_manager.load_extension("bls_notebook")
    assert bls.current_repository().paths == (folder.resolve(),)
    shell.extension_manager.unload_extension("bls_notebook")


def test_a_bad_value_changes_nothing(cells) -> None:
    cells.model()
    cells("%config BLSNotebook.repository = 'no/such/folder'")
    assert bls.current_repository().ready("times")
