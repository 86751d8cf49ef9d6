"""`rate_limiter` of an instance group: the order of executions is that of a recorded tritonserver 2.51."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from functools import partial

import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from tests.engine import gates
from tests.engine.harness import Caller, assert_all_idle, idle, infer, ints, message, queued, row, until, value
from tests.engine.sources import caller_of, model

IO = """
input { name: "X" data_type: TYPE_INT32 dims: -1 }
output { name: "Y" data_type: TYPE_INT32 dims: -1 }
"""
# Reports that it runs, and waits for a gate of its own: `go on <model>`.
BODY = """
def initialize(self, args):
    self.name = args["model_instance_name"].partition("_")[0]

KIND execute(self, requests):
    gates.log.put(self.name if len(requests) == 1 else (self.name, len(requests)))
    gates.count(self.name)
    WAIT
    return [answer(1).__class__([pb.Tensor("Y", r.inputs()[0].as_numpy())]) for r in requests]
"""
SYNC = model(BODY.replace("KIND", "def").replace("WAIT", 'gates.pass_gate("go on " + self.name)'))
ASYNC = model(
    BODY.replace("KIND", "async def").replace(
        "WAIT", 'await asyncio.get_running_loop().run_in_executor(None, gates.pass_gate, "go on " + self.name)'
    )
)


def limited(resources: str = "", priority: int = 1, count: int = 1) -> str:
    """Return the configuration of a model whose instances need resources such as ``R:2 S:1``."""
    pairs = [text.split(":") for text in resources.split()]
    needed = " ".join(f'resources {{ name: "{name}" count: {number} }}' for name, number in pairs)
    group = f"count: {count} kind: KIND_CPU rate_limiter {{ {needed} priority: {priority} }}"
    return f"{IO} instance_group {{ {group} }}"


@pytest.fixture
def limiting() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository(rate_limit="execution_count") as repo:
        yield repo
        gates.open_all()
        assert_all_idle(repo)


def running(name: str, times: int = 1) -> None:
    until(lambda: gates.counts[name] >= times, f"{name} runs")


def start(repo: bls.ModelRepository, name: str) -> Caller:
    """Send a request; return once it runs, or is queued and an instance, if one is idle, is staged for it."""
    before = queued(repo, name) + gates.counts[name]
    caller = Caller(infer, repo, name, 1)
    until(lambda: queued(repo, name) + gates.counts[name] > before)
    instances = host_of(repo).ready(name).instances
    until(lambda: sum(i.holder is i.limited for i in instances) >= min(queued(repo, name), idle(repo, name)))
    return caller


@pytest.mark.parametrize("group", ["", " global: true"])
def test_without_rate_limit_instances_that_need_one_resource_run_side_by_side(
    repo: bls.ModelRepository, group: str
) -> None:
    gates.shared["meeting"] = threading.Barrier(2)
    config = limited("R:3", count=2).replace("count: 3", f"count: 3 {group}")
    repo.define("m", model("""
def execute(self, requests):
    gates.shared["meeting"].wait(gates.LIMIT)
    return [answer(number(r)) for r in requests]
