"""Destructors that run at the worst moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# For each count, garbage is collected a step later; for one of them while the body's context is put back.
CODE = """
import gc
from contextvars import ContextVar
import bls_notebook as bls
from bls_notebook.pb_utils import Logger
from bls_notebook.pb_utils._runtime import caller_var

class Talks:
    def __init__(self):
        self.me = self
    def __del__(self):
        caller_var.get()

def body():
    gc.collect()
    for _ in range(count):
        Talks()

for name in "abc":
    ContextVar(name).set(1)
repository = bls.ModelRepository()
gc.freeze()  # so that collecting is quick
gc.set_threshold(60, 1000, 1000)
for count in range(70):
    repository.run(body)
    gc.disable()
    assert caller_var.get() is None, count
    gc.enable()
"""


def test_a_destructor_that_asks_who_is_running() -> None:
    """Python before 3.12 would keep a dangling pointer to the execution that has just ended."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", CODE], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
