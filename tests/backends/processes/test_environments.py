"""Environments of workers: folders and archives that `EXECUTION_ENV_PATH` names, and other versions of Python."""

from __future__ import annotations

import ast
import os
import sys
import tarfile
import venv
from pathlib import Path

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.backends.processes.sources import sources, text_of
from bls_notebook.lifetimes.kept_memory import SEARCH
from bls_notebook.profiling.stack_sampler import SAMPLER
from bls_notebook.simulation.simulated_backend import WORKER_MODULES
from tests.backends.processes.models import HEAD, IO, x
from tests.engine.harness import value
from tests.repository.conftest import disk

__all__ = ["disk"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Linux or macOS")

SOURCE = """
class TritonPythonModel:
    def execute(self, requests):
        more = {"prefix": sys.prefix, "path": os.environ["PATH"], "has": str("bls_notebook" in sys.modules)}
        return [answer(number(r), parameters=more) for r in requests]
"""


def write(disk: bls.ModelRepository, name: str, environment: str) -> Path:
    folder = disk.paths[0] / name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(HEAD + SOURCE)
    parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}\n'
    (folder / "config.pbtxt").write_text(f'backend: "python"\n{IO}{parameter}')
    return folder


def make(folder: Path) -> None:
    """Make an environment with the NumPy of the tests."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "numpy.pth").write_text(str(Path(np.__file__).parents[1]))


def test_a_model_runs_in_the_environment_of_its_configuration(disk: bls.ModelRepository) -> None:
    folder = write(disk, "m", "$$TRITON_MODEL_DIRECTORY/env")
    assert [f.code for f in bls.check(repo=disk).findings if f.code == "field-idle"] == ["field-idle"]
    make(folder / "env")
    assert [f for f in bls.check(repo=disk).findings if f.code == "field-idle"] == []
    record = disk.load("m")
    assert record.warnings == ()
    response = disk.infer("m", x(3))
    assert value(response) == 3
    got = response.parameters()
    assert os.path.realpath(got["prefix"]) == str((folder / "env").resolve())
    assert got["path"].startswith(str((folder / "env" / "bin").resolve()))
    assert got["has"] == "False"
    assert [f for f in bls.check(repo=disk).findings if f.code == "field-idle"] == []
    assert "is not here, or isolation is 'kernel'" in disk.load("m", isolation="kernel").warnings[0]


def test_an_archive_is_unpacked_once_for_all_instances(disk: bls.ModelRepository, tmp_path: Path) -> None:
    make(tmp_path / "env")
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as file:
        file.add(tmp_path / "env", ".")
    write(disk, "a", str(tmp_path / "env.tar.gz"))
    write(disk, "b", str(tmp_path / "env.tar.gz"))
    prefixes = set()
    for name in ("a", "b"):
        disk.load(name)
        prefixes.add(disk.infer(name, x()).parameters()["prefix"])
    assert len(prefixes) == 1
    assert str(tmp_path / "env") not in prefixes


def test_an_environment_that_a_server_refuses_fails_the_load(disk: bls.ModelRepository, tmp_path: Path) -> None:
    folder = write(disk, "m", str(tmp_path / "env"))
    assert "is not here" in disk.load("m").warnings[0]  # as before: it may exist where the server runs
    with pytest.raises(bls.ModelLoadError, match=f"Failed to get the canonical path for {tmp_path / 'env'}"):
        disk.load("m", isolation="process")
    (tmp_path / "env").mkdir()
    with pytest.raises(bls.ModelLoadError, match="should contain an 'activate' script"):
        disk.load("m", isolation="process")
    archive = folder / "env.tar"
    archive.write_bytes(b"no archive")
    (folder / "config.pbtxt").write_text(
        (folder / "config.pbtxt").read_text().replace(str(tmp_path / "env"), str(archive))
    )
    with pytest.raises(bls.ModelLoadError, match="cannot be unpacked"):
        disk.load("m", isolation="process")


@pytest.mark.parametrize(
    "name", [*(name for name, text in sources().items() if text), *SEARCH, *SAMPLER, *WORKER_MODULES]
)
def test_the_sources_of_a_worker_are_python_3_8(name: str) -> None:
    tree = ast.parse(sources().get(name) or text_of(name), feature_version=(3, 8))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    newer = {"strict", "slots", "kw_only"}  # keywords of zip and dataclass
    assert not [ast.unparse(call) for call in calls for word in call.keywords if word.arg in newer]
    assert not [call for call in calls if "bisect" in ast.unparse(call.func) and call.keywords]  # `key` is new
    methods = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not methods & {"removeprefix", "removesuffix", "to_thread", "pairwise"}
