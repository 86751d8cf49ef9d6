"""Breakpoints in cells, with the debug adapter protocol and a real kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.magics.debugged_kernel import DebuggedKernel, started_kernel

pytestmark = pytest.mark.slow
TENSORS = '--input "IN FP32 [-1]" --output "OUT FP32 [-1]"'
PLAIN = f"""\
%%tritonmodel NAME {TENSORS}
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            twice = given * 2
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", twice)]))
        return answers
"""
DECOUPLED = f"""\
%%tritonmodel NAME {TENSORS} --decoupled
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            twice = given * 2
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", twice)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
RELAY = f"""\
%%tritonmodel NAME {TENSORS}
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    async def execute(self, requests):
        inputs = [requests[0].inputs()[0]]
        request = pb_utils.InferenceRequest(model_name="plain", requested_output_names=["OUT"], inputs=inputs)
        return [await request.async_exec()]
"""


BY_HTTP = """\
import bls_notebook as b, json, urllib.request as u
with b.endpoint() as e:
    inputs = [{"name": "IN", "datatype": "FP32", "shape": [2], "data": [1, 2]}]
    asked = u.Request(f"{e.url}/v2/models/plain/infer", json.dumps({"inputs": inputs}).encode(), e.headers)
    print(json.load(u.urlopen(asked))["outputs"][0]["data"])
"""


def as_async(cell: str) -> str:
    return cell.replace("def execute", "async def execute")


CELLS = {
    "plain": PLAIN,
    "async": as_async(PLAIN),
    "many": PLAIN.replace("\n", " --instances 2\n", 1),
    "decoupled": DECOUPLED,
    "overlapping": as_async(DECOUPLED),
    "below": "\n\n" + PLAIN,
    "relay": RELAY,
}
CELLS = {name: cell.replace("NAME", name) for name, cell in CELLS.items()}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebuggedKernel]:
    with started_kernel(tmp_path_factory.mktemp("debugged"), "-Xfrozen_modules=off") as manager:
        kernel = DebuggedKernel(manager)
        for cell in ("%load_ext bls_notebook", *CELLS.values()):
            kernel.run(cell)
        # Threads and loops that were there before the debugger came.
        kernel.run("%bls async IN=[1]\n%bls overlapping IN=[1] --stream")
        kernel.attach()
        yield kernel
        kernel.client.stop_channels()


@pytest.mark.parametrize(
    ("stops_in", "call"),
    [
        ("plain", "%bls plain IN=[1, 2]"),
        ("async", "%bls async IN=[1, 2]"),
        ("async", "import bls_notebook as b\nawait b.current_repository().infer_async('async', {'IN': [1, 2]})"),
        ("many", "%bls many IN=[1, 2]"),
        ("decoupled", "%bls decoupled IN=[1, 2] --stream"),
        ("overlapping", "%bls overlapping IN=[1, 2] --stream"),
        ("plain", "%bls relay IN=[1, 2]"),
        ("plain", BY_HTTP),
    ],
)
def test_a_model_stops_at_its_line(kernel: DebuggedKernel, stops_in: str, call: str) -> None:
    file = kernel.break_at(CELLS[stops_in], 8)
    stop = kernel.run(call)
    assert stop is not None
    assert stop.file == file
    assert stop.frames[0] == ("execute", 8)
    assert set(stop.frames[1:]) <= {("<module>", 1)}  # the cell; nothing of what lies between
    assert "array([1., 2.]" in stop.variables["given"]
    assert "twice" not in stop.variables
    stop = kernel.go("next")
    assert stop is not None
    assert stop.frames[0] == ("execute", 9)
    assert "array([2., 4.]" in stop.variables["twice"]
    assert kernel.go() is None
    assert "[2.0, 4.0]" in kernel.output
    kernel.break_at(CELLS[stops_in])


def test_a_cell_that_begins_with_empty_lines(kernel: DebuggedKernel) -> None:
    kernel.run(CELLS["below"])  # while the debugger is on, too
    kernel.break_at(CELLS["below"], 10)
    stop = kernel.run("%bls below IN=[1]")
    assert stop is not None
    assert stop.frames[0] == ("execute", 10)
    assert kernel.go() is None


def test_a_body(kernel: DebuggedKernel) -> None:
    cell = "%%bls --into seen\n\none = 1\ntwo = one + 1\ntwo"
    file = kernel.break_at(cell, 4)
    stop = kernel.run(cell)
    assert stop is not None
    assert (stop.file, stop.frames[0]) == (file, ("<module>", 4))
    assert kernel.go() is None


@pytest.mark.parametrize("steps", [["stepOut"], ["next"] * 9, ["stepIn"] * 9], ids=["out", "over", "in"])
def test_stepping_goes_into_the_model_and_back(kernel: DebuggedKernel, steps: list[str]) -> None:
    caller = "before = 1\n%bls plain IN=[1]\nafter = 2"
    kernel.break_at(caller, 2)
    kernel.run(caller)
    model = kernel.go("stepIn")
    assert model is not None
    assert model.frames == [("execute", 5), ("caller in another thread", 1)]
    for step in steps:
        back = kernel.go(step)
        assert back is not None
        if back.frames[0][0] != "execute":
            break
    assert back.frames == [("<module>", 2)]
    back = kernel.go("next")
    assert back is not None
    assert back.frames == [("<module>", 3)]
    assert kernel.go() is None


def test_continuing_in_a_model_that_was_stepped_into(kernel: DebuggedKernel) -> None:
    caller = "before = 3\n%bls plain IN=[1]\nafter = 4"
    kernel.break_at(caller, 2)
    kernel.run(caller)
    model = kernel.go("stepIn")
    assert model is not None
    assert model.frames[0] == ("execute", 5)
    assert kernel.go() is None


def test_breakpoint_opens_the_cell(kernel: DebuggedKernel) -> None:
    cell = CELLS["plain"].replace("twice =", "breakpoint(); twice =").replace(" plain ", " own ")
    kernel.run(cell)
    stop = kernel.run("%bls own IN=[1]")
    assert stop is not None
    assert stop.file == kernel.ask("dumpCell", code=cell)["sourcePath"]
    assert kernel.go() is None


def test_a_cell_that_was_edited_and_not_run(kernel: DebuggedKernel) -> None:
    kernel.break_at(CELLS["plain"] + "# edited\n", 8)
    assert kernel.run("%bls plain IN=[3]") is None
    assert "[6.0]" in kernel.output


@pytest.mark.parametrize("name", ["plain", "async"])
def test_an_interrupt_at_a_breakpoint(kernel: DebuggedKernel, name: str) -> None:
    kernel.break_at(CELLS[name], 8)
    call = f"%bls {name} IN=[1]"
    assert kernel.run(call) is not None
    assert kernel.interrupt() is None
    assert "interrupted" in kernel.output
    assert kernel.run(call) is not None  # it still stops there
    assert kernel.go() is None
    assert "[2.0]" in kernel.output
    kernel.break_at(CELLS[name])
