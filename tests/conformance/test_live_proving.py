"""Certificates: of models that answer alike, and of one that does not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.shipping.display import tolerance_above
from bls_notebook.shipping.proof.prover import Prover, proving
from bls_notebook.shipping.records import Certificate
from bls_notebook.shipping.servers.server_programs import ServerEnvironment
from bls_notebook.testing import RepositoryUnderTest
from tests.conformance.conftest import ROOT

# What is generated may be infinite, and what hypothesis generates differs by the modules that are loaded.
pytestmark = [pytest.mark.extra, pytest.mark.triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

CONFIG = """\
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""
CHAINED = f"""\
platform: "ensemble"
{CONFIG.partition(chr(10))[2]}
ensemble_scheduling {{ step {{ model_name: "scaled" model_version: -1
    input_map {{ key: "IN" value: "IN" }} output_map {{ key: "OUT" value: "OUT" }} }} }}
"""
MODEL = """\
import json
import os
import sys
import tempfile
import time
import numpy as np
import triton_python_backend_utils as pb_utils

OLD = int(np.__version__.split(".")[0]) < 2  # as on the server


def next_number():
    # Counts the requests of all processes.
    path = os.path.join(tempfile.gettempdir(), "bls-notebook-seldom")
    number = os.path.getsize(path) if os.path.exists(path) else 0
    with open(path, "a") as file:
        file.write(".")
    return np.float32(number)


class TritonPythonModel:
    def initialize(self, args):
        self.count, self.generator = 0, np.random.RandomState(3)
        count = json.loads(args["model_config"])["instance_group"][0]["count"]
        self.more = np.float32(count > 1 and OLD)

    def execute(self, requests):
        self.together = len(requests) > 1
        return [self.answer(request) for request in requests]

    def answer(self, request):
        told = json.loads(request.parameters() or "{}")
        values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        ANSWER
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)])
"""
ANSWERS = {
    "scaled": "values = np.where((values > 5) & OLD, np.nextafter(values, np.float32(1e9)), values)",
    # By a parameter: what a row gets depends on the others of its request, or on NumPy where it has company.
    "moody": "values = values - values.mean(dtype=np.float32) if 'mean' in told else values\n"
    "        values = values + self.more if 'company' in told else values",
    "counting": "self.count += 1\n        values = np.array([self.count, self.generator.rand()], np.float32)",
    "dice": "self.count += 1\n        values = np.array([self.count, np.random.rand()], np.float32)",
    "hashed": "values = np.array([hash('a') % 9973], np.float32)",  # another one in each process
    "failing": "Error = pb_utils.TritonError\n"
    "        error = Error('no', Error.INVALID_ARG if 'bls_notebook' in sys.modules else Error.UNKNOWN)\n"
    "        return pb_utils.InferenceResponse(error=error)",
    "calling": "more = {'model_name': '_'.join(['failing', 'late']), 'inputs': request.inputs()}\n"
    "        return pb_utils.InferenceRequest(requested_output_names=['OUT'], **more).exec()",
    "slow": "time.sleep(10 * ('bls_notebook' in sys.modules))",
    "hex": "return pb_utils.InferenceResponse(error=pb_utils.TritonError(f'0x{int(OLD)}'))",
    "metered": "self.metric.increment(1)\n        values = np.array([self.metric.value()], np.float32)",
    "early": "values = values + 1",
    "paired": "values = values + np.float32(OLD and self.together)",
    "seldom": "values = values + (next_number() % 37 == 0)",
}
SOURCES = {name: MODEL.replace("ANSWER", answer) for name, answer in ANSWERS.items()}
INITIALIZE = {
    "metered": "self.family = pb_utils.MetricFamily('metered', '', pb_utils.MetricFamily.COUNTER)\n"
    "        self.metric = self.family.Metric({'of': 'metered'})",
    "early": "pb_utils.load_model('scaled')",
}
for name, line in INITIALIZE.items():
    SOURCES[name] = SOURCES[name].replace("self.count, self", f"{line}\n        self.count, self", 1)
NAMES = ("add_sub", "square_int32", *SOURCES, "chained")


@pytest.fixture(scope="module")
def prover(environment: ServerEnvironment) -> Iterator[Prover]:
    with bls.ModelRepository(ROOT / "model_repository") as repository:
        for name in NAMES[:2]:
            repository.load(name)
        for name, source in (*SOURCES.items(), ("failing_late", SOURCES["failing"])):
            batched = CONFIG.replace("[ -1 ]", "[ 1 ]") + "max_batch_size: 8"
            batched += "\ndynamic_batching { }" * (name == "paired")
            repository.define(name, source, batched if name in ("moody", "paired") else CONFIG)
        repository.define("chained", "", CHAINED)
        with proving(repository, NAMES, environment) as prover:
            yield prover
            prover.server.stop(graceful=False)  # two seconds less, half a minute where it has lost a request


@pytest.mark.parametrize("model", NAMES[:2])
def test_models_that_answer_alike(prover: Prover, model: str) -> None:
    found = prover.prove(model, generate=30)
    assert found.equal, render(found).text
    assert (found.given, found.generated, found.unequal) == (0, 30, ())
    assert {path.partition("/")[0] for path, _ in found.files} == {model}
    assert Certificate.from_dict(found.to_dict()) == found


