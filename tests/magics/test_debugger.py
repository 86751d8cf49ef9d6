"""`%debug` after an error of a model opens in the model's frame."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType

import pytest


def innermost(tb: TracebackType | None) -> str:
    assert tb is not None
    while tb.tb_next is not None:
        tb = tb.tb_next
    return tb.tb_frame.f_code.co_name


@pytest.fixture
def debug(cells, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def run(*commands: str) -> str:
        left = [*commands, "q"]
        monkeypatch.setattr("builtins.input", lambda prompt="": left.pop(0))
        # Without a terminal, pdb reads lines with input().
        cells.shell.InteractiveTB.pdb = None
        done = cells("%debug")
        return str(done.stdout)

    return run


def test_an_error_response(cells, debug: Callable[..., str]) -> None:
    cells.model()
    cells("1/0")
    cells("%bls times IN=[-5]")
    assert isinstance(sys.last_value, ValueError)
    assert sys.last_type is ValueError
    assert innermost(sys.last_traceback) == "execute"
    shown = debug("p array")
    assert "array([-5.]" in shown
    assert "raise ValueError" in shown, "the first stop shows the source"
    assert "Cell In[" in shown
    cells("1/0")
    cells("%bls times IN=[-5] -n 3")
    assert innermost(sys.last_traceback) == "execute"


def test_the_first_stop_in_a_model_of_a_script(cells, debug: Callable[..., str]) -> None:
    cells("import bls_notebook as bls\nrepo = bls.current_repository()")
    cells("repo.define('fails', 'class TritonPythonModel:\\n    def execute(self, r):\\n        1 / 0')")
    cells("%bls fails")
    assert "1 / 0" in debug()


def test_a_model_that_cannot_be_loaded(cells, debug: Callable[..., str]) -> None:
    cells("%%tritonmodel times\ndef helper():\n    found = 42\n    raise KeyError(found)\nhelper()\n")
    assert innermost(sys.last_traceback) == "helper"
    assert "42" in debug("p found")


def test_an_error_without_model_code_leaves_the_last_one_alone(cells) -> None:
    cells.model()
    cells("%bls times IN=[-5]")
    cells("import numpy as np")
    for refused in ("%bls times IN=np.arange(2)", "%bls times IN=[-5] --version 7"):
        cells("1/0")
        cells(refused)
        assert isinstance(sys.last_value, ZeroDivisionError), refused
