"""What a model does in a process of its own: the same as in the kernel."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from tests.backends.processes.models import DECOUPLED, HEAD, IDENTITY, IO, apart, define, x
from tests.engine import gates
from tests.engine.harness import Caller, ctrl_c_once, message, until, value
from tests.repository.conftest import disk

__all__ = ["apart", "disk"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Linux or macOS")


def pid(response: Any) -> int:
    assert response.error is None, response.error
    return int(response.parameters()["pid"])


def test_each_instance_is_a_process(apart: bls.ModelRepository) -> None:
    define(apart, "m", IDENTITY, IO + "instance_group { count: 2 }")
    sleeps = "import time; time.sleep(0.05); "
    define(apart, "two", IDENTITY.replace("return [", sleeps + "return ["), IO + "instance_group { count: 2 }")
    assert pid(apart.infer("m", x())) != os.getpid()
    callers = [Caller(apart.infer, "two", x()) for _ in range(8)]
    assert len({pid(caller.result()) for caller in callers}) == 2


def test_the_isolation_of_a_model_stays_until_it_is_changed(disk: bls.ModelRepository) -> None:
    folder = disk.paths[0] / "m" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(HEAD + IDENTITY)
    (folder.parent / "config.pbtxt").write_text(f'backend: "python"\n{IO}')
    disk.load("m", isolation="process")
    first = pid(disk.infer("m", x()))
    disk.load("m")
    assert pid(disk.infer("m", x())) == first
    assert first != os.getpid()
    disk.reload("m")
    assert pid(disk.infer("m", x())) not in (first, os.getpid())
    disk.load("m", isolation="kernel")
    assert pid(disk.infer("m", x())) == os.getpid()
    disk.isolation = "process"
    disk.unload("m")
    with pytest.raises(bls.BLSError, match="got 'thread', expected one of 'kernel', 'process'"):
        disk.load("m", isolation="thread")


def test_tensors_of_every_kind_pass_through_a_process(apart: bls.ModelRepository) -> None:
    types = {
        "B": "BOOL",
        "S": "STRING",
        "F": "FP16",
        "D": "FP64",
        "U": "UINT8",
        "BF": "BF16",
        "E": "FP32",
        "L": "INT64",
    }
    config = "".join(
        f'input {{ name: "{name}" data_type: TYPE_{kind} dims: [ -1, -1 ] }}\n'
        f'output {{ name: "{name}" data_type: TYPE_{kind} dims: [ -1, -1 ] }}\n'
        for name, kind in types.items()
    )  # fmt: skip
    source = """
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            for t in r.inputs():
                if t.name() not in ("BF",):
                    t.as_numpy()[:] = t.as_numpy()  # writeable
        return [pb.InferenceResponse(r.inputs()) for r in requests]
"""
    define(apart, "m", source, config)
    inputs = {
        "B": np.array([[True, False]]), "S": np.array([[b"a\0b", "ä".encode(), b""]], object),
        "F": np.ones((3, 1), np.float16), "D": np.ones((1, 1)), "U": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "E": np.zeros((0, 4), np.float32), "L": np.arange(1 << 20).reshape(1 << 10, 1 << 10),
        "BF": [[1.0, 2.0]],
    }  # fmt: skip
    response = apart.infer("m", inputs)
    assert response.error is None, response.error
    for name, array in inputs.items():
        if name != "BF":
            np.testing.assert_array_equal(response[name].as_numpy(), array)
            response[name].as_numpy()[...] = array  # writeable
    assert response["BF"].shape() == [1, 2]


def test_a_request_and_a_response_keep_their_options(apart: bls.ModelRepository) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        return [
            answer(1, parameters={
                "id": r.request_id(), "correlation": r.correlation_id(), "flags": r.flags(), "given": r.parameters(),
                "outputs": json.dumps(sorted(r.requested_output_names())), "timeout": r.timeout(),
                "main": threading.current_thread() is threading.main_thread(), "folder": pb.get_model_dir(),
            }) for r in requests]
"""
    define(apart, "m", source)
    response = apart.infer("m", x(), request_id="r", correlation_id="c", flags=1, parameters={"a": 1}, timeout=7)
    got = response.parameters()
    assert got.pop("folder").endswith("/m/1")
    assert json.loads(got.pop("given")) == {"a": 1}
    assert got == {
        "id": "r", "correlation": "c", "flags": 1, "outputs": '["Y"]', "timeout": 7, "main": True,
    }  # fmt: skip


