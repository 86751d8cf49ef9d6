"""`compare` names the true cause, records real models, and leaves everything as it was."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.extending import host_of
from bls_notebook.profiling import Comparison
from bls_notebook.profiling import sync_vs_async as measuring
from bls_notebook.profiling.analysis.verdict import CAUSES
from bls_notebook.profiling.records.verdicts import Verdict
from bls_notebook.profiling.resource_time import OtherPrograms, ProcessorUse
from bls_notebook.repository.variant import with_instances
from tests.engine import gates
from tests.profiling.simulated import Model, simulate_times
from tests.profiling.workloads import CONFIG, HEAD, WORKLOADS, Workload, define
from tests.waiting import LIMIT

MS = 1_000_000
LIVE = ("batcher", "exec in", "blocking", "async, one", "a lock", "lock of", "response")


def named(name: str) -> Workload:
    (found,) = (w for w in WORKLOADS if w.name == name)
    return found


def count_of(repo: bls.ModelRepository, model: str) -> int:
    return sum(group.count for group in repo.config(model).instance_group)


@pytest.mark.slow
@pytest.mark.parametrize("workload", [w for w in WORKLOADS if w.name.startswith(LIVE)], ids=lambda w: w.name)
def test_real_models_are_recorded_as_they_are(workload: Workload) -> None:
    with bls.ModelRepository() as repo:
        define(repo, workload)
        found = bls.compare(workload.model, workload.inputs, n=6, repeat=1, repo=repo)
    assert found.verdict.cause in CAUSES
    assert (found.verdict.cause == "cached") == (workload.cause == "cached")
    assert Comparison.from_dict(found.to_dict()) == found
    for run in found.sequential, found.gathered:
        asked = [span for span in run.spans if span.model == workload.model]
        (model,) = (model for model in run.models if model.name == workload.model)
        assert len(asked) == 6
        assert all(span.cached == (workload.cause == "cached") for span in asked)
        assert model.is_async == ("async def" in workload.models[workload.model][0])
        assert model.decoupled == ("decoupled" in workload.models[workload.model][1])
        assert {s.kind for s in run.spans if s.model == "callee"} <= {"sync"}
        assert all(span.instance or span.cached for span in run.spans)


@pytest.mark.parametrize(
    ("error", "seconds", "repeat", "rounds"),
    [(0.0, 1e9, None, 5), (1.0, 1e9, None, 25), (1.0, 0.0, None, 5), (1.0, 1e9, 2, 2), (0.0, 0.0, 7, 7)],
)
def test_runs_repeat_until_the_speedup_is_sure(
    monkeypatch: pytest.MonkeyPatch, error: float, seconds: float, repeat: int | None, rounds: int
) -> None:
    monkeypatch.setattr(measuring, "relative_error", lambda turns: error)
    monkeypatch.setattr(measuring, "_LONGEST", seconds)
    with bls.ModelRepository() as repo:
        workload = named("little work")
        define(repo, workload)
        found = bls.compare(workload.model, workload.inputs, n=2, repeat=repeat, repo=repo)
    assert found.repeat == rounds
    assert found.settings[0].sequential_quartiles.count == found.settings[0].gathered_quartiles.count == rounds


@pytest.mark.slow
def test_instance_counts_are_run_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_times(monkeypatch, {"sleeper": Model([30 * MS])})
    with bls.ModelRepository() as repo:
        define(repo, named("sleeps, 1 instance"))
        found = bls.compare("sleeper", {"IN": [1.0]}, n=4, repeat=1, instances=(2, 1), verify=True, repo=repo)
        assert count_of(repo, "sleeper") == 1
        assert repo.infer("sleeper", {"IN": [1.0]}).error is None
    assert [s.count for s in found.settings] == [0, 1, 2]
    assert [len(s.gathered.models[0].instances) for s in found.settings] == [1, 1, 2]
    assert found.verification is not None
    assert found.verification.models == ("sleeper",)
    assert found.verification.count == found.verdict.count == 4
    assert found.verification.measured == pytest.approx(found.verdict.predicted, rel=0.01)


def test_a_verified_speedup_is_relative_to_todays_exec(monkeypatch: pytest.MonkeyPatch) -> None:
    # With more instances of the callee, exec is faster, too.
    models = {"callee": Model([20 * MS], instances=2), "caller": Model([("callee",) * 4], instances=4)}
    simulate_times(monkeypatch, models)
    with bls.ModelRepository() as repo:
        for name, model in models.items():
            repo.define(name, HEAD + ANSWERS, CONFIG + f"instance_group [{{ count: {model.instances} }}]")
        found = bls.compare("caller", {"IN": [1.0]}, repeat=1, instances=(4,), verify=True, repo=repo)
    assert found.verification is not None
    assert found.verification.measured == pytest.approx(found.verification.predicted, rel=0.01)
    assert found.verification.measured == pytest.approx(
        found.sequential.wall / found.settings[1].gathered.wall, rel=0.01
    )


ANSWERS = """
class TritonPythonModel:
    def execute(self, requests):
        return answer(requests)
