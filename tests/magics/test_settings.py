from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import bls_notebook as bls


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