def test_an_exception_names_the_line_as_in_the_kernel(apart: bls.ModelRepository) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("too high: é")
"""
    texts = []
    for isolation in ("process", "kernel"):
        define(apart, "m", source, isolation=isolation)
        response = apart.infer("m", x())
        error = response.record.error
        texts.append((message(response), error.kind, error.frames))
    assert texts[0] == texts[1]
    assert "ValueError: too high: é\n\nAt:\n  m/1/model.py(" in texts[0][0]


@pytest.mark.parametrize("source", ["def f(:\n", "raise OSError(3)\n", "class Other: pass\n"])
def test_a_failed_import_has_the_words_of_the_kernel(apart: bls.ModelRepository, source: str) -> None:
    errors = []
    for isolation in ("process", "kernel"):
        with pytest.raises(bls.ModelLoadError) as raised:
            define(apart, "m", source, isolation=isolation)
        errors.append(str(raised.value))
    assert errors[0] == errors[1]


def test_output_and_logs_come_before_the_response(
    apart: bls.ModelRepository, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        print("no newline", end="")
        print(" here")
        print("wrong", file=sys.stderr)
        pb.Logger.log_warn("a warning")
        return [answer(1) for r in requests]
"""
    define(apart, "m", source)
    with caplog.at_level(logging.INFO):
        assert value(apart.infer("m", x())) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("no newline here\n", "wrong\n")
    assert [r.message for r in caplog.records if r.name == "bls_notebook.model.m"] == ["a warning"]


def test_output_of_native_code_is_shown(apart: bls.ModelRepository, capfd: pytest.CaptureFixture[str]) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        os.write(1, b"from C\\n")
        return [answer(1) for r in requests]
"""
    define(apart, "m", source)
    apart.infer("m", x())
    until(lambda: "from C\n" in capfd.readouterr().out, "the output of native code")


def test_a_closed_output_of_the_program_ends_no_process(
    apart: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        os.write(1, b"from C\\n")
        print("from Python")
        return [answer(1) for r in requests]
"""
    define(apart, "m", source)
    closed = io.StringIO()
    closed.close()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        responses = [apart.infer("m", x()) for _ in range(3)]
    assert all(response.error is None for response in responses)


