"""Cells with requirements, and the list of environments."""

from __future__ import annotations

from pathlib import Path

import bls_notebook as bls
from bls_notebook.records.units import size
from tests.repository.test_environments import pytestmark, uv

__all__ = ["pytestmark", "uv"]


def answer() -> list[float]:
    return bls.current_repository().infer("times", {"IN": [1, 2]}).as_numpy()["OUT"].tolist()


def test_a_cell_with_requirements_runs_in_their_environment(cells, uv: Path) -> None:
    made = cells.model(options='--requirements "six==1.0, numpy"')
    assert made.success
    assert made.value.processes
    assert answer() == [2, 4]
    kept = cells("%tritonrepo environments --delete-unused")
    assert "nothing was deleted" in kept.text
    (environment,) = kept.value
    assert environment.users == ("times",)
    config = bls.current_repository().config("times")
    assert config.parameters["EXECUTION_ENV_PATH"].string_value == environment.path
    assert cells("%tritonrepo load times").value.processes  # stays until it is changed
    assert not cells("%tritonrepo load times --in-kernel").value.processes
    assert answer() == [2, 4]
    shown = cells("%tritonrepo environments --delete-unused")
    assert shown.value == []
    assert f"deleted 1 environment, {size(environment.bytes)}: {environment.name}" in shown.text
    assert "no environments" in shown.text


def test_a_failed_installation_leaves_the_old_version_in_service(cells, uv: Path) -> None:
    assert cells.model().success
    (uv / "last").write_text("sys.exit('ERROR: <b>no such package</b>')")
    failed = cells.model(options="--requirements six")
    assert not failed.success
    assert "ERROR: <b>no such package</b>" in failed.text
    assert "<b>no such" not in failed.bundles[0]["text/html"]
    assert answer() == [2, 4]


def test_requirements_contradict_the_kernel(cells, uv: Path) -> None:
    refused = cells.model(options="--requirements six --in-kernel")
    assert not refused.success
    assert "cannot be combined with --in-kernel" in str(refused.error)
    assert not (uv / "calls").exists()