"""), config)  # fmt: skip
    callers = [Caller(infer, repo, "m", n) for n in range(2)]
    assert [caller.result() for caller in callers] == [0, 1]


@pytest.mark.parametrize("source", [SYNC, ASYNC], ids=["sync", "async"])
def test_priorities_decide_whose_turn_it_is_as_on_the_server(limiting: bls.ModelRepository, source: str) -> None:
    for name, priority in (("a", 1), ("b", 2)):
        limiting.define(name, source, limited("R:1", priority))
    callers = [start(limiting, "b")]
    running("b")
    callers += [start(limiting, name) for _ in range(8) for name in "ab"] + [start(limiting, "a")]
    gates.open_gate("go on a")
    gates.open_gate("go on b")
    assert [caller.result() for caller in callers] == [1] * 18
    assert "".join(gates.logged()) == "baaaabaabaababbbbb"  # recorded


def test_one_execution_begins_when_another_ends_although_there_is_room_for_two(limiting: bls.ModelRepository) -> None:
    limiting.define("big", SYNC, limited("R:2"))
    limiting.define("small", SYNC, limited("R:1", count=2))
    callers = [start(limiting, name) for name in ("big", "small", "small")]
    gates.open_gate("go on big")
    running("small")
    assert callers[0].result() == 1
    assert limiting.statistics("small")["model_stats"][0]["execution_count"] == 0
    assert (gates.counts["small"], queued(limiting, "small")) == (1, 1)  # recorded
    gates.open_gate("go on small")
    assert [caller.result() for caller in callers] == [1, 1, 1]


def test_nothing_overtakes_the_first_staged_instance(limiting: bls.ModelRepository) -> None:
    limiting.define("big", SYNC, limited("R:2"))
    limiting.define("small", SYNC, limited("R:1"))
    limiting.define("free", SYNC, limited())
    gates.open_gate("go on free")
    assert infer(limiting, "free", 1) == 1  # so that it comes after `small`
    gates.logged()
    callers = [start(limiting, name) for name in ("big", "small", "free")]
    gates.open_gate("go on small")
    assert queued(limiting, "free") == 1  # although it needs nothing; recorded
    gates.open_gate("go on big")
    assert [caller.result() for caller in callers] == [1, 1, 1]
    assert gates.logged() == ["big", "small", "free"]


def test_requests_that_wait_for_resources_become_one_batch(limiting: bls.ModelRepository) -> None:
    limiting.define("big", SYNC, limited("R:2"))
    limiting.define("d", SYNC, f"max_batch_size: 8 dynamic_batching {{}} {limited('R:2')}")
    first = start(limiting, "big")
    callers = [Caller(limiting.infer, "d", row(1)) for _ in range(5)]
    until(lambda: queued(limiting, "d") == 5)
    gates.open_gate("go on d")
    gates.open_gate("go on big")
    assert [first.result(), *(int(c.result()["Y"].as_numpy()[0, 0]) for c in callers)] == [1] * 6
    assert gates.logged() == ["big", ("d", 5)]  # recorded


def test_a_sequence_and_a_decoupled_model_wait_for_resources(limiting: bls.ModelRepository) -> None:
    limiting.define("big", SYNC, limited("R:1"))
    limiting.define("s", SYNC, f"sequence_batching {{}} {limited('R:1')}")
    limiting.define("e", model("""
async def execute(self, requests):
    gates.log.put("e")
    for r in requests:
        sender = r.get_response_sender()
        sender.send(answer(number(r)), FINAL)