CALLERS = {
    "sync": """
class TritonPythonModel:
    def execute(self, requests):
        return [answer(value(ask("leaf", number(r)).exec()) + 1) for r in requests]
""",
    "async": """
class TritonPythonModel:
    async def execute(self, requests):
        out = []
        for r in requests:
            responses = await asyncio.gather(*[ask("leaf", number(r)).async_exec() for _ in range(3)])
            out.append(answer(sum(map(value, responses)) - 2 * number(r) + 1))
        return out
""",
    "asyncio.run": """
class TritonPythonModel:
    def execute(self, requests):
        async def go(r):
            return answer(value(await ask("leaf", number(r)).async_exec()) + 1)
        return [asyncio.run(go(r)) for r in requests]
""",
    "thread": """
class TritonPythonModel:
    def execute(self, requests):
        found = []
        for r in requests:
            thread = threading.Thread(target=lambda: found.append(value(ask("leaf", number(r)).exec()) + 1))
            thread.start()
            thread.join()
        return [answer(f) for f in found]
""",
    "decoupled": """
class TritonPythonModel:
    def execute(self, requests):
        return [
            answer(sum(value(a) for a in ask("stream", number(r)).exec(decoupled=True) if a.output_tensors()) + 1)
            for r in requests]
""",
    "async decoupled": """
class TritonPythonModel:
    async def execute(self, requests):
        out = []
        for r in requests:
            responses = await ask("stream", number(r)).async_exec(decoupled=True)
            out.append(answer(sum(value(a) for a in responses if a.output_tensors()) + 1))
        return out
""",
}
STREAM = """
class TritonPythonModel:
    async def execute(self, requests):
        for r in requests:
            sender = r.get_response_sender()
            for part in (0, number(r)):
                sender.send(answer(part))
                await asyncio.sleep(0)
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.mark.parametrize("kind", CALLERS)
@pytest.mark.parametrize("callee", ["process", "kernel"])
def test_bls_requests_of_a_process(apart: bls.ModelRepository, kind: str, callee: str) -> None:
    define(apart, "leaf", IDENTITY, isolation=callee)
    define(apart, "stream", STREAM, DECOUPLED, isolation=callee)
    define(apart, "m", CALLERS[kind])
    assert value(apart.infer("m", x(5))) == 6


def test_a_bls_request_with_large_tensors(apart: bls.ModelRepository) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        out = []
        for r in requests:
            q = pb.InferenceRequest(model_name="leaf", inputs=r.inputs(), requested_output_names=["Y"]).exec()
            out.append(pb.InferenceResponse([pb.Tensor("Y", pb.get_output_tensor_by_name(q, "Y").as_numpy() + 1)]))
        return out
"""
    leaf = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("Y", r.inputs()[0].as_numpy() * 2)]) for r in requests]
"""
    define(apart, "leaf", leaf)
    define(apart, "m", source)
    array = np.arange(1 << 20, dtype=np.int32)
    np.testing.assert_array_equal(apart.infer("m", {"X": array})["Y"].as_numpy(), array * 2 + 1)


def test_responses_of_threads_and_a_lost_sender(apart: bls.ModelRepository) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            sender, count = r.get_response_sender(), number(r)
            if count:
                threading.Thread(target=self.send, args=(sender, count)).start()

    def send(self, sender, count):
        for i in range(count):
            sender.send(answer(i))
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        try:
            sender.send(answer(9))
        except pb.TritonModelException as error:
            print(error)
"""
    define(apart, "m", source, DECOUPLED)
    assert [value(r) for r in apart.stream("m", x(3))] == [0, 1, 2]
    assert "dropped before its final flag" in message(next(iter(apart.stream("m", x(0)))))


IN_A_CYCLE = """
class TritonPythonModel:
    def execute(self, requests):
        sender = requests[0].get_response_sender()

        def again():
            again.sender = sender

        again()
"""


def test_a_sender_in_a_reference_cycle_is_noticed(apart: bls.ModelRepository) -> None:
    define(apart, "m", IN_A_CYCLE, DECOUPLED)
    (response,) = apart.stream("m", x())
    assert "the response sender was dropped" in message(response)


DEEP = """
import sys


class TritonPythonModel:
    def execute(self, requests):
        self.left = int(pb.get_input_tensor_by_name(requests[0], "X").as_numpy()[0])
        limit = sys.getrecursionlimit()
        try:
            self.deeper()
        except RecursionError:
            assert sys.getrecursionlimit() == limit
        return [answer(number(request)) for request in requests]

    def deeper(self):
        if self.left:
            self.left -= 1
        else:
            ask("callee").exec()
        self.deeper()
"""


def test_a_recursion_error_beside_bls_requests_loses_no_answer(apart: bls.ModelRepository) -> None:
    define(apart, "callee", IDENTITY, isolation="kernel")
    define(apart, "m", DEEP)
    for padding in range(12):
        assert value(apart.infer("m", x(padding))) == padding


