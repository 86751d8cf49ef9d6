"""`compare(overlap=True)`: what could be in flight together is found, and nothing that depends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.engine.overlap.run import AheadExecution
from bls_notebook.profiling import Overlap, sequential
from bls_notebook.profiling.analysis.overlap import depends_on
from tests.repository.graphs import CALLEE, CONFIG, GRAPHS, HEAD, Graph, define_callees, model_of

GPU = "preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU), "
X = np.array([1.0, -2.0, 3.0, 0.5], np.float32)


@pytest.fixture(scope="module")
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        define_callees(repository)
        yield repository


def overlap_of(repo: bls.ModelRepository, source: str, n: int = 1) -> Overlap:
    repo.define("caller", source, CONFIG)
    return bls.compare("caller", {"IN": X}, n=n, repeat=1, overlap=True, repo=repo)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_what_depends_on_what(repo: bls.ModelRepository, graph: Graph) -> None:
    found = overlap_of(repo, model_of(graph))
    (program,) = found.programs
    assert depends_on(program) == [sum(1 << n for n in each) for each in graph.depends]
    assert found.equal == (not found.problem) == graph.equal, found.problem
    assert repo.infer("caller", {"IN": X}).error is None  # as it was before
    assert Overlap.from_dict(found.to_dict()) == found
    assert found.sentence in " ".join(render(found).text.split())


def test_too_few_instances_are_told(repo: bls.ModelRepository) -> None:
    pieces = next(g for g in GRAPHS if g.name == "fan-out of pieces")
    slow = CALLEE.format(delay=0.03, what="x + 1")
    repo.define("add", slow, CONFIG)
    found = overlap_of(repo, model_of(pieces))
    assert "3 calls of `add`" in found.sentence
    assert "`instance_group.count` 3 for `add`" in found.advice
    repo.define("add", slow, CONFIG + "instance_group { count: 3 kind: KIND_CPU }")
    found = overlap_of(repo, model_of(pieces))
    assert found.advice == ""
    assert found.ahead.statistics().concurrency > 1.5  # with the caller, which only waits
    assert len(found.written.ghosts) == 3  # two of the calls, and their caller, which could end earlier


def test_several_requests_and_a_carried_state(repo: bls.ModelRepository) -> None:
    """What the model keeps of an answer is real, also for the runs after it."""
    body = "self.last = ask('add', x); b = ask('twice', x); out = [b]"
    source = (
        model_of(Graph("", body, ()))
        .replace(
            "x = pb",
            "kept = getattr(self, 'last', None)\n        y = kept if kept is not None else 0\n        x = pb",
        )
        .replace("ask('twice', x)", "ask('twice', x + 0 * y)")
    )
    found = overlap_of(repo, source, n=3)
    assert found.equal, found.problem
    assert len(found.programs) == 3


def test_code_in_c_gets_real_arrays(repo: bls.ModelRepository) -> None:
    """An array that only looks like one is refused by code in C; then it is waited for when asked for."""
    strict = """def strict(a):
    if type(a) is not np.ndarray:
        raise TypeError("not an array")
    return a
