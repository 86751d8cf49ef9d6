"""Models that take too long, and a person who does not wait."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bls_notebook.trying.load_deadline import Deadline
from tests.trying.conftest import DOUBLES, IO, put

PYTHON = f'backend: "python" {IO}'
ONES = {"IN": np.ones(3, np.float32)}

HANGS = """
import threading
class TritonPythonModel:
    def initialize(self, args):
        threading.main_thread().hangs = True
        threading.Event().wait()
"""


@pytest.fixture(autouse=True)
def _only_for_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadlines of models that load do not pass, however long that takes."""
    watch = Deadline._watch

    def watch_what_hangs(deadline: Deadline) -> None:
        while not vars(threading.main_thread()).pop("hangs", False) and not deadline._over.wait(0.01):
            pass
        watch(deadline)

    monkeypatch.setattr(Deadline, "_watch", watch_what_hangs)


@pytest.mark.parametrize("main", [True, False])
def test_a_model_that_takes_too_long_is_a_stub(trying: Any, tmp_path: Path, main: bool) -> None:
    slow = HANGS if main else HANGS.replace("threading.Event().wait()", "exec('while True: pass')")
    put(tmp_path, "hangs", PYTHON, {"1/model.py": slow})
    put(tmp_path, "works", PYTHON, {"1/model.py": DOUBLES})
    found: list[Any] = []

    def run() -> None:
        found.append(trying(load_timeout=0.3))

    if main:
        run()
    else:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    repository, rows = found[0]
    assert rows["hangs"].kind == "stub"
    assert "did not load within 0.3 s" in rows["hangs"].why
    assert (rows["works"].kind, repository.infer("hangs", ONES).stubs) == ("real", ("hangs",))


def test_a_program_in_the_background_has_its_deadline_too(trying: Any, tmp_path: Path) -> None:
    put(tmp_path, "hangs", PYTHON, {"1/model.py": HANGS})
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does
    try:
        _, rows = trying(load_timeout=0.3)
        assert rows["hangs"].kind == "stub"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_keeps_what_is_done(trying: Any, tmp_path: Path) -> None:
    presses = """
import signal, os, threading
class TritonPythonModel:
    def initialize(self, args):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(5)
"""
    put(tmp_path, "a", PYTHON, {"1/model.py": DOUBLES})
    put(tmp_path, "b", PYTHON, {"1/model.py": presses})
    put(tmp_path, "c", PYTHON, {"1/model.py": DOUBLES})
    repository, rows = trying()
    assert (rows[""].left, repository.infer("a", ONES)["OUT"].as_numpy().tolist()) == (("b", "c"), [2, 2, 2])
    assert repository.load("c").stub == ""