def test_a_sequence_an_accumulator_and_metrics(apart: bls.ModelRepository) -> None:
    source = """
class TritonPythonModel:
    def initialize(self, arguments):
        self.sums = {}
        self.family = pb.MetricFamily(name="process_sum", description="d", kind=pb.MetricFamily.COUNTER)
        self.metric = self.family.Metric({"a": "b"})

    def execute(self, requests):
        for r in requests:
            start = r.flags() & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
            self.sums[r.correlation_id()] = number(r) + (0 if start else self.sums[r.correlation_id()])
            self.metric.increment(number(r))
        return [answer(self.sums[r.correlation_id()]) for r in requests]
"""
    define(apart, "m", source, IO + "sequence_batching { }")
    sums = [value(apart.infer("m", x(i), correlation_id=5, flags=flags)) for i, flags in ((1, 1), (2, 0), (3, 2))]
    assert sums == [1, 3, 6]
    assert 'process_sum{a="b"} 6.0' in apart.metrics.text()


def test_model_control_from_a_process(disk: bls.ModelRepository) -> None:
    folder = disk.paths[0] / "other" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(HEAD + IDENTITY)
    (folder.parent / "config.pbtxt").write_text(f'backend: "python"\n{IO}')
    source = """
class TritonPythonModel:
    def execute(self, requests):
        pb.load_model("other")
        ready = pb.is_model_ready("other")
        got = value(ask("other", 4).exec())
        pb.unload_model("other")
        try:
            pb.load_model("nothing")
        except pb.TritonModelException as error:
            print(error)
        return [answer(got, int(ready)) for r in requests]
"""
    define(disk, "m", source)
    response = disk.infer("m", x())
    assert response.error is None
    assert response["Y"].as_numpy().tolist() == [4, 1]


def test_auto_complete_config_runs_in_the_process(apart: bls.ModelRepository) -> None:
    source = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_INT32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_INT32", "dims": [-1]})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests):
        return [answer(number(r)) for r in requests]
"""
    repo = apart
    repo.define("m", HEAD + source, isolation="process")
    assert value(repo.infer("m", x(3))) == 3
    with pytest.raises(bls.BLSError, match="must return a valid pb"):
        repo.define("m", HEAD + source.replace("return config", "return None"), isolation="process")


def test_an_error_keeps_its_path_through_a_process(apart: bls.ModelRepository) -> None:
    leaf = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse(error=pb.TritonError("no", pb.TritonError.NOT_FOUND)) for r in requests]
"""
    source = """
class TritonPythonModel:
    def execute(self, requests):
        if number(requests[0]):
            ask("leaf").exec()
            return [answer(1)]
        return [pb.InferenceResponse(error=ask("leaf").exec().error()) for r in requests]
"""
    seen = []
    for isolation in ("process", "kernel"):
        define(apart, "leaf", leaf, isolation=isolation)
        define(apart, "m", source, isolation=isolation)
        passed = apart.infer("m", x(0))
        seen.append((passed.record.error, apart.infer("m", x(1)).warnings))
    assert seen[0] == seen[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["async", "asyncio.run"])
def test_a_cycle_of_awaited_requests_is_refused(apart: bls.ModelRepository, kind: str) -> None:
    define(apart, "back", CALLERS["async"].replace('"leaf"', '"m"'))
    define(apart, "m", CALLERS[kind].replace('"leaf"', '"back"'))
    assert "circular BLS" in message(Caller(apart.infer, "m", x(1)).result())
    assert apart.ready("m")


@pytest.mark.slow
def test_a_slow_callee_is_no_cycle(apart: bls.ModelRepository) -> None:
    """The callee of an awaited request sleeps for longer than it takes to notice that the caller only awaits."""
    slow = IDENTITY.replace("return [", "time.sleep(2.5)\n        return [")
    define(apart, "leaf", slow, IO + "instance_group { count: 3 }")
    define(apart, "m", CALLERS["async"])
    assert value(apart.infer("m", x(4))) == 5


SLEEPS = """
class TritonPythonModel:
    def execute(self, requests):
        if number(requests[0]) == 1:
            pb.Logger.log_info("sleeps")
            time.sleep(60)
        return [answer(number(r), parameters={"pid": os.getpid()}) for r in requests]
"""


