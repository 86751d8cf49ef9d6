"""`compare` on real models: it names the true cause, and leaves everything as it was."""

from __future__ import annotations

import pytest

import bls_notebook as bls
from bls_notebook.repository.instances import with_instances
from tests.repository.workloads import WORKLOADS, Workload, define

# Those whose truth does not hang on what else the machine is doing now.
_CERTAIN = ("sleeps", "batcher", "exec in", "blocking", "async, one")


def named(name: str) -> Workload:
    (found,) = (w for w in WORKLOADS if w.name == name)
    return found


def count_of(repo: bls.ModelRepository, model: str) -> int:
    return sum(group.count for group in repo.config(model).instance_group)


@pytest.mark.parametrize(
    "workload", [w for w in WORKLOADS if w.name.startswith(_CERTAIN)], ids=lambda w: w.name
)
def test_the_true_cause_is_named(workload: Workload) -> None:
    with bls.ModelRepository() as repo:
        define(repo, workload)
        found = bls.compare(workload.model, workload.inputs, n=6, repeat=1, repo=repo)
    assert found.verdict.cause in workload.cause.split(), found.verdict.sentence
    assert bls.Comparison.from_dict(found.to_dict()) == found
    assert len(found.sequential.spans) == len(found.gathered.spans) >= 6


def test_instance_counts_are_run_and_put_back() -> None:
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


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_counts_are_put_back_whatever_happens(error: type[BaseException]) -> None:
    with bls.ModelRepository() as repo:
        define(repo, named("exec in async execute"))

        def fail() -> None:
            with with_instances(repo, ["callee", "caller"], 3):
                assert count_of(repo, "callee") == count_of(repo, "caller") == 3
                raise error

        with pytest.raises(error):
            fail()
        assert (count_of(repo, "callee"), count_of(repo, "caller")) == (24, 1)


def test_a_decoupled_model_is_streamed() -> None:
    with bls.ModelRepository() as repo:
        define(repo, named("blocking coroutine"))
        found = bls.compare("blocks", [{"IN": [1.0]}, {"IN": [2.0]}], n=2, repeat=1, repo=repo)
    assert {s.kind for s in found.gathered.spans} == {"stream"}
    assert all(s.responses == 1 for s in found.gathered.spans)


def test_bad_arguments_are_told_in_one_line() -> None:
    with bls.ModelRepository() as repo:
        define(repo, named("little work"))
        for arguments, words in (
            ({"n": 0}, "n: got 0"),
            ({"repeat": True}, "repeat: got True"),
            ({"instances": (0,)}, "instances: got (0,)"),
            ({"instances": 2}, "instances: got 2"),
            ({"inputs": 3}, "inputs: got int"),
            ({"inputs": []}, "inputs: got list"),
            ({"model": "nobody"}, "'nobody' is not loaded"),
        ):
            given = {"model": "little", "inputs": {"IN": [1.0]}, "repo": repo, **arguments}
            with pytest.raises(bls.BLSError) as caught:
                bls.compare(**given)  # type: ignore[arg-type]
            assert words in str(caught.value)
            assert "\n" not in str(caught.value)


def test_failing_requests_are_the_verdict() -> None:
    with bls.ModelRepository() as repo:
        define(repo, named("little work"))
        found = bls.compare("little", {"WRONG": [1.0]}, n=2, repeat=1, repo=repo)
    assert found.verdict.cause == "failed"
    assert "2 of 2 requests to `little` failed" in found.verdict.sentence