"""), f"model_transaction_policy {{ decoupled: true }} {limited('R:1')}")  # fmt: skip
    first = start(limiting, "big")
    callers = [Caller(partial(limiting.infer, "s", ints(1), correlation_id=7, flags=3))]
    callers.append(Caller(lambda: next(iter(limiting.stream("e", ints(1))))))
    until(lambda: queued(limiting, "s") + queued(limiting, "e") == 2)
    running("big")
    assert gates.logged() == ["big"]
    gates.open_gate("go on s")
    gates.open_gate("go on big")
    assert [first.result(), *(value(caller.result()) for caller in callers)] == [1, 1, 1]
    assert sorted(gates.logged()) == ["e", "s"]


def test_a_callee_that_needs_its_callers_resource_is_refused(limiting: bls.ModelRepository) -> None:
    limiting.define("callee", SYNC, limited("R:1"))
    limiting.define("caller", caller_of("callee"), limited("R:1"))
    text = message(limiting.infer("caller", ints(1)))
    assert "circular BLS: caller -> callee -> caller" in text
    assert "the rate limiter's resources that it needs are held by requests that wait for it" in text
    gates.open_gate("go on callee")
    assert infer(limiting, "callee", 1) == 1


def test_an_unloaded_model_gives_its_resources_back(limiting: bls.ModelRepository) -> None:
    limiting.define("big", SYNC, limited("R:2"))
    limiting.define("m", SYNC, limited("R:1", count=2))
    gates.open_gate("go on m")
    limiting.unload("big")  # so that there is one R
    limiting.define("m", SYNC, limited("R:1", count=3))
    assert infer(limiting, "m", 1) == 1
    limiting.set_config("m", limited("R:1", count=1))
    assert infer(limiting, "m", 1) == 1


def test_a_request_of_a_removed_instance_that_waits_for_resources_goes_to_another(
    limiting: bls.ModelRepository,
) -> None:
    groups = [
        'instance_group { name: "poor" kind: KIND_CPU rate_limiter { resources { name: "R" count: 1 } } }',
        'instance_group { name: "rich" kind: KIND_CPU rate_limiter { priority: 100 } }',
    ]
    limiting.define("holds", SYNC, limited("R:1"))
    limiting.define("b", SYNC, IO + "".join(groups))
    holds = start(limiting, "holds")
    running("holds")
    caller = start(limiting, "b")  # `poor` has the priority, and is the only one that looks for a batch
    assert gates.counts["rich"] == 0
    limiting.set_config("b", IO + groups[1])
    running("rich")
    gates.open_gate("go on rich")
    assert caller.result() == 1
    gates.open_gate("go on holds")
    assert holds.result() == 1


def test_the_log_has_the_counts_of_resources_after_each_change(
    limiting: bls.ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="bls_notebook"):
        limiting.define("m", SYNC, limited("R:4"))
        assert r"Device: 0\n\t\tResource: R\t Count: 4" in caplog.text
        limiting.set_config("m", limited("R:3"))
        until(lambda: r"Resource: R\t Count: 3" in caplog.text)


def test_the_load_of_an_instance_that_could_never_run_fails_in_tritons_words() -> None:
    with bls.ModelRepository(rate_limit="execution_count", rate_limit_resources=["R:1", "R:5", "S:4:3"]) as repo:
        for resources, count in (("R:2", 'R" is limited to 1'), ("S:1", 'S" is limited to 0')):
            with pytest.raises(bls.ConfigError, match="raise it in rate_limit_resources") as caught:
                repo.define("m", SYNC, limited(resources))
            assert caught.value.reason == (
                f"load failed for model 'm': version 1 is at UNAVAILABLE state: Invalid argument: Resource count for "
                f'"{count} which will prevent scheduling of one or more model instances, the minimum required count is '
                f"{resources[2:]};\n"
            )
        everywhere = limited("S:4").replace("count: 4", "count: 4 global: true")
        repo.define("m", SYNC, everywhere)
    with bls.ModelRepository(rate_limit="execution_count") as repo:
        repo.define("a", SYNC, limited("R:1"))
        with pytest.raises(bls.ConfigError, match="as both global and device-specific resource"):
            repo.define("m", SYNC, limited("R:1").replace("count: 1 }", "count: 1 global: true }"))


def test_wrong_options_of_the_rate_limiter_are_named() -> None:
    with pytest.raises(bls.BLSError, match="rate_limit: got 'on', expected 'off' or 'execution_count'"):
        bls.ModelRepository(rate_limit="on")
    for option in ("R", "R:x", "R:1:2:3"):
        with pytest.raises(bls.BLSError, match=f"rate_limit_resources: got '{option}', expected <name>:<count>"):
            bls.ModelRepository(rate_limit_resources=[option])


def test_a_rate_limiter_has_no_effect_unless_rates_are_limited(
    repo: bls.ModelRepository, limiting: bls.ModelRepository
) -> None:
    for where, expected in ((repo, True), (limiting, False)):
        record = where.define("m", SYNC, limited("R:1"))
        assert any("rate_limiter has no effect here" in warning for warning in record.warnings) is expected
        assert ("field-rate-limiter" in {f.code for f in bls.check(repo=where).findings}) is expected


def test_a_cancelled_request_runs_when_its_resources_are_free(limiting: bls.ModelRepository) -> None:
    limiting.define("big", SYNC, limited("R:1"))
    limiting.define("m", SYNC, limited("R:1"))
    first = start(limiting, "big")

    async def cancelled() -> None:
        task = asyncio.create_task(limiting.infer_async("m", ints(1)))
        await asyncio.to_thread(until, lambda: queued(limiting, "m") == 1)
        task.cancel()
        await asyncio.wait([task])
        for name in ("go on m", "go on big"):
            gates.open_gate(name)

    asyncio.run(cancelled())
    assert first.result() == 1
    running("m")


def test_the_log_reports_a_long_wait_for_resources(
    limiting: bls.ModelRepository, reports: pytest.LogCaptureFixture
) -> None:
    limiting.define("m", SYNC, limited("R:1"))
    limiting.define("lost", model("""
def execute(self, requests):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(ask("m").exec()))
    thread.start()
    thread.join()
    return [answer(value_of(answers[0]))]
"""), limited("R:1"))  # fmt: skip
    caller = Caller(limiting.infer, "lost", ints(1))
    until(lambda: "m_0_0 waits for the rate limiter" in reports.text)
    limiting.close(0.0)
    assert "closed before the request was answered" in message(caller.result())
