"""Ensembles and the models of their steps, loaded and unloaded at the same time."""

from __future__ import annotations

from pathlib import Path

import bls_notebook as bls
from tests.checking.conftest import write
from tests.engine import gates
from tests.engine.ensembles import PLUS_ONE, chain
from tests.engine.harness import Caller, infer, until
from tests.engine.sources import model, pbtxt

SLOW = model("""
def initialize(self, args):
    gates.open_gate("slow begins")  # a name of its own: a model of an earlier test may still go on, and open "begun"
    gates.pass_gate("go on")

def execute(self, requests):
    return [answer(number(r) + 1) for r in requests]
""")


def test_an_unload_of_a_step_waits_for_the_ensemble_that_is_being_loaded(tmp_path: Path) -> None:
    """As on tritonserver 2.51: both succeed, and then the ensemble leaves service with its step."""
    folder = {"slow/config.pbtxt": pbtxt(), "slow/1/model.py": SLOW, "e/config.pbtxt": chain("slow"), "e/1/.keep": ""}
    with bls.ModelRepository(write(tmp_path, folder)) as repo:
        loading = Caller(repo.load, "e")
        gates.pass_gate("slow begins")
        unloading = Caller(repo.unload, "slow")
        until(lambda: repo._service.lock_of("slow")._waiting)
        gates.open_gate("go on")
        assert loading.result().state == "READY"
        unloading.result()
        assert [(row.name, row.state, row.reason) for row in repo.index()] == [
            ("e", "UNAVAILABLE", "unloaded: it needs 'slow'"), ("slow", "UNAVAILABLE", "unloaded"),
        ]  # fmt: skip


def test_ensembles_with_the_same_steps_are_loaded_at_the_same_time(tmp_path: Path) -> None:
    folder = {f"{name}/1/model.py": PLUS_ONE for name in "az"} | {f"{name}/config.pbtxt": pbtxt() for name in "az"}
    steps = {"b": ("z", "a"), "m": ("a", "z"), "y": ("b", "m")}
    folder |= {f"{name}/config.pbtxt": chain(*members) for name, members in steps.items()}
    folder |= {f"{name}/1/.keep": "" for name in steps}
    with bls.ModelRepository(write(tmp_path, folder)) as repo:
        for _ in range(5):
            callers = [Caller(repo.reload if name in "az" else repo.load, name) for name in "ybmaz"]
            for caller in callers:
                caller.result()
            assert infer(repo, "y", 1) == 5
            repo.unload("y", unload_dependents=True)