"""
COUNTING = """
class TritonPythonModel:
    def initialize(self, args):
        self.asked = 0
        if args["model_instance_name"].endswith("_3"):
            raise ValueError("no memory for a fourth")

    def execute(self, requests):
        self.asked += 1
        time.sleep(0.01)
        out = pb_utils.Tensor("OUT", np.array([self.asked], np.float32))
        return [pb_utils.InferenceResponse([out]) for request in requests]
"""
SLOW_STREAM = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for _ in range(2):
                sender.send(answer([request])[0])
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def asked(repo: bls.ModelRepository, model: str) -> float:
    return float(repo.infer(model, {"IN": [1.0]})["OUT"].as_numpy()[0])


def test_the_very_instances_come_back_with_what_they_remember() -> None:
    with bls.ModelRepository() as repo:
        define(repo, Workload("", "", {"counting": (COUNTING, "")}))
        before = asked(repo, "counting")
        with with_instances(repo, ["counting"], 2):
            assert asked(repo, "counting") == 1
            other = host_of(repo).find("counting")
        assert asked(repo, "counting") == before + 1
        assert other is not None
        assert other.closed.wait(LIMIT)


def test_a_verification_that_cannot_be_run_is_told_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        measuring, "verdict", lambda *_: Verdict("queue", "", models=("counting",), count=4, predicted=4.0)
    )
    with bls.ModelRepository() as repo:
        define(repo, Workload("", "", {"counting": (COUNTING, "")}))
        found = bls.compare("counting", {"IN": [1.0]}, n=6, repeat=1, verify=True, repo=repo)
        assert found.verdict.cause == "queue"
        assert found.verification is not None
        assert (found.verification.count, found.verification.measured) == (4, 0.0)
        assert "no memory for a fourth" in found.verification.error
        assert count_of(repo, "counting") == 1
        assert asked(repo, "counting") > 12
        with pytest.raises(bls.BLSError, match="no memory for a fourth"):
            bls.compare("counting", {"IN": [1.0]}, n=2, repeat=1, instances=[4], repo=repo)
        assert count_of(repo, "counting") == 1


def test_a_repository_that_loads_its_models_itself(tmp_path: Path) -> None:
    folder = tmp_path / "counting" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(HEAD + COUNTING)
    (folder.parent / "config.pbtxt").write_text(CONFIG)
    with bls.ModelRepository(tmp_path, control_mode="none") as repo:
        (folder / "model.py").write_text("a mistake made since")
        with pytest.raises(bls.BLSError), with_instances(repo, ["counting"], 2):
            pass
        assert asked(repo, "counting") == 1
        (folder / "model.py").write_text(HEAD + COUNTING)
        with with_instances(repo, ["counting"], 2):
            assert count_of(repo, "counting") == 2
        assert asked(repo, "counting") == 2


def test_models_loaded_during_a_comparison_stay() -> None:
    with bls.ModelRepository() as repo:
        define(repo, Workload("", "", {"counting": (COUNTING, "")}))
        old = host_of(repo).find("counting")
        with with_instances(repo, ["counting"], 2):
            define(repo, Workload("", "", {"counting": (COUNTING, "instance_group [{ count: 3 }]")}))
        assert count_of(repo, "counting") == 3
        assert old is not None
        assert old.closed.wait(LIMIT)


def test_a_decoupled_model_is_streamed_also_with_other_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "verdict", lambda *_: Verdict("queue", "", models=("slow",), count=4, predicted=4.0))
    config = "model_transaction_policy { decoupled: true }"
    with bls.ModelRepository() as repo:
        define(repo, Workload("", "", {"slow": (SLOW_STREAM, config)}))
        found = bls.compare("slow", [{"IN": [1.0]}, {"IN": [2.0]}], n=6, repeat=1, verify=True, repo=repo)
        assert count_of(repo, "slow") == 1
    assert found.verification is not None
    assert found.verification.error == ""
    assert {(s.kind, s.responses) for s in found.gathered.spans} == {("stream", 2)}


def test_bad_arguments_are_told_in_one_line() -> None:
    with bls.ModelRepository() as repo:
        define(repo, named("little work"))
        for arguments, words in (
            ({"n": 0}, "n: got 0"), ({"repeat": True}, "repeat: got True"),
            ({"instances": (0,)}, "instances: got (0,)"), ({"instances": 2}, "instances: got 2"),
            ({"inputs": 3}, "inputs: got int"), ({"inputs": []}, "inputs: got list"),
            ({"model": "nobody"}, "'nobody' is not loaded"),
        ):  # fmt: skip
            given = {"model": "little", "inputs": {"IN": [1.0]}, "repo": repo, **arguments}
            with pytest.raises(bls.BLSError) as caught:
                bls.compare(**given)  # type: ignore[arg-type]
            assert words in str(caught.value)
            assert "\n" not in str(caught.value)


def test_failing_requests_are_the_verdict() -> None:
    with bls.ModelRepository() as repo:
        define(repo, named("little work"))
        found = bls.compare("little", {"WRONG": [1.0]}, n=2, repo=repo)
    assert found.verdict.cause == "failed"
    assert "2 of 2 requests to `little` failed" in found.verdict.sentence
    # Nothing is compared: there is one run of each way, and no speed-up.
    assert found.repeat == found.settings[0].sequential_quartiles.count == 1
    assert (found.speedup, found.verdict.speedup, found.settings[0].measured.failed) == (0.0, 0.0, 4)
    shown = render(found)
    assert "not compared" in shown.text
    assert "failed by exec 2 of 2" in shown.text
    assert "speed-up" not in shown.text
    assert "speed-up" not in shown.html


FAILS = """
class TritonPythonModel:
    seen = 0
    def execute(self, requests):
        TritonPythonModel.seen += 1
        if self.seen > 30 or pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()[0] == 2:
            raise ValueError("worn out")
        return answer(requests)
