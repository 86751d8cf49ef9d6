"""``%tritonrepo serve`` with a fake tritonserver on PATH."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shipping.fake_tritonserver import linux, on_path

SAMPLES = Path(__file__).parents[2] / "model_repository"


@linux
def test_the_magic(cells, tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path, monkeypatch)
    assert "no server runs" in cells("%tritonrepo serve --stop").stderr
    cells(f"%tritonrepo use {SAMPLES}")
    cells("%tritonrepo load add_sub")
    first = cells("%tritonrepo serve add_sub").value
    again = cells("%tritonrepo serve")
    second = again.value
    assert f"127.0.0.1:{second.http_port}" in again.text
    assert first.pid is None
    assert second.pid is not None
    assert "nowhere" in str(cells("%tritonrepo serve nowhere").error)
    assert second.pid is not None
    assert "STOPPED" in cells("%tritonrepo serve --stop").text
    assert second.pid is None
    assert not list(private.glob("bls-[st]*"))
