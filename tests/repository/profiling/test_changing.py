"""The code to write for calls that could overlap, and the changed model run beside the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.profiling import Overlap, changing
from bls_notebook.repository.rewriting.rewrite import Rewritten
from tests.repository.graphs import CONFIG, GRAPHS, HEAD, Graph, define_callees, model_of

X = np.array([1.0, -2.0, 3.0, 0.5], np.float32)
CHANGED = (
    "two apart",
    "diamond",
    "fan-out",
    "two chains",
    "a sequence beside another call",
)


@pytest.fixture(scope="module")
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        define_callees(repository, 0.02)
        yield repository


def found_of(repo: bls.ModelRepository, source: str, n: int = 1) -> Overlap:
    repo.define("caller", source, CONFIG)
    return bls.compare("caller", {"IN": X}, n=n, repeat=1, overlap=True, apply=True, repo=repo)


def graph(name: str) -> Graph:
    return next(g for g in GRAPHS if g.name == name)


@pytest.mark.parametrize("name", CHANGED)
def test_the_changed_model_answers_the_same_with_its_calls_in_flight_together(
    repo: bls.ModelRepository, name: str
) -> None:
    found = found_of(repo, model_of(graph(name)))
    serving = repo._server.find("caller")
    code = found.code
    assert code is not None
    assert code.source, code.reason
    assert "equal answers on 2 runs" in code.proof.lower(), code.proof  # they were in flight together, too
    assert serving is not None
    assert not serving.closed.is_set()
    assert Overlap.from_dict(found.to_dict()) == found
    shown = render(found)
    assert "asyncio.gather" in shown.text
    assert "asyncio.gather" in shown.html
    assert f"{code.lines[0].line} -" in shown.text
    if name == "two chains":  # what it has become can be judged too
        again = found_of(repo, code.source)
        assert again.equal, again.problem


def test_what_is_not_plain_has_a_template_and_a_reason(repo: bls.ModelRepository) -> None:
    found = found_of(repo, model_of(graph("a buffer that is used again")))
    assert found.code is not None
    assert (found.code.source, found.code.proof) == ("", "")
    shown = " ".join(render(found).text.split())
    assert "Not changed for you, as line 18: `buffer` changes between two requests. By hand" in shown
    assert "add_response, twice_response = await asyncio.gather( add_request.async_exec(), # sent at" in shown


def test_nothing_to_gain_has_no_code(repo: bls.ModelRepository) -> None:
    assert found_of(repo, model_of(graph("chain"))).code is None
    with pytest.raises(bls.BLSError, match="overlap=True too"):
        bls.compare("caller", {"IN": X}, apply=True, repo=repo)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("two = ask('add', x + 1)", "Not equal: output 'OUT' is not the same"),
        ("raise ValueError('no')", "Not equal: with its calls"),
        ("out = [ask('add', x), ask('twice', x)]", "Not proven: the calls were not in flight together"),
        ("syntax error", "cannot be loaded"),
    ],
)
def test_a_change_that_is_wrong_is_not_applied(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    """Whatever is wrong with it: the model as it is written serves on, with what it remembers."""
    wrong = model_of(Graph("", f"out = [ask('twice', x), x]\n{source}", ()))
    monkeypatch.setattr(changing, "rewritten", lambda *_: Rewritten(wrong, (1,)))
    found = found_of(repo, model_of(graph("two apart")))
    assert found.code is not None
    assert said in found.code.proof
    assert "othing is applied" in found.code.proof
    assert not found.code.proven
    assert repo.infer("caller", {"IN": X})["OUT"].as_numpy().shape == (8,)


def test_models_of_folders_are_not_written_to(tmp_path: Path) -> None:
    """What lies beside model.py is there for the changed model too."""
    folder = tmp_path / "caller" / "1"
    folder.mkdir(parents=True)
    source = model_of(graph("two apart")).replace("import json", "import beside, json")
    (folder / "model.py").write_text(source.replace("x, raw=False", "x, raw=beside.RAW"))
    (folder / "beside.py").write_text("RAW = False\n")
    (folder.parent / "config.pbtxt").write_text('backend: "python"\n' + CONFIG)
    before = sorted(p.read_bytes() for p in folder.glob("*.py"))
    with bls.ModelRepository(tmp_path) as repo:
        define_callees(repo, 0.01)
        repo.load("caller")
        found = bls.compare("caller", {"IN": X}, repeat=1, overlap=True, apply=True, repo=repo)
    assert found.code is not None
    assert found.code.folder
    assert "equal answers on 2 runs" in found.code.proof.lower()
    assert found.code.file == "caller/1/model.py"
    assert sorted(p.read_bytes() for p in folder.glob("*.py")) == before


def test_async_models(repo: bls.ModelRepository) -> None:
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
    found = found_of(repo, source)
    assert found.code is not None
    assert "for response in await asyncio.gather(*sent):" in found.code.source
    assert "equal answers on 2 runs" in found.code.proof.lower()


def test_calls_that_are_together_already_are_told_so_and_others_join_them(repo: bls.ModelRepository) -> None:
    source = f"""import asyncio
{HEAD}
class TritonPythonModel:
    async def one(self, name, x):
        request = pb_utils.InferenceRequest(model_name=name, requested_output_names=["OUT"], inputs=[x])
        return pb_utils.get_output_tensor_by_name(await request.async_exec(), "OUT").as_numpy()
    async def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], 'IN')
        a, b = await asyncio.gather(self.one("add", x), self.one("twice", x))
        c = await self.one("add2", x)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.concatenate([a, b, c]))])]
"""
    found = found_of(repo, source)
    assert "waits for `add` and `twice`, then for `add2`, which do not need each other" in found.sentence
    assert found.code is not None
    assert "equal answers on 2 runs" in found.code.proof.lower(), found.code.reason