"""


@pytest.mark.parametrize(("inputs", "options"), [([1.0], {"repeat": 1000}), ([1.0, 2.0, 3.0], {"verify": True})])
def test_a_model_that_fails_at_times_is_compared_no_further(inputs: list[float], options: Any) -> None:
    with bls.ModelRepository() as repo:
        define(repo, Workload("", "", {"tired": (FAILS, "")}))
        each = [{"IN": [value]} for value in inputs]
        found = bls.compare("tired", each, n=max(2, len(each)), instances=[2], repo=repo, **{"repeat": 1, **options})
        assert count_of(repo, "tired") == 1
    assert (found.verdict.cause, found.repeat, found.speedup, found.verification) == ("failed", 1, 0.0, None)
    assert "requests to `tired` failed" in found.verdict.sentence
    assert "worn out" in found.verdict.sentence


def test_threads_that_wait_for_each_other_are_no_reason_for_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessorUse, "waited", lambda self: 10 * self.used() + 10**9)
    with bls.ModelRepository() as repo:
        define(repo, named("sleeps, 1 instance"))
        for share, told in (0.0, False), (1.0, True):
            monkeypatch.setattr(OtherPrograms, "share", lambda self, share=share: share)
            found = bls.compare("sleeper", {"IN": [1.0]}, n=2, repeat=1, repo=repo)
            assert ("Other programs" in found.verdict.note or found.verdict.cause == "busy") == told


ONES = {"IN": [1.0]}


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


def test_a_repository_that_limits_rates_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with bls.ModelRepository(rate_limit="execution_count") as repo:
        repo.define("m", "class TritonPythonModel:\n    def execute(self, requests):\n        return []", {})
        measuring.Workload(repo, "m", [])
    assert "m: the repository limits rates, and verdicts and predictions do not know" in caplog.text