"""
    graph = Graph("", "a = strict(ask('add', x)); b = ask('twice', x); out = [a, b]", ())
    found = overlap_of(repo, model_of(graph).replace("class Triton", f"{strict}\nclass Triton"))
    assert found.equal, found.problem
    assert depends_on(found.programs[0]) == [0, 1]


def test_a_chain_may_be_long(repo: bls.ModelRepository) -> None:
    body = "y = pb_utils.Tensor('IN', x)\nfor _ in range(1500):\n"
    body += "    y = pb_utils.Tensor('IN', ask('add', y))\nout = [y.as_numpy()]"
    repo.define("add", CALLEE.format(delay=0, what="x + 1"), CONFIG)
    found = overlap_of(repo, model_of(Graph("", body + "\nask('twice', x)", ())))
    assert found.equal, found.problem
    assert depends_on(found.programs[0])[1499] == (1 << 1499) - 1


def test_what_strikes_between_does_not_hang(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("no such luck")

    monkeypatch.setattr(AheadExecution, "open", broken)
    found = overlap_of(repo, model_of(GRAPHS[1]))
    assert "no such luck" in found.problem


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("contextvars.copy_context().run, ask", "a request from another thread is sent as it is written"),
        ("ask", "sent calls from other threads"),
    ],
)
def test_what_is_sent_as_it_is_written_is_said(repo: bls.ModelRepository, run: str, said: str) -> None:
    body = "import concurrent.futures as f, contextvars\nwith f.ThreadPoolExecutor(1) as pool:\n"
    body += f"    a = pool.submit({run}, 'add', x).result()\nout = [a, ask('twice', x), ask('twice2', x)]"
    found = overlap_of(repo, model_of(Graph("", body, ())))
    assert said in found.problem
    assert not found.equal


def test_one_round_that_answers_otherwise_is_enough(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = itertools.count(1)
    monkeypatch.setattr(sequential, "differs", lambda *_: "it differs" if next(compared) == 4 else "")
    repo.define("caller", model_of(GRAPHS[1]), CONFIG)
    found = bls.compare("caller", {"IN": X}, repeat=4, overlap=True, repo=repo)
    assert next(compared) > 5  # later ones did not
    assert found.problem == "it differs"


def test_async_models_too(repo: bls.ModelRepository) -> None:
    source = f"""{HEAD}
class TritonPythonModel:
    async def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], 'IN')
        out = []
        for name in ("add", "twice"):
            request = pb_utils.InferenceRequest(model_name=name, requested_output_names=["OUT"], inputs=[x])
            response = await request.async_exec()
            out.append(pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy())
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.concatenate(out))])]
"""
    found = overlap_of(repo, source)
    assert found.equal, found.problem
    assert depends_on(found.programs[0]) == [0, 0]


ON_GPU = """import cupy
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        given = pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", cupy.asarray(given) + 1)])]
"""


def test_outputs_in_the_memory_of_a_gpu() -> None:
    """Where a tensor lies is known once it is there: asking waits."""
    body = (
        "a, b = ask('one', x, raw=True), ask('other', x, raw=True)\nassert not (a.is_cpu() or b.is_cpu())\n"
    )
    body += "out = [cupy.asnumpy(cupy.from_dlpack(each.to_dlpack())) for each in (a, b)]"
    bls.simulate_gpus(1, even_with_cuda=True)
    try:
        with bls.ModelRepository() as repo:
            for name in ("one", "other"):
                repo.define(name, ON_GPU, CONFIG + "instance_group { kind: KIND_GPU }")
            source = model_of(Graph("", body, ())).replace("import json", "import cupy, json")
            source = source.replace("**options)\n    response", GPU + "**options)\n    response")
            repo.define("caller", source, CONFIG + "instance_group { kind: KIND_CPU }")
            found = bls.compare("caller", {"IN": X}, repeat=1, overlap=True, repo=repo)
    finally:
        bls.simulate_gpus(0)
    assert found.equal, found.problem
    assert depends_on(found.programs[0]) == [0, 0]


def test_what_cannot_be_judged_is_said(repo: bls.ModelRepository) -> None:
    assert "a request fails" in overlap_of(repo, model_of(Graph("", "out = [ask('fails', x)]", ()))).problem
    random = Graph("", "out = [np.random.rand(2), ask('add', x)]", ())
    assert "not the same from run to run" in overlap_of(repo, model_of(random)).problem
    with pytest.raises(bls.BLSError, match="leave instances and verify out"):
        bls.compare("add", {"IN": X}, overlap=True, verify=True, repo=repo)
    repo.define("streams", model_of(GRAPHS[0]), CONFIG + "model_transaction_policy { decoupled: true }")
    with pytest.raises(bls.BLSError, match="'streams' is decoupled"):
        bls.compare("streams", {"IN": X}, overlap=True, repo=repo)