def _logs(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return any(record.message == text for record in list(caplog.records))


def test_ctrl_c_interrupts_a_process_and_it_serves_again(
    apart: bls.ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    define(apart, "m", SLEEPS)
    first = pid(apart.infer("m", x(0)))
    with ctrl_c_once(lambda: _logs(caplog, "sleeps")):
        apart.infer("m", x(1))
    assert pid(apart.infer("m", x(0))) == first


def test_code_that_ignores_ctrl_c_is_killed(
    apart: bls.ModelRepository, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bls_notebook.backends.processes import process

    monkeypatch.setattr(process, "KILL_SECONDS", 0.3)
    caplog.set_level(logging.INFO)
    stubborn = """
            while True:
                try:
                    pb.Logger.log_info("ignores")
                    time.sleep(60)
                except BaseException:
                    pass
"""
    define(apart, "m", SLEEPS.replace("            time.sleep(60)\n", stubborn))
    first = pid(apart.infer("m", x(0)))
    with ctrl_c_once(lambda: _logs(caplog, "ignores")):
        apart.infer("m", x(1))
    assert pid(apart.infer("m", x(0))) != first


def test_ctrl_c_during_initialize_leaves_no_process(
    apart: bls.ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    source = """
class TritonPythonModel:
    def initialize(self, arguments):
        pb.Logger.log_info("initializes")
        time.sleep(60)
"""
    with ctrl_c_once(lambda: _logs(caplog, "initializes")):
        define(apart, "m", source + IDENTITY.partition("TritonPythonModel:\n")[2])
    assert not apart.ready("m")


def test_a_cancelled_request_is_cancelled_in_the_process(apart: bls.ModelRepository) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            sender = r.get_response_sender()
            sender.send(answer(0))
            while not sender.is_cancelled():
                time.sleep(0.001)
            pb.Logger.log_info("cancelled")
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
    define(apart, "m", source, DECOUPLED)
    for response in apart.stream("m", x()):
        assert value(response) == 0
        break  # cancels
    assert [value(r) for r in [next(iter(apart.stream("m", x())))]] == [0]


def test_is_ready_of_the_model_is_asked(apart: bls.ModelRepository) -> None:
    source = IDENTITY + "\n    def is_ready(self):\n        return os.environ.get('NEVER_SET') is not None\n"
    define(apart, "m", source)
    assert not apart.ready("m")
    define(apart, "m", source.replace("is not None", "is None"))
    assert apart.ready("m")


def test_two_instances_of_pure_python_do_not_share_a_gil(apart: bls.ModelRepository) -> None:
    """Both run at the same time: each waits, without giving up its GIL, until the other has begun."""
    source = """
class TritonPythonModel:
    def execute(self, requests):
        folder = pb.get_model_dir()
        open(f"{folder}/{os.getpid()}", "w").close()
        end = time.monotonic() + 60
        while len([n for n in os.listdir(folder) if n.isdigit()]) < 2:
            assert time.monotonic() < end
        return [answer(1) for r in requests]
"""
    define(apart, "m", source, IO + "instance_group { count: 2 }")
    callers = [Caller(apart.infer, "m", x()) for _ in range(2)]
    assert [value(caller.result()) for caller in callers] == [1, 1]


def test_breakpoint_in_a_process_says_how_to_stop(
    apart: bls.ModelRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    define(apart, "m", IDENTITY.replace("return [", "breakpoint()\n        return ["))
    assert apart.infer("m", x()).error is None
    assert "isolation='kernel'" in capsys.readouterr().err


def test_threads_send_requests_to_a_process_at_once(apart: bls.ModelRepository) -> None:
    define(apart, "leaf", IDENTITY)
    define(apart, "m", CALLERS["async"], IO + "instance_group { count: 2 }")
    callers = [Caller(apart.infer, "m", x(i)) for i in range(20)]
    assert [value(caller.result()) for caller in callers] == [i + 1 for i in range(20)]
    assert threading.active_count() < 100
    assert not gates.logged()
