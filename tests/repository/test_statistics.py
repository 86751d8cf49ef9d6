"""Statistics in Triton's shape, and its metrics."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.engine.core.model_counters import FOLD_AT, ModelCounters
from tests.engine import gates
from tests.engine.harness import until
from tests.repository.models import ECHO, ECHOES, HEAD, write

FAILS = f"""{HEAD}

class TritonPythonModel:
    def execute(self, requests):
        if requests[0].inputs()[0].as_numpy()[0] > 0:
            raise ValueError("no good")
        return [pb_utils.InferenceResponse([], pb_utils.TritonError("sorry")) for _ in requests]
"""
ONE = {"IN": np.ones(1, np.float32)}
ZERO = {"IN": np.zeros(1, np.float32)}


def row(repo: bls.ModelRepository, name: str) -> dict[str, Any]:
    return repo.statistics(name)["model_stats"][0]  # type: ignore[no-any-return]


def counts(found: dict[str, Any]) -> dict[str, int]:
    return {key: value["count"] for key, value in found["inference_stats"].items()}


@pytest.mark.parametrize("how", ["sync", "async"])
def test_successes(repo: bls.ModelRepository, how: str) -> None:
    repo.define("m", ECHOES, ECHO)
    assert row(repo, "m")["last_inference"] == 0

    async def three() -> None:
        await asyncio.gather(*[repo.infer_async("m", ONE) for _ in range(3)])

    if how == "sync":
        for _ in range(3):
            repo.infer("m", ONE)
    else:
        asyncio.run(three())
        model = repo._server.find("m")
        repo.unload("m")  # it is counted after the last answer is out
        assert model is not None
        repo._server.replace("m", {1: model})
    found = row(repo, "m")
    assert (found["name"], found["version"]) == ("m", "1")
    assert (found["inference_count"], found["execution_count"]) == (3, 3)
    assert counts(found) == {
        "success": 3, "fail": 0, "queue": 3, "compute_input": 3, "compute_infer": 3, "compute_output": 3,
        "cache_hit": 0, "cache_miss": 0,
    }  # fmt: skip
    times = {key: value["ns"] for key, value in found["inference_stats"].items()}
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    assert min(times[p] for p in parts) >= 0 < times["compute_infer"]
    assert times["success"] == sum(times[p] for p in parts)
    (batch,) = found["batch_stats"]
    assert (batch["batch_size"], batch["compute_infer"]) == (1, {"count": 3, "ns": times["compute_infer"]})
    assert found["last_inference"] > 1_600_000_000_000


def test_failures_and_batches(repo: bls.ModelRepository) -> None:
    """As on Triton: who raised has failed, who answers with an error has not; what was refused never ran."""
    repo.define("m", FAILS, ECHO)
    repo.infer("m", ONE)
    repo.infer("m", ZERO)
    repo.infer("m", {"IN": np.ones(1, np.int32)})
    found = row(repo, "m")
    assert (found["inference_count"], found["execution_count"]) == (1, 2)
    assert counts(found)["fail"] == counts(found)["success"] == 1
    assert found["inference_stats"]["fail"]["ns"] > 0
    json.dumps(found)
    repo.reload("m")
    assert counts(row(repo, "m"))["success"] == 0
    repo.define("m", ECHOES, "max_batch_size: 4\n" + ECHO.replace("-1", "2"))
    for rows in (1, 1, 3):
        repo.infer("m", {"IN": np.zeros((rows, 2), np.float32)})
    found = row(repo, "m")
    assert (found["inference_count"], found["execution_count"]) == (5, 3)
    assert [(b["batch_size"], b["compute_infer"]["count"]) for b in found["batch_stats"]] == [(1, 2), (3, 1)]


ENSEMBLE = """
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [ { model_name: "m" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } ] }
"""


def test_ensembles_count_beside_their_steps(repo: bls.ModelRepository) -> None:
    repo.define("m", ECHOES, ECHO)
    repo.define("e", "", ENSEMBLE)
    for _ in range(2):
        repo.infer("e", ONE)
    for name in ("m", "e"):
        found = row(repo, name)
        assert (found["inference_count"], found["execution_count"], counts(found)["success"]) == (2, 2, 2)
    repo.define("m", FAILS, ECHO)
    repo.infer("e", ONE)
    assert counts(row(repo, "e")) == dict.fromkeys(counts(row(repo, "e")), 0) | {"fail": 2}  # recorded
    assert row(repo, "e")["execution_count"] == 0


def test_metrics_have_tritons_names_and_labels(repo: bls.ModelRepository) -> None:
    repo.define("m", ECHOES, ECHO + "response_cache { enable: true }")
    repo.define("bad", FAILS, ECHO)
    for _ in range(2):
        repo.infer("m", ONE)
    repo.infer("bad", ONE)
    lines = repo.metrics.text().splitlines()
    for line in (
        "# TYPE nv_inference_request_success counter",
        "# HELP nv_inference_request_success Number of successful inference requests, all batch sizes",
        'nv_inference_request_success{model="m",version="1"} 2.0',
        'nv_inference_count{model="m",version="1"} 1.0',
        'nv_inference_exec_count{model="m",version="1"} 1.0',
        'nv_inference_request_failure{model="bad",reason="BACKEND",version="1"} 1.0',
        'nv_inference_request_failure{model="m",reason="OTHER",version="1"} 0.0',
        'nv_inference_pending_request_count{model="m",version="1"} 0.0',
        'nv_cache_num_hits_per_model{model="m",version="1"} 1.0',
        'nv_cache_num_misses_per_model{model="m",version="1"} 1.0',
        "nv_cache_num_entries 1.0",
    ):
        assert line in lines
    assert not any(line.startswith('nv_cache_num_hits_per_model{model="bad"') for line in lines)
    assert any(re.fullmatch(r'nv_inference_compute_infer_duration_us{model="m".*} [0-9.]+', line) for line in lines)


def test_each_version_has_its_own(disk: bls.ModelRepository) -> None:
    for version in (1, 2):
        write(disk.paths[0], "m", ECHOES, "version_policy { all {} }\n" + ECHO, version)
    disk.load("m")
    disk.infer("m", ONE, version=1)
    rows = disk.statistics("m")["model_stats"]
    assert [(r["version"], r["inference_count"]) for r in rows] == [("1", 1), ("2", 0)]


def test_nothing_is_lost_however_many_there_are(repo: bls.ModelRepository) -> None:
    repo.define("m", ECHOES, ECHO)
    for number in range(1, 2 * FOLD_AT + 3):
        repo.infer("m", ONE)
        if number % 100 == 0 or number >= 2 * FOLD_AT - 1:
            found = row(repo, "m")
            assert found["inference_count"] == number
            times = {key: value["ns"] for key, value in found["inference_stats"].items()}
            assert 0 < times["compute_infer"] < times["success"]


HELD = f"""{HEAD}
from tests.engine import gates

