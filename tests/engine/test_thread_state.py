"""State of an instance's thread lasts as long as the instance, and leaks neither in nor out, as between processes."""

from __future__ import annotations

import asyncio
import contextvars
import decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.waiting.home_threads import HomeThread
from tests.engine import gates
from tests.engine.harness import LIMIT, infer, ints
from tests.engine.sources import model, pbtxt
from tests.simulation.lazy_torch import needs_torch, torch

# What a thread or its context keeps: how to read and set it, its default, the notebook's value, and the model's.
STATE: dict[str, tuple[str, str, Any, Any, Any]] = {
    "errstate": ("np.geterr()['over']", "np.seterr(over={!r})", "warn", "ignore", "raise"),
    "decimal": ("decimal.getcontext().prec", "decimal.getcontext().prec = {!r}", 28, 9, 50),
    "context variable": ("gates.shared['var'].get('no')", "gates.shared['var'].set({!r})", "no", "notebook", "own"),
    "grad mode": ("torch.is_grad_enabled()", "torch.set_grad_enabled({!r})", True, True, False),
    "grad mode off": ("torch.is_grad_enabled()", "torch.set_grad_enabled({!r})", True, False, True),
}
READS = """
def initialize(self, args):
    self.note("initialize")
    SET  # for the rest of the thread's life

def note(self, part):
    gates.log.put((part, READ))

def execute(self, requests):
    got = value_of(ask("sets").exec()) if number(requests[0]) else 0
    self.note("execute")
    return [answer(got)]

def finalize(self):
    self.note("finalize")
"""


CASES = [
    pytest.param(state, kind, marks=[needs_torch] * state.startswith("grad"))
    for state in STATE for kind in ("def", "async def")
]  # fmt: skip


@pytest.mark.parametrize(("state", "kind"), CASES)
def test_state_leaks_neither_into_an_instance_nor_out(state: str, kind: str) -> None:
    read, set_, default, notebook, own = STATE[state]
    source = model(READS.replace("READ", read)).replace("def execute", f"{kind} execute")
    if kind == "async def":
        source = source.replace('ask("sets").exec()', 'await ask("sets").async_exec()')
    source = ("import torch\n" if state.startswith("grad") else "") + "import decimal\n" + source
    names = {"np": np, "decimal": decimal, "gates": gates, "torch": torch}
    gates.shared["var"] = contextvars.ContextVar("var")
    notes: list[list[Any]] = []

    def cells() -> None:
        exec(set_.format(notebook), names)
        with bls.ModelRepository() as repo:
            repo.define("sets", source.replace("SET", set_.format(own)), pbtxt())
            infer(repo, "sets")
            asyncio.run(asyncio.wait_for(repo.infer_async("sets", ints(0)), LIMIT))
            notes.append(gates.logged())
            repo.define("asks", source.replace("SET", "pass"), pbtxt())
            infer(repo, "asks", 1)
            notes.append(gates.logged())
        notes.append(sorted(gates.logged(), key=str))
        assert eval(read, names) == notebook

    try:
        contextvars.copy_context().run(cells)
    finally:
        if state.startswith("grad"):
            torch.set_grad_enabled(True)
    # As on Triton, an async `execute` has the context of `initialize`, but the thread of its loop.
    at_work = default if kind == "async def" and state.startswith("grad") else own
    assert notes == [
        [("initialize", default), ("execute", at_work), ("execute", at_work)],
        [("initialize", default), ("execute", at_work), ("execute", default)],
        sorted([("finalize", own), ("finalize", default)], key=str),
    ]


def test_output_follows_the_cell_whichever_variable_says_so() -> None:
    variables = [contextvars.ContextVar("parent_header") for _ in range(6)]  # ipykernel has one for each stream
    half = SimpleNamespace(read=lambda: [variable.get(None) for variable in variables])
    home = HomeThread("here", half)

    def seen_with(values: list[Any]) -> list[Any]:
        context = contextvars.Context()
        for variable, value in zip(variables, values, strict=True):
            if value is not None:
                context.run(variable.set, value)
        return context.run(home.call, "read")

    cell: list[Any] = ["first"] * 6
    assert seen_with([None] * 6) == [None] * 6
    for changed in range(6):
        cell = [*cell[:changed], f"cell {changed}", *cell[changed + 1 :]]
        assert seen_with(cell) == cell
        assert seen_with(cell) == cell
    assert seen_with([None] * 6) == [None] * 6
    home.stop()
