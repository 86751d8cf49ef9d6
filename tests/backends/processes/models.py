"""Models whose instances are processes: sources, configurations, and a repository that counts what is left over."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from tests.engine import gates
from tests.engine.harness import until

IO = 'input { name: "X" data_type: TYPE_INT32 dims: [ -1 ] }\noutput { name: "Y" data_type: TYPE_INT32 dims: [ -1 ] }\n'
DECOUPLED = f"{IO}model_transaction_policy {{ decoupled: true }}\n"
HEAD = """
import asyncio, json, os, signal, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb

def number(request):
    return int(pb.get_input_tensor_by_name(request, "X").as_numpy().ravel()[0])

def answer(*values, **more):
    return pb.InferenceResponse([pb.Tensor("Y", np.array(values, np.int32))], **more)

def ask(model, value=0, **more):
    return pb.InferenceRequest(model_name=model, inputs=[pb.Tensor("X", np.array([value], np.int32))],
                               requested_output_names=["Y"], **more)

def value(response):
    if response.has_error():
        raise pb.TritonModelException(response.error().message())
    return int(pb.get_output_tensor_by_name(response, "Y").as_numpy()[0])

def crash(how):
    sys.stderr.write("these are my last words\\n")
    sys.stderr.flush()
    if how == "segfault":
        import ctypes
        ctypes.string_at(0)
    elif how == "abort":
        os.abort()
    elif how == "exit":
        os._exit(7)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

"""
IDENTITY = """
class TritonPythonModel:
    def execute(self, requests):
        return [answer(number(r), parameters={"pid": os.getpid()}) for r in requests]
"""
WAITS = """
from tests.engine import gates

class TritonPythonModel:
    def execute(self, requests):
        gates.open_gate("callee of a process runs")
        gates.pass_gate("callee of a process may end")
        return [answer(number(r)) for r in requests]
"""


def define(repo: bls.ModelRepository, name: str, source: str, config: str = IO, isolation: str = "process") -> Any:
    return repo.define(name, HEAD + source, config, isolation=isolation)


def x(*values: int) -> dict[str, Any]:
    return {"X": np.array(values or [1], np.int32)}


def children() -> set[int]:
    """Return the processes that this one has started, and theirs."""
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        pytest.skip("needs /proc")
    return _descendants(os.getpid())


def _descendants(pid: int) -> set[int]:
    out = set[int]()
    for file in glob.glob(f"/proc/{pid}/task/*/children"):
        with suppress(OSError), open(file) as numbers:  # else the thread has ended
            for child in map(int, numbers.read().split()):
                out |= {child} | _descendants(child)
    return out


@pytest.fixture
def apart() -> Iterator[bls.ModelRepository]:
    """A repository, after which no process may be left."""
    before = children()
    with bls.ModelRepository() as repo:
        yield repo
        gates.open_gate("callee of a process may end")
    until(lambda: not children() - before, "a process is left")
