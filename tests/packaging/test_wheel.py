"""The contents of the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the wheel."""
    folder = tmp_path_factory.mktemp("wheel").resolve()
    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(folder / "dist"), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def names(site: Path) -> list[str]:
    return [path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()]


def test_the_wheel_holds_one_package_and_types_of_another(names: list[str]) -> None:
    """A top-level triton_python_backend_utils would shadow a real Triton's."""
    stubs, plugin = "triton_python_backend_utils-stubs", "pytest_bls_notebook.py"
    folders = {name.partition("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"bls_notebook", stubs, plugin}
    assert [name for name in names if name.startswith(stubs)] == [f"{stubs}/__init__.pyi"]


def test_the_wheel_is_typed_and_licensed(names: list[str]) -> None:
    assert "bls_notebook/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_wheel_holds_every_module_and_text(names: list[str]) -> None:
    files = [
        path for ending in ("py", "json", "txt", "md", "pbtxt") for path in (ROOT / "bls_notebook").rglob(f"*.{ending}")
    ]
    assert {path.relative_to(ROOT).as_posix() for path in files} <= set(names)


def test_the_wheel_holds_the_course_and_writes_it_into_a_folder(site: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bls_notebook", "learn", "--course", str(tmp_path / "course")]
    environ = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}
    subprocess.run(command, cwd=site, env=environ, capture_output=True, check=True)
    written = {path.relative_to(tmp_path / "course").as_posix() for path in (tmp_path / "course").rglob("*.*")}
    notebooks = {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert notebooks < written
    assert {"model_repository/add_sub/1/model.py", "notebooks/meter_reading/models/meter/config.pbtxt"} < written


def test_the_wheel_holds_widget_files_where_the_package_looks(names: list[str], site: Path) -> None:
    files = {f"bls_notebook/widgets/{path.name}" for path in (ROOT / "widgets").iterdir()}
    assert files
    assert files <= set(names)
    code = "from bls_notebook.display.widgets import widget_file; print(widget_file('common.js'))"
    environ = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}
    found = subprocess.run([sys.executable, "-c", code], cwd=site, env=environ, capture_output=True, check=True)
    assert Path(found.stdout.decode().strip()) == site / "bls_notebook/widgets/common.js"
