"""`compare` where something else is going on: another comparison, models that fail, files that have gone."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.repository.substitution.variant import with_instances
from tests.engine import gates
from tests.profiling.workloads import CONFIG, HEAD, Workload, define

ONES = {"IN": [1.0]}
ANSWERS = """
class TritonPythonModel:
    def execute(self, requests):
        return answer(requests)
"""
DISTURBED = """
from tests.engine import gates

class TritonPythonModel:
    def execute(self, requests):
        gates.shared["ask"]()  # somebody else asks for another model meanwhile
        tensor = pb_utils.get_input_tensor_by_name(requests[0], "IN")
        request = pb_utils.InferenceRequest(
            model_name="answers", inputs=[tensor], requested_output_names=["OUT"]
        )
        assert not request.exec().has_error()
        return answer(requests)
"""
COMPARES = """
import bls_notebook as bls
from tests.engine import gates

class TritonPythonModel:
    def execute(self, requests):
        try:
            bls.compare("answers", {"IN": [1.0]}, n=1, repeat=1, repo=gates.shared["repo"])
        except bls.BLSError as error:
            raise pb_utils.TritonModelException(str(error)) from None
        return answer(requests)
"""
ASKS_NOBODY = """
class TritonPythonModel:
    async def execute(self, requests):
        tensor = pb_utils.get_input_tensor_by_name(requests[0], "IN")
        request = pb_utils.InferenceRequest(
            model_name="nobody", inputs=[tensor], requested_output_names=["OUT"]
        )
        assert request.exec().has_error()
        return answer(requests)
"""
TWO_FAIL = """
class TritonPythonModel:
    def initialize(self, args):
        self.config = args["model_config"]

    def execute(self, requests):
        if '"count":2' in self.config.replace(" ", ""):
            raise ValueError("no memory for two")
        return answer(requests)
"""
ENSEMBLE = f"""
platform: "ensemble"
{CONFIG}
ensemble_scheduling {{ step [ {{ model_name: "answers" model_version: -1
  input_map {{ key: "IN" value: "IN" }} output_map {{ key: "OUT" value: "OUT" }} }} ] }}
"""


def defined(repo: bls.ModelRepository, name: str, source: str) -> None:
    define(repo, Workload("", "", {name: (source, "")}))


def count_of(repo: bls.ModelRepository, model: str) -> int:
    return sum(group.count for group in repo.config(model).instance_group)


def test_one_comparison_at_a_time_and_then_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with bls.ModelRepository() as repo:
        defined(repo, "answers", ANSWERS)
        defined(repo, "compares", COMPARES)
        monkeypatch.setitem(gates.shared, "repo", repo)
        found = bls.compare("compares", ONES, n=2, repeat=1, repo=repo)
        assert "another comparison is running" in found.sequential.spans[0].error
        assert {s.model for s in found.gathered.spans} == {"compares"}
        assert bls.compare("answers", ONES, n=2, repeat=1, repo=repo).verdict.cause != "failed"
        with pytest.raises(bls.BLSError, match="IN"):
            bls.compare("answers", {"IN": object()}, n=2, repeat=1, repo=repo)
        assert bls.compare("answers", ONES, n=2, repeat=1, repo=repo).verdict.cause != "failed"


def test_requests_of_others_are_in_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    with bls.ModelRepository() as repo, ThreadPoolExecutor(1) as others:
        defined(repo, "answers", ANSWERS)
        defined(repo, "other", ANSWERS)
        defined(repo, "disturbed", DISTURBED)
        asked: list[bls.Response] = []

        def ask() -> None:
            asked.append(others.submit(repo.infer, "other", ONES).result())

        monkeypatch.setitem(gates.shared, "ask", ask)
        found = bls.compare("disturbed", ONES, n=3, repeat=1, repo=repo)
        with bls.profile() as everything:
            bls.compare("disturbed", ONES, n=1, repeat=1, repo=repo)
    assert len(asked) > 6
    assert found.settings[0].measured.requests == 3
    for run in (found.sequential, found.gathered):
        assert sorted(s.model for s in run.spans) == ["answers"] * 3 + ["disturbed"] * 3
        numbers = {s.id: s.model for s in run.spans}
        assert [numbers.get(s.parent) for s in run.spans if s.model == "answers"] == ["disturbed"] * 3
        assert [s.parent for s in run.spans if s.model == "disturbed"] == [0] * 3
    assert {s.model for s in everything.record.spans if not s.parent} == {"disturbed", "other"}


def test_a_model_that_asks_for_one_that_is_not_there() -> None:
    with bls.ModelRepository() as repo:
        defined(repo, "asks", ASKS_NOBODY)
        found = bls.compare("asks", ONES, n=2, repeat=1, repo=repo)
    assert found.verdict.cause != "failed"
    assert {s.model for s in found.sequential.spans} == {"asks", "nobody"}
    assert found.settings[0].problem == ""  # it got along


def test_runs_that_fail_with_other_counts_are_not_taken_for_quick() -> None:
    with bls.ModelRepository() as repo:
        defined(repo, "fails", TWO_FAIL)
        found = bls.compare("fails", ONES, n=4, repeat=1, instances=[2], repo=repo)
    assert found.settings[0].problem == ""
    assert "no memory for two" in found.settings[1].problem
    shown = render(found)
    (row,) = (line for line in shown.text.splitlines() if line.split()[:1] == ["2"])
    assert row.split()[-1] == "failed"


def test_an_ensemble_is_measured_with_more_instances_of_its_steps() -> None:
    with bls.ModelRepository() as repo:
        defined(repo, "answers", ANSWERS)
        repo.define("e", "", ENSEMBLE)
        found = bls.compare("e", ONES, n=2, repeat=1, instances=[3], repo=repo)
        assert count_of(repo, "answers") == 1
    (seen,) = (m for m in found.settings[1].gathered.models if m.name == "answers")
    assert len(seen.instances) == 3


def test_a_model_whose_files_have_gone(tmp_path: Path) -> None:
    folder = tmp_path / "answers" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(HEAD + ANSWERS)
    (folder.parent / "config.pbtxt").write_text(CONFIG)
    with bls.ModelRepository(tmp_path) as repo:
        repo.load("answers")
        shutil.rmtree(folder.parent)
        with pytest.raises(bls.BLSError, match="'answers': no version to load"), with_instances(repo, ["answers"], 2):
            pass
        assert repo.infer("answers", ONES).error is None
