"""The same requests to both sides leave the same metrics and statistics, and traces of the same shape."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import bls_notebook as bls
from bls_notebook.shipping.servers.server_programs import ServerEnvironment
from bls_notebook.shipping.servers.tritonserver import TritonRequestError, TritonServer

pytestmark = pytest.mark.triton

MODELS = ["around", "batcher", "leaf", "relay"]
TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c12666c", "b7ad6b7169203331"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
CONTEXT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01")
ONE = {"X": np.ones(1, np.float32)}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Collector(BaseHTTPRequestHandler):
    """Takes the spans that the server exports, and forgets them."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def collector() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def real(
    environment: ServerEnvironment, collector: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("observed") / "models"
    shutil.copytree(Path(__file__).parent / "observed", folder)
    trace = ("mode=opentelemetry", "rate=0", "count=-1", "level=TIMESTAMPS", f"opentelemetry,url={collector}")
    options = ["--cache-config=local,size=1048576", "--metrics-interval-ms=20"]
    options += [f"--trace-config={setting}" for setting in trace]
    server = TritonServer(folder, environment=environment, load=MODELS, options=options)
    try:
        yield server.start()
    finally:
        server.stop(graceful=False)  # three seconds less, and nothing is to be seen of it


@pytest.fixture(scope="module")
def here() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository(Path(__file__).parent / "observed", cache_bytes=1 << 20) as repository:
        for name in MODELS:
            repository.load(name)
        yield repository


def reported(here: bls.ModelRepository, real: TritonServer, headers: dict[str, str]) -> list[dict[str, Any]]:
    """The report of `relay` here, and on the server."""
    response = here.infer("relay", ONE, trace=headers or None)
    assert response.error is None, response.error.message()
    texts = (response["REPORT"].as_numpy(), real.infer("relay", ONE, headers=headers)["REPORT"])
    return [json.loads(text.ravel()[0]) for text in texts]


TRACES = ("own", "child", "second child", "in an ensemble", "without")


def shape(report: dict[str, Any]) -> dict[str, Any]:
    """What does not differ from run to run: span IDs are numbered in the order of their first appearance."""
    seen: dict[str, str] = {}
    out: dict[str, Any] = {}
    for key in TRACES:
        if report[key] is None:
            out[key] = None
            continue
        context = json.loads(report[key])
        match = CONTEXT.fullmatch(context["traceparent"])
        assert match is not None, context
        assert report[key] == json.dumps(context, separators=(",", ":"))
        span = seen.setdefault(match[2], f"span {len(seen)}")
        out[key] = {**context, "traceparent": (match[1], span)}
    return out


@pytest.mark.usefixtures("changes")  # comes first, because the server counts a request after its response
@pytest.mark.parametrize(
    "headers",
    [
        {}, {"traceparent": PARENT}, {"traceparent": PARENT.replace("-01", "-00")},
        {"traceparent": PARENT, "tracestate": "vendor=a,other=b"},
    ],
)  # fmt: skip
def test_contexts_are_carried_alike(here: bls.ModelRepository, real: TritonServer, headers: dict[str, str]) -> None:
    got, wanted = map(shape, reported(here, real, headers))
    assert got == wanted
    assert got["without"] is None
    if headers:
        assert {got[key]["traceparent"] for key in TRACES[:-1]} == {(TRACE_ID, f"span {number}") for number in range(4)}


def samples(text: str) -> Samples:
    return {
        (s.name.removesuffix("_total"), frozenset((k, _number(v)) for k, v in s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if not s.name.endswith("_created")
    }


def _number(label: str) -> str:
    """The bound of a bucket in one spelling."""
    try:
        return repr(float(label))
    except ValueError:
        return label


def change(read: Callable[[], str], do: Callable[[], None]) -> Samples:
    before = samples(read())
    do()
    after = samples(read())
    return {key: value - before.get(key, 0) for key, value in after.items()}


def workload(infer: Callable[..., Any]) -> None:
    for number in range(3):
        infer("relay", {"X": np.ones(number + 1, np.float32)})
    infer("relay", {"X": -np.ones(1, np.float32)})  # raises
    infer("leaf", {"X": -np.ones(1, np.float32)})  # answers with an error
    infer("leaf", {"X": np.ones(1, np.int32)})  # is refused
    infer("around", {"X": -np.ones(1, np.float32)})
    for rows in (1, 3, 3, 1):  # the last two from the cache
        infer("batcher", {"X": np.full((rows, 1), rows, np.float32)})


@pytest.fixture(scope="module")
def changes(here: bls.ModelRepository, real: TritonServer) -> tuple[Samples, Samples]:
    def there(name: str, inputs: dict[str, Any]) -> None:
        try:
            real.infer(name, inputs)
        except TritonRequestError:
            pass

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{real.metrics_port}/metrics") as answer:
            return str(answer.read().decode())

    def work_there() -> None:
        workload(there)
        deadline = time.monotonic() + 60  # the server looks after its cache's metrics now and then
        while "nv_cache_num_lookups 4" not in read() and time.monotonic() < deadline:
            time.sleep(0.01)

    return (change(here.metrics.text, lambda: workload(here.infer)), change(read, work_there))


# Of the machine, not of its models; of the cache as a whole, where an entry's size is told otherwise; and since 24.11.
OF_THE_MACHINE = ("nv_cpu_", "nv_gpu_", "nv_pinned_", "nv_energy_", "nv_cache_util", "nv_model_load_duration_secs")


def of_models(found: Samples) -> Samples:
    return {key: value for key, value in found.items() if not key[0].startswith(OF_THE_MACHINE)}


def test_both_have_the_same_metrics_and_counts(changes: tuple[Samples, Samples]) -> None:
    here, real = map(of_models, changes)
    assert here.keys() == real.keys()
    # An ensemble's failure counts twice (docs/user_guide/metrics.md).
    twice = ("nv_inference_request_failure", frozenset({("model", "around"), ("reason", "OTHER"), ("version", "1.0")}))
    assert here[twice] == 2
    assert {key: here[key] for key in real if "duration" not in key[0]} == {
        key: value for key, value in real.items() if "duration" not in key[0]
    }
    for key in real:
        if "compute_infer_duration" in key[0] or "request_duration" in key[0]:
            assert here[key] > 0, key


def test_the_stub_refuses_the_same(here: bls.ModelRepository, real: TritonServer) -> None:
    got, wanted = reported(here, real, {})
    for key in ("lost", "lists", "buckets", "no buckets"):
        assert got[key] == wanted[key]


def test_statistics_have_the_same_counts(
    here: bls.ModelRepository, real: TritonServer, changes: tuple[Samples, Samples]
) -> None:
    for name in MODELS:
        got, wanted = here.statistics(name)["model_stats"][0], real.statistics(name)["model_stats"][0]
        assert counts(got).keys() >= counts(wanted).keys()
    relay = here.statistics("relay")["model_stats"][0]
    assert counts(relay)["fail"] == 1


def counts(row: dict[str, Any]) -> dict[str, int]:
    return {key: value.get("count", 0) for key, value in row["inference_stats"].items()}