class TritonPythonModel:
    def execute(self, requests):
        gates.open_gate("begun")
        gates.pass_gate("go")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""
REJECTS = """
max_batch_size: 1
dynamic_batching {
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 1 allow_timeout_override: true }
}
"""


NO_PREFETCH = "max_batch_size: 1\ndynamic_batching { default_queue_policy { max_queue_size: 9 } }\n"


@pytest.mark.parametrize("config", ["", NO_PREFETCH])
def test_cancelled_and_rejected_in_the_queue(repo: bls.ModelRepository, config: str) -> None:
    repo.define("m", HELD, config + ECHO)
    shape = (1, 1) if config else (1,)

    async def call() -> None:
        running = asyncio.create_task(repo.infer_async("m", {"IN": np.ones(shape, np.float32)}))
        await asyncio.to_thread(gates.pass_gate, "begun")
        waiting = asyncio.create_task(repo.infer_async("m", {"IN": np.ones(shape, np.float32)}))
        model = repo._server.find("m")
        assert model is not None
        await asyncio.to_thread(until, lambda: model.scheduler.pending == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gates.open_gate("go")
        await running

    asyncio.run(call())
    (record,) = repo.statistics_records("m")
    dropped = int(bool(config))  # the default scheduler serves a cancelled request
    assert (record.failures, counts(row(repo, "m"))["fail"]) == ((("CANCELED", 1),) * dropped, dropped)
    repo.define("m", HELD, REJECTS + ECHO)  # a timeout of one microsecond expires in any case, as on the real server
    assert repo.infer("m", {"IN": np.ones((1, 1), np.float32)}).error is not None
    (record,) = repo.statistics_records("m")
    assert record.failures == (("REJECTED", 1),)
    assert 'nv_inference_request_failure{model="m",reason="REJECTED",version="1"} 1.0' in repo.metrics.text()


def test_metrics_config_chooses_counters_summaries_and_quantiles() -> None:
    settings = {"summary_latencies": "true", "counter_latencies": "false", "summary_quantiles": "0.5:0.05,0.9:0.01"}
    name = "nv_inference_request_summary_us"
    with bls.ModelRepository(metrics_config=settings) as repo:
        repo.define("m", ECHOES, ECHO)
        assert f'{name}{{model="m",quantile="0.9",version="1"}} NaN' in repo.metrics.text()
        for _ in range(3):
            assert repo.infer("m", ONE).error is None
        text = repo.metrics.text()
        model = repo._server.find("m")
        assert model is not None
        whole = sorted(durations[0] // 1000 for durations in model.statistics.latest_durations(0))
    assert "nv_inference_request_duration_us" not in text
    assert f"# TYPE {name} summary" in text
    assert f'{name}_count{{model="m",version="1"}} 3.0' in text
    for quantile, value in (("0.5", whole[0]), ("0.9", whole[1])):
        assert f'{name}{{model="m",quantile="{quantile}",version="1"}} {float(value)}' in text
    for part in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert f'nv_inference_{part}_summary_us_count{{model="m",version="1"}} 3.0' in text
    with pytest.raises(bls.BLSError, match=r"summary_quantiles: got '0\.5'"):
        bls.ModelRepository(metrics_config={"summary_quantiles": "0.5"})


def test_a_custom_configuration_is_used_where_a_model_has_it(tmp_path: Path) -> None:
    for name in ("custom", "plain"):
        write(tmp_path, name, ECHOES, f"max_batch_size: 8\n{ECHO}")
    (tmp_path / "custom/configs").mkdir()
    (tmp_path / "custom/configs/h100.pbtxt").write_text(f"max_batch_size: 3\n{ECHO}")
    with bls.ModelRepository(tmp_path, model_config_name="h100") as repo:
        for name, size in (("custom", 3), ("plain", 8)):
            repo.load(name)
            assert repo.config(name).max_batch_size == size
    with pytest.raises(bls.BLSError, match=r"model_config_name: got '\.\./x'"):
        bls.ModelRepository(model_config_name="../x")


CALLS = f"""{HEAD}

class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request.inputs()[0].as_numpy()) for request in requests]

    def one(self, x):
        request = pb_utils.InferenceRequest(
            model_name="m", requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", x)])
        answer = request.exec()
        if answer.has_error():
            return pb_utils.InferenceResponse(error=answer.error())
        return pb_utils.InferenceResponse(answer.output_tensors())
"""


@pytest.mark.parametrize("tool", ["drill", "overlap", "compare"])
def test_requests_of_tools_are_not_counted(repo: bls.ModelRepository, tool: str) -> None:
    repo.define("m", ECHOES, ECHO)
    repo.define("calls", CALLS, ECHO)
    repo.infer("calls", ONE)

    def seen() -> list[Any]:
        rows = [{**row(repo, name), "last_inference": 0} for name in ("m", "calls")]
        problems = [found for found in bls.check(repo=repo).findings if found.code.startswith("seen-")]
        return [rows, repo.last_failure, problems]

    before = seen()
    options: dict[str, Any] = {"n": 2, "repeat": 1} if tool == "compare" else {}
    if tool == "drill":
        options["faults"] = ["error", "raises", "data-type", "shape"]
    getattr(bls, tool)("calls", ONE, repo=repo, **options)
    assert seen() == before


COUNTS_DOWN = f"""{HEAD}

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for value in range(2):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros((1, 1), np.float32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
FIRST = "nv_inference_first_response_histogram_ms"
CONTROL = "metric_control {{ metric_identifier {{ family: '{}' }} histogram_options {{ {} }} }}"


def test_a_histogram_of_first_responses_has_the_buckets_of_model_metrics() -> None:
    with bls.ModelRepository(metrics_config={"histogram_latencies": "true"}) as repo:
        repo.define("m", ECHOES, f"{ECHO} response_cache {{ enable: true }}")
        repo.define("d", COUNTS_DOWN, f"{ECHO} model_transaction_policy {{ decoupled: true }}")
        known, unknown = CONTROL.format(FIRST, "buckets: [1, 2.5]"), CONTROL.format("nv_x", "buckets: 1")
        assert repo.define("e", ECHOES, f"{ECHO} model_metrics {{ {known} }}").warnings == ()
        (warning,) = repo.define("e", ECHOES, f"{ECHO} model_metrics {{ {known} {unknown} }}").warnings
        assert f"The only histogram is {FIRST}, not 'nv_x'." in warning
        with pytest.raises(bls.ConfigError, match=r"got buckets \[2\.0, 1\.0\], expected ascending ones"):
            repo.define("x", ECHOES, f"{ECHO} model_metrics {{ {CONTROL.format(FIRST, 'buckets: [2, 1]')} }}")
        for _ in range(3):
            assert repo.infer("m", ONE).error is None  # from the cache, too
            assert len(list(repo.stream("d", ONE))) == 2
        text = repo.metrics.text(FIRST)
    for name in "md":
        assert f'{FIRST}_count{{model="{name}",version="1"}} 3.0' in text
    assert re.findall(r'le="(\S+?)",model="m"', text) == ["100", "500", "2000", "5000", "+Inf"]
    assert re.findall(r'le="(\S+?)",model="e"', text) == ["1", "2.5", "+Inf"]
    with bls.ModelRepository() as repo:
        (warning,) = repo.define("e", ECHOES, f"{ECHO} model_metrics {{ {known} }}").warnings
        assert "model_metrics has no effect here" in warning
        assert FIRST not in repo.metrics.text()


def test_a_first_response_counts_in_whole_milliseconds() -> None:
    counters = ModelCounters()
    counters.count_first_responses((1, 2.5))
    for ns in (999_999, 1_999_999, 2_999_999, 3_000_000):
        counters.first_response(ns)
    assert counters.first_responses() == ([2, 1, 1], 6)


def test_metrics_have_the_tags_and_the_load_time_of_a_model(repo: bls.ModelRepository) -> None:
    record = repo.define("m", ECHOES, f'{ECHO} metric_tags {{ key: "team" value: "blue" }}')
    assert record.warnings == ()
    text = repo.metrics.text()
    assert 'nv_inference_request_success{_team="blue",model="m",version="1"} 0.0' in text
    found = re.search(r'nv_model_load_duration_secs\{_team="blue",model="m",version="1"\} (\S+)', text)
    assert found is not None
    assert 0 < float(found[1]) <= (record.load_seconds or 0)
    for name in ("a b", "_x"):
        with pytest.raises(bls.ConfigError, match=f"metric_tags has the name '{name}', of which a server dies"):
            repo.define("m", ECHOES, f'{ECHO} metric_tags {{ key: "{name}" value: "" }}')


def test_summaries_of_cache_hits_and_misses() -> None:
    settings = {"summary_latencies": "true", "counter_latencies": "false"}
    with bls.ModelRepository(metrics_config=settings) as repo:
        repo.define("m", ECHOES, f"{ECHO} response_cache {{ enable: true }}")
        for _ in range(3):
            repo.infer("m", ONE)
        text = repo.metrics.text()
    for name, number in (("hit", 2), ("miss", 1)):
        assert f'nv_cache_{name}_summary_per_model_count{{model="m",version="1"}} {number}.0' in text
        assert re.search(rf'nv_cache_{name}_summary_per_model\{{model="m",quantile="0.5",version="1"\}} \d', text)
    assert "nv_inference_request_summary_us{" not in text
    assert 'nv_inference_request_success{model="m",version="1"} 0.0' in text  # recorded: no counter counts
