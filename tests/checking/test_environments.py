"""Findings about ``EXECUTION_ENV_PATH``."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.checking.conftest import CONFIG, Check, codes, model, write

BESIDE = "$$TRITON_MODEL_DIRECTORY/"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "a"
    write(folder, {"old/lib/python3.11/site-packages/x.py": "", "torn.tar.gz": "no archive", "bare/bin/activate": ""})
    for python in ("3.11", "3.12"):
        with tarfile.open(folder / f"{python}.tar.gz", "w:gz") as archive:
            for name in ("bin/activate", f"lib/python{python}/os.py"):
                archive.addfile(tarfile.TarInfo(name))
    return folder


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (f"{BESIDE}3.12.tar.gz", []),
        (f"{BESIDE}3.11.tar.gz", ["environment-python"]),
        (f"{BESIDE}old", ["environment-python"]),
        (f"{BESIDE}torn.tar.gz", []),  # what it contains is unknown
        (f"{BESIDE}bare", []),
        (f"{BESIDE}3.10.tar.gz", ["environment-missing"]),
        (f"{BESIDE}../a/3.12.tar.gz", ["environment-outside"]),
        ("$TRITON_MODEL_DIRECTORY/3.12.tar.gz", ["environment-outside"]),
        ("/opt/3.11.tar.gz", []),  # a folder of the server
    ],
)
def test_an_environment_that_a_server_cannot_use(check: Check, place: Path, path: str, found: list[str]) -> None:
    files = model("a", f'{CONFIG}parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}\n')
    here = path.startswith(BESIDE) and (place / path.removeprefix(BESIDE)).exists()
    idle = [] if here else ["field-idle"]  # an environment that is here runs the model
    assert codes(check(files)) == [*found, *idle]
    (place / "triton_python_backend_stub").touch()
    assert codes(check(files)) == [*(code for code in found if code != "environment-python"), *idle]