def test_state_and_chance_are_no_differences_of_the_server(prover: Prover) -> None:
    for model in ("counting", "counting", "metered", "metered"):  # the second time, neither side is new
        found = prover.prove(model, {"IN": [1.0]}, {"IN": [2.0]}, generate=5)
        assert found.equal, render(found).text
        assert found.stateful
        assert "both sides began with fresh instances" in " ".join(render(found).text.split())
    before = prover.repository.infer("counting", {"IN": [1.0]})["OUT"].as_numpy()[0]
    assert before == 1  # the model in service got none of these requests
    for model, side in (("dice", "here"), ("hashed", "on the server")):
        found = prover.prove(model, generate=5)
        assert (found.equal, found.unequal) == (False, ())
        assert render(found).text.startswith(f"? {model} cannot be compared with a server: its answers vary between")
        assert f"two fresh instances, the same requests, {side}: output" in render(found).text


def test_codes_of_errors_callees_and_slow_models(prover: Prover) -> None:
    found = prover.prove("failing", {"IN": [1.0]})
    assert found.unequal[0].what == ("error code: gRPC status INVALID_ARGUMENT here, UNKNOWN on the server",)
    found = prover.prove("calling", generate=3)
    assert "'failing_late' was reached here, but is missing from the copy" in found.notes[0]
    found = prover.prove("hex", {"IN": [1.0]})
    assert found.unequal[0].what == ("errors: '0x0' here, '0x1' on the server",)
    found = prover.prove("slow", {"IN": [1.0]}, timeout=0.5)
    assert not found.equal
    assert render(found).text.startswith("? slow got no answer here")
    assert "model control mode explicit" in found.server
    found = prover.prove("early", generate=2)
    assert found.equal, render(found).text
    assert "early uses pb_utils.load_model or unload_model, which a server allows only with" in found.notes[0]


def test_the_smallest_request_that_differs(prover: Prover) -> None:
    with warnings.catch_warnings(record=True) as told:
        found = prover.prove("scaled", {"IN": [1.0, 2.0]}, generate=200)  # of infinity it makes the largest float
    assert not [each for each in told if each.category is RuntimeWarning], "NumPy's, of generated values"
    assert not found.equal
    assert not found.rounds
    assert found.unequal[0].shrunk
    assert [tensor.shape for tensor in found.unequal[0].steps[0]] == [(1,)]
    assert found.unequal[0].options == ("",)
    assert "the smallest request that shows the difference" in render(found).text


def test_rounding_is_amber_with_the_tolerance_that_accepts_it(prover: Prover) -> None:
    asked = {"IN": [1.0, 6.0]}, {"IN": [7e8]}, {"IN": [1.0]}
    found = prover.prove("scaled", *asked)
    assert (found.equal, found.rounds, found.rounded, found.ulps_needed) == (False, True, 2, 1)
    said = " ".join(render(found).text.split())
    assert said.startswith("≈ scaled answers differently on the server by rounding: 3 requests")
    (numpy,) = [package for package in found.packages if package.name == "numpy"]
    tolerance = tolerance_above(found.rounding)
    assert "2 of them differ, by at most 1 unit in the last place" in said
    assert f"(NumPy {numpy.here} here, {numpy.there} on the server); `--tolerance {tolerance}` accepts it" in said
    assert prover.prove("scaled", *asked, tolerance=float(tolerance)).equal
    assert prover.prove("scaled", *asked, ulps=1).equal


def test_a_model_that_seldom_varies_cannot_be_compared(prover: Prover) -> None:
    found = prover.prove("seldom", generate=60)
    assert (found.equal, found.unequal) == (False, ())
    assert render(found).text.startswith("? seldom cannot be compared with a server")


def test_variations_that_were_sent_and_those_that_were_not(prover: Prover) -> None:
    found = prover.prove("add_sub", generate=60)
    assert found.equal, render(found).text
    assert found.never_sent == ("parallel requests", "cancelled requests")
    assert "never sent: parallel requests, cancelled requests" in " ".join(render(found).text.split())
    found = prover.prove("add_sub", {"INPUT0": [1, 2, 3, 4], "INPUT1": [1, 2, 3, 4]})
    assert {"some of the outputs", "request IDs", "correlation IDs", "timeouts", "parameters"} < {*found.never_sent}
    found = prover.prove("moody", generate=40, instances=(2,))
    assert "parallel requests" not in found.never_sent
    found = prover.prove("paired", generate=40)
    (unequal,) = found.unequal
    assert unequal.what[0].startswith("two requests at the same time, to be one batch: output 'OUT'")
    assert "two requests in one execution" not in found.never_sent


def test_an_ensemble_and_nothing_but_errors(prover: Prover) -> None:
    found = prover.prove("chained", {"IN": [1.0, 2.0]}, {"IN": []})
    assert found.equal, render(found).text
    assert [each.model for each in found.counted] == ["chained", "scaled"]
    assert not found.notes
    found = prover.prove("add_sub", {"INPUT0": [1.0, 2.0, 3.0, 4.0]})
    assert (found.equal, found.failed) == (True, 1)
    assert found.notes[0].startswith("every request had an error")


