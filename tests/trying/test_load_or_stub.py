"""Models that take too long, and a person who does not wait."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bls_notebook.engine.waiting.operations import WaitInterruptedError, perform, undo
from bls_notebook.engine.waiting.parker import Parker
from bls_notebook.trying.load_or_stub import line_at_limit
from tests.trying.conftest import DOUBLES, PYTHON, put, time_limits_pass_when_asked

ONES = {"IN": np.ones(3, np.float32)}

HANGS = """
import threading
class TritonPythonModel:
    def initialize(self, args):
        threading.main_thread().passes()
        threading.Event().wait()
"""


@pytest.fixture(autouse=True)
def _only_for_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    time_limits_pass_when_asked(monkeypatch)


@pytest.mark.parametrize("main", [True, False])
@pytest.mark.parametrize("stops", [True, False])
def test_a_model_that_takes_too_long_is_a_stub(trying: Any, tmp_path: Path, main: bool, stops: bool) -> None:
    slow = HANGS.replace("threading.Event().wait()", "exec('while True: pass')") if stops else HANGS
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
    assert rows["hangs"].why.startswith("did not load within 0.3 s: it was in model 'hangs', ")
    assert rows["hangs"].why.endswith("model.py, line 5: threading.main_thread().passes()")
    assert (rows["works"].kind, repository.infer("hangs", ONES).stubs) == ("real", ("hangs",))


def test_a_time_limit_does_not_interrupt_an_import(
    trying: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyTorch's on a slow disk: the import ends later, and other models get the whole module."""
    (tmp_path / "lib").mkdir()
    shared = "import threading\nthreading.main_thread().passes()\nthreading.main_thread().goes_on.wait()\nwhole = True"
    (tmp_path / "lib" / "imported_slowly.py").write_text(shared)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    goes_on = threading.main_thread().goes_on = threading.Event()  # type: ignore[attr-defined]
    put(tmp_path / "m", "first", PYTHON, {"1/model.py": f"import imported_slowly\n{DOUBLES}"})
    checks = f"import threading\nthreading.main_thread().goes_on.set()\nimport imported_slowly\n{DOUBLES}"
    put(tmp_path / "m", "second", PYTHON, {"1/model.py": checks + "\nassert imported_slowly.whole"})
    _, rows = trying(tmp_path / "m")
    goes_on.set()
    assert (rows["first"].kind, "did not load within 60 s" in rows["first"].why) == ("stub", True)
    assert rows["first"].why.endswith("model.py, line 1: import imported_slowly")
    assert rows["second"].kind == "real"
    del sys.modules["imported_slowly"]


def test_an_interrupt_of_the_whole_operation_is_no_deadline() -> None:
    def loads() -> object:
        signal.raise_signal(signal.SIGINT)  # the main thread handles it
        return Parker().park()

    with pytest.raises(KeyboardInterrupt):
        perform(lambda: line_at_limit(60.0, loads), partial_result=True)


def test_a_program_in_the_background_has_its_deadline_too(trying: Any, tmp_path: Path) -> None:
    put(tmp_path, "hangs", PYTHON, {"1/model.py": HANGS})
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does
    try:
        _, rows = trying(load_timeout=0.3)
        assert rows["hangs"].kind == "stub"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("in_kernel", [True, False])
def test_ctrl_c_keeps_what_is_done(trying: Any, tmp_path: Path, in_kernel: bool) -> None:
    presses = f"""
import signal, os, threading
class TritonPythonModel:
    def initialize(self, args):
        os.kill({os.getpid()}, signal.SIGINT)
        threading.Event().wait()
"""
    put(tmp_path, "a", PYTHON, {"1/model.py": DOUBLES})
    put(tmp_path, "b", PYTHON, {"1/model.py": presses})
    put(tmp_path, "c", PYTHON, {"1/model.py": DOUBLES})
    repository, rows = trying(in_kernel=in_kernel)
    assert (rows[""].left, repository.infer("a", ONES)["OUT"].as_numpy().tolist()) == (("b", "c"), [2, 2, 2])
    assert repository.load("c").stub == ""


def test_a_second_ctrl_c_gives_up() -> None:
    goes_on, undone = threading.Event(), threading.Event()

    def twice() -> None:
        undo(undone.set)
        try:
            signal.raise_signal(signal.SIGINT)  # the main thread handles it
            Parker().park()
        except WaitInterruptedError:
            signal.raise_signal(signal.SIGINT)
            goes_on.wait()

    with pytest.raises(KeyboardInterrupt):
        perform(twice, partial_result=True)
    goes_on.set()
    assert undone.wait(60.0)
