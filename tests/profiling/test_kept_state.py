"""State between requests, found in the code of models."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import indent

import pytest

from bls_notebook.profiling.dependences.kept_state import KeptState, kept_state, state_of

MODEL = """
import functools, itertools, json, os, pathlib, threading
import numpy as np
{top}
class TritonPythonModel:
    made = 0
    def initialize(self, args):
        self.n, self.cache, self.log, self.net, self.w = 0, {{}}, [], None, np.ones(3)
{init}
    def execute(self, requests):
        for r in requests:
            x = answer = r.x
{body}
        return answer
{more}
"""
CLASS = "class T:\n    def __init__(self): self.k = 0\n    def step(self):\n        self.k += 1\n        return self.k"
CLOSURE = "def make():\n    n = 0\n    def f():\n        nonlocal n; n += 1\n        return n\n    return f\nF = make()"


def model(body: str, top: str = "", init: str = "pass", more: str = "") -> str:
    parts = {"body": indent(body, " " * 12), "init": indent(init, " " * 8), "more": indent(more, "    ")}
    return MODEL.format(top=top, **parts)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (model("self.n += 1\nanswer = x + (self.n % 25 == 0)"), "self.n"),
        (model("global N\nN += 1\nanswer = x + N", "N = 0"), "N"),
        (model("type(self).made += 1\nanswer = x + self.made"), "self.made"),
        (model("s = self.cache\ns['n'] = s.get('n', 0) + 1\nanswer = x + s['n']"), "self.cache"),
        (model("answer = x + next(self.ids)", init="self.ids = itertools.count()"), "self.ids"),
        (model("answer = x + F()", CLOSURE), "n"),
        (model("answer = self.f()", more="def f(self, seen=[]):\n    seen.append(1)\n    return len(seen)"), "seen"),
        (model("step.n += 1\nanswer = x + step.n", "def step(): pass\nstep.n = 0"), "step"),
        (model("answer = x + self.t.step()", CLASS, "self.t = T()"), "self.k"),
        (model("bump(self.cache)\nanswer = x + self.cache['n']", "def bump(d):\n    d['n'] = 1"), "self.cache"),
        (model("np.add(self.w, 1, out=self.w)\nanswer = x * self.w"), "self.w"),
        (model("if x[0] > 9: self.seen = True\nanswer = 2 * x if self.seen else x", init="self.seen = 0"), "self.seen"),
        (model("answer, self.h = self.net(x, self.h)"), "self.h"),
        (model("answer = self.f()", "def g(s):\n    s[0] += 1\n    return s", "self.f = functools.partial(g, [0])"),
         "s"),
        (model("os.environ['N'] = str(len(os.environ))\nanswer = os.environ['N']"), "os.environ"),
        (model("L.n = getattr(L, 'n', 0) + 1\nanswer = L.n", "L = threading.local()"), "L"),
        (model("np.add.at(self.w, [0], 1)\nanswer = x * self.w"), "self.w"),
        (model("part = self.w[1:]\npart += 1\nanswer = x * self.w"), "self.w"),
        (model("setattr(self, f'k{len(vars(self))}', 1)\nanswer = len(vars(self))"), "vars"),
        (model("push(self.log, x)\nanswer = len(self.log)", "from heapq import heappush as push"), "self.log"),
        (model("self.push(self.log, x)\nanswer = len(self.log)", "import heapq", "self.push = heapq.heappush"),
         "self.log"),
        (model("f(1)[0] += 1\nanswer = f(1)[0]", "@functools.cache\ndef f(v): return [0]"), "f"),
    ],
)  # fmt: skip
def test_state_between_requests_is_named(source: str, name: str) -> None:
    assert kept_state({"model": ast.parse(source)}).own.startswith(f"`{name}` (line ")


@pytest.mark.parametrize(
    "source",
    [
        model("self.n += 1\nprint(self.n)\nself.log.append(x)"),
        model("self.x = x\nanswer = self.x * 2"),
        model("self.x = x\nanswer = self.twice()", more="def twice(self): return self.x * 2"),
        model("if self.net is None:\n    self.net = np.ones(3)\nanswer = x * self.net"),
        model("answer = np.add(x, 1)\nparts = []\nfill(parts)", "def fill(parts):\n    parts.append(1)"),
        model("t = T()\nanswer = x + t.step()", CLASS),
        model("open('log', 'a').write('x')\nlabels = [0]\nlabels[0] += 1"),
        model("labels = open('labels').read()\nw = self.w.copy()\nw += 1"),
        model("answer = x", "import sqlite3"),
        model("answer = x * self.ww", init="self._load()", more="def _load(self): self.ww = 2"),
    ],
)
def test_members_that_no_later_request_reads_are_no_state(source: str) -> None:
    assert not kept_state({"model": ast.parse(source)}).own


def test_files_and_modules_are_shared_with_other_models(tmp_path: Path) -> None:
    def state(body: str, top: str = "") -> KeptState:
        return kept_state({"model": ast.parse(model(body, top))})

    writes, reads = state("np.save('s.npy', x)"), state("answer = np.load('s.npy')")
    assert writes.shared_with(reads).startswith("files (line ")
    assert [writes.own, reads.own, reads.shared_with(writes)] == ["", "", ""]
    adds, asks = state("KEYS.add(x)", "from store import KEYS"), state("answer = x in KEYS", "from store import KEYS")
    assert adds.shared_with(asks).startswith("`store` (line ")
    (tmp_path / "model.py").write_text(model("answer = helper.step()", "import helper"), "utf-8")
    (tmp_path / "helper.py").write_text("N = 0\ndef step():\n    global N\n    N += 1\n    return N\n", "utf-8")
    assert state_of(tmp_path).own == "`N` (line 4)"