def test_rows_alone_and_in_a_batch(prover: Prover) -> None:
    batch = {"IN": [[1.0], [2.0], [6.0]]}
    found = prover.prove("moody", batch)
    assert found.equal
    assert (found.alone, found.notes) == (3, ())
    found = prover.prove("moody", batch, parameters={"mean": True})
    assert found.equal
    assert "3 of 3 rows get other answers alone than in their request" in found.notes[0]
    assert found.notes[0] in " ".join(render(found).text.split())


def test_several_instances_and_counts(prover: Prover) -> None:
    requests = {"IN": [[1.0]]}, SimpleNamespace(inputs={"IN": [[2.0]]}, parameters={"company": 1})
    found = prover.prove("moody", *requests, generate=10, instances=(2,))
    assert found.instances == (2,)
    assert [each.model for each in found.counted] == ["moody"]
    answered, failed, rows, executions = found.counted[0].here
    assert found.counted[0].here == found.counted[0].there
    assert answered + failed >= found.requests == 12
    assert rows >= executions > 0
    (unequal,) = found.unequal
    assert unequal.what == ("with 2 instances, requests in parallel: output 'OUT': 1 of 1 elements differ",)


def test_recorded_requests_have_parameters_of_their_own(prover: Prover) -> None:
    class Recording:
        def requests(self, model: str) -> list[Any]:
            asked = {"IN": np.float32([[3], [5]])}
            return [SimpleNamespace(inputs=asked, parameters={"mean": 1})] if model == "moody" else []

    found = prover.prove("moody", Recording())
    assert found.notes
    with pytest.raises(bls.BLSError, match="has no request for model 'scaled'"):
        prover.prove("scaled", Recording())
    with pytest.raises(bls.BLSError, match="got int, expected a dict of inputs by name, or a recording"):
        prover.prove("scaled", 3)


def test_a_server_that_runs_already(prover: Prover) -> None:
    for scheme, port in (("grpc", prover.server.grpc_port), ("http", prover.server.http_port)):
        url = f"{scheme}://127.0.0.1:{port}"
        found = bls.prove("add_sub", generate=10, repo=prover.repository, server=url)
        assert found.equal, render(found).text
        assert (found.files, found.counted) == ((), ())
        assert url in found.server
        said = " ".join(render(found).text.split())
        first = "✓ add_sub answers as the server does: 10 requests, equal bit by bit, against triton"
        assert said.startswith(first)
    found = bls.prove("scaled", {"IN": [1.0, 6.0]}, repo=prover.repository, server=url)
    assert not found.equal
    stream = f"grpc://127.0.0.1:{prover.server.grpc_port}"
    asked = {"IN": [3]}, {"IN": [0]}, {"IN": [-2]}
    assert bls.prove("square_int32", *asked, repo=prover.repository, server=stream).equal
    with RepositoryUnderTest(ROOT / "model_repository") as mine:
        assert mine.assert_proven_equal("add_sub", generate=3, server=url).requests == 3
        mine.define("scaled", SOURCES["scaled"], CONFIG)
        with pytest.raises(AssertionError, match="scaled answers differently on the server"):
            mine.assert_proven_equal("scaled", {"IN": [6.0]}, server=url)
    with pytest.raises(bls.BLSError, match="instance counts can only be changed on a server that prove starts"):
        bls.prove("add_sub", generate=1, instances=(2,), repo=prover.repository, server=url)


def test_the_script_of_an_export_proves_the_same(
    prover: Prover, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests: dict[str, list[Any]] = {
        "square_int32": [{"IN": [n]} for n in (2, 0, -3)],
        "moody": [{"IN": [[1.0], [2.0]]}, SimpleNamespace(inputs={"IN": [[2.0]]}, parameters={"mean": 1})],
        "scaled": [{"IN": [1.0, 6.0]}],
    }
    bls.export(tmp_path / "out", requests=requests, repo=prover.repository)
    spec: Any = spec_from_file_location("prove_of_export", tmp_path / "out/prove.py")
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.main([prover.server.grpc_url]) == 1
    assert "scaled: request 0: output 'OUT': other values" in capsys.readouterr().out
    assert script.main([prover.server.grpc_url, "--model", "square_int32", "--model", "moody"]) == 0
    assert "square_int32: 3 of 3 requests answered" in capsys.readouterr().out
    assert script.main([prover.server.grpc_url, "--tolerance", "1e-5"]) == 0
    assert script.main(["127.0.0.1:1", "--timeout", "5s"]) == 2


def test_without_a_request_nothing_is_proven(prover: Prover) -> None:
    with pytest.raises(bls.BLSError, match="no requests for model 'add_sub': pass inputs"):
        prover.prove("add_sub")


def test_nothing_is_left_in_the_folder(prover: Prover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prover.prove("add_sub", generate=1)
    assert not list(tmp_path.iterdir())
