"""Workers are forked from one process of their environment, and equal new ones."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.backends.processes import fork_server
from tests.backends.processes.models import apart, define, x
from tests.backends.processes.test_environments import make, write
from tests.engine.harness import until
from tests.repository.conftest import disk

__all__ = ["apart", "disk"]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has fork servers")

FACTS = """
import random

def facts():
    folder = "/proc/self/fd/"
    files = [os.readlink(folder + n) for n in os.listdir(folder) if os.path.exists(folder + n)]
    return {
        "modules": sorted(sys.modules), "main": sorted(vars(sys.modules["__main__"])),
        "argv": sys.argv, "path": sys.path[:-2],  # without the model's folders
        "files": sorted(name.partition(":")[0] for name in files), "flags": list(sys.flags), "folder": os.getcwd(),
        "threads": sorted(t.name for t in threading.enumerate()), "variables": dict(os.environ),
        "is main": threading.current_thread() is threading.main_thread(), "leads": os.getsid(0) == os.getpid(),
        "signals": [str(signal.getsignal(n)) for n in signal.valid_signals() - {signal.SIGINT}],
        "sum": (np.ones((300, 300)) @ np.ones((300, 300))).sum(), "filters": len(__import__("warnings").filters),
    }

class TritonPythonModel:
    def execute(self, requests):
        own = {"pid": os.getpid(), "parent": os.getppid(), "random": [random.random(), np.random.random()]}
        return [answer(1, parameters={"own": json.dumps(own), "facts": json.dumps(facts())}) for r in requests]
"""


def facts(repo: bls.ModelRepository, name: str = "m") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a worker alone has, and what every worker has."""
    response = repo.infer(name, x())
    assert response.error is None, response.error
    got = response.parameters()
    return json.loads(got["own"]), json.loads(got["facts"])


def test_a_forked_worker_equals_a_new_one(apart: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    define(apart, "m", FACTS)
    forked, its = facts(apart)
    define(apart, "another", FACTS)
    assert facts(apart, "another")[0]["parent"] == forked["parent"] != os.getpid()
    monkeypatch.setattr(fork_server, "CAN_FORK", False)
    define(apart, "new", FACTS)
    new, others = facts(apart, "new")
    assert new["parent"] == os.getpid()
    assert its == others


def test_forked_workers_share_no_random_numbers(apart: bls.ModelRepository) -> None:
    numbers = set[float]()
    for n in range(4):
        define(apart, f"m{n}", FACTS)
        numbers |= set(facts(apart, f"m{n}")[0]["random"])
    assert len(numbers) == 8


def test_a_worker_has_the_variables_and_the_folder_of_its_start(
    apart: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    define(apart, "m", FACTS)
    first = facts(apart)[0]["parent"]
    monkeypatch.chdir(tmp_path)
    define(apart, "moved", FACTS)
    assert facts(apart, "moved")[1]["folder"] == str(tmp_path)
    monkeypatch.setenv("BLS_TEST_OF_FORKS", "1")
    define(apart, "later", FACTS)
    own, its = facts(apart, "later")
    assert its["variables"]["BLS_TEST_OF_FORKS"] == "1"
    assert own["parent"] not in (first, os.getpid())


def test_a_fork_server_that_is_killed_costs_no_answer(apart: bls.ModelRepository) -> None:
    define(apart, "m", FACTS)
    own, _ = facts(apart)
    os.kill(own["parent"], signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{own['parent']}/exe"), "the end of the fork server")
    assert facts(apart)[0]["pid"] == own["pid"]
    define(apart, "plain", FACTS)
    assert facts(apart, "plain")[0]["parent"] == os.getpid()
    define(apart, "forked", FACTS)
    assert facts(apart, "forked")[0]["parent"] not in (own["parent"], os.getpid())
    os.kill(own["pid"], signal.SIGKILL)  # its status is lost
    until(lambda: apart.infer("m", x()).error is None and facts(apart)[0]["pid"] != own["pid"], "the restart")


def test_an_environment_whose_start_begins_a_thread_is_never_forked(disk: bls.ModelRepository) -> None:
    folder = write(disk, "m", "$$TRITON_MODEL_DIRECTORY/env")
    make(folder / "env")
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    begins = "import threading, time; threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n"
    (packages / "begins.pth").write_text(begins)
    model = folder / "1" / "model.py"
    model.write_text(model.read_text().partition("class Triton")[0] + FACTS)
    for _ in range(2):
        disk.load("m")
        assert facts(disk)[0]["parent"] == os.getpid()
        disk.unload("m")


def test_an_environment_without_numpy_has_the_error_of_its_start(
    disk: bls.ModelRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(disk, "m", "$$TRITON_MODEL_DIRECTORY/env")
    make(folder / "env")
    next(iter((folder / "env").glob("lib/python*/site-packages/numpy.pth"))).unlink()
    with pytest.raises(bls.ModelLoadError, match="exit status 1"):
        disk.load("m")
    assert "ModuleNotFoundError: No module named 'numpy'" in capsys.readouterr().err
