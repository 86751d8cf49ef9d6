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
    files = dict.fromkeys(["old/lib/python3.11/site-packages/x.py", "old/bin/activate", "bare/bin/activate"], "")
    write(folder, {**files, "torn.tar.gz": "no archive"})
    for python in ("3.11", "3.12"):
        with tarfile.open(folder / f"{python}.tar.gz", "w:gz") as archive:
            for name in ("bin/activate", f"lib/python{python}/os.py"):
                archive.addfile(tarfile.TarInfo(name))
    top = ("bin/activate", "lib/python3.12/os.py")
    packed(folder / "below.tar.gz", "env/bin/activate")
    packed(folder / "leaves.tar.gz", *top, "lib/../../x")
    packed(folder / "through.tar.gz", *top, "link", "link/x")
    packed(folder / "conda.tar.gz", *top, "conda-meta/history")
    packed(folder / "large.tar.gz", *top)
    with (folder / "large.tar.gz").open("r+b") as file:  # as gzip's last field says
        file.seek(-4, 2)
        file.write((2 << 30).to_bytes(4, "little"))
    return folder


def packed(file: Path, *names: str) -> None:
    with tarfile.open(file, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            if name == "link":
                member.type, member.linkname = tarfile.SYMTYPE, "/tmp"
            archive.addfile(member)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (f"{BESIDE}3.12.tar.gz", []),
        (f"{BESIDE}3.11.tar.gz", ["environment-python"]),
        (f"{BESIDE}old", ["environment-python"]),
        (f"{BESIDE}torn.tar.gz", ["environment-refused"]),
        (f"{BESIDE}bare", []),
        (f"{BESIDE}old/lib", ["environment-refused"]),
        (f"{BESIDE}below.tar.gz", ["environment-refused"]),
        (f"{BESIDE}leaves.tar.gz", ["environment-refused"]),
        (f"{BESIDE}through.tar.gz", ["environment-refused"]),
        (f"{BESIDE}conda.tar.gz", ["environment-library"]),
        (f"{BESIDE}large.tar.gz", ["environment-large"]),
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
