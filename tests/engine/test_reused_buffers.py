"""Warnings for arrays that a server reads later (`async_exec`), or has read already (a Tensor that was sent before)."""

from __future__ import annotations

import pytest

import bls_notebook as bls
from tests.engine.harness import ints, value
from tests.engine.sources import DOUBLE, model, pbtxt

WAYS = {
    "one buffer for two calls": ("buffer[:] = n; calls.append(self.send(buffer))", True),
    "a view of one buffer": ("buffer[:] = n; calls.append(self.send(buffer[:2]))", True),
    "a large buffer": ("large[-7:] = n; calls.append(self.send(large))", True),
    "a change after the last call": ("calls.append(self.send(buffer)); buffer += n", True),
    "the same array twice": ("calls.append(self.send(buffer))", False),
    "a fresh array": ("calls.append(self.send(np.full(2, n, np.int32)))", False),
    "a copy": ("buffer[:] = n; calls.append(self.send(buffer.copy()))", False),
    "an await between them": ("buffer[:] = n; await self.send(buffer)", False),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_array_that_is_changed_after_async_exec(repo: bls.ModelRepository, way: str) -> None:
    body, is_warned = WAYS[way]
    repo.define("double", DOUBLE, pbtxt(count=2))
    repo.define("a", model(f"""
def send(self, array):
    inputs = [pb.Tensor("X", array)]
    return pb.InferenceRequest(model_name="double", requested_output_names=["Y"], inputs=inputs).async_exec()

async def execute(self, requests):
    buffer, large, calls = np.zeros(2, np.int32), np.zeros(1 << 18, np.int32), []
    for n in 1, 2:
        {body}
    await asyncio.gather(*calls)
    return [answer(len(calls)) for _ in requests]
"""), pbtxt())  # fmt: skip
    response = repo.infer("a", ints(1))
    assert value(response) == (0 if way == "an await between them" else 2)
    warnings = [text for text in response.warnings if "was changed after async_exec of 'double'" in text]
    assert len(warnings) == is_warned


SENT_AGAIN = {
    "before its answer": ("await asyncio.gather(r.async_exec(), r.async_exec())", True),
    "by exec before its answer": ("f = r.async_exec(); r.exec(); await f", True),
    "after its answer": ("await r.async_exec(); await r.async_exec()", False),
    "by exec": ("await r.async_exec(); r.exec()", False),
    "as two requests": ("await asyncio.gather(r.async_exec(), self.request().async_exec())", False),
}


@pytest.mark.parametrize("isolation", ["kernel", pytest.param("process", marks=pytest.mark.slow)])
def test_a_request_that_is_sent_again(repo: bls.ModelRepository, isolation: str) -> None:
    repo.define("double", DOUBLE, pbtxt(count=2))
    bodies = "\n".join(f"    if way == {n}: {body}" for n, (body, _) in enumerate(SENT_AGAIN.values()))
    source = model(f"""
def request(self):
    inputs = [pb.Tensor("X", np.zeros(2, np.int32))]
    return pb.InferenceRequest(model_name="double", requested_output_names=["Y"], inputs=inputs)

async def execute(self, requests):
    r, way = self.request(), requests[0].inputs()[0].as_numpy()[0]
{bodies}
    return [answer(way) for _ in requests]
""")  # fmt: skip
    repo.define("a", source.replace("from tests.engine import gates\n", ""), pbtxt(), isolation=isolation)
    for number, (way, (_, is_warned)) in enumerate(SENT_AGAIN.items()):
        response = repo.infer("a", ints(number))
        assert value(response) == number
        assert is_warned == any("was sent again before its answer" in w for w in response.warnings), way


def test_a_request_that_two_threads_send_at_once(repo: bls.ModelRepository) -> None:
    repo.define("double", model("""
def execute(self, requests):
    if not gates.gate("begun").is_set():
        gates.open_gate("begun")
        gates.pass_gate("go")
    gates.open_gate("go")
    return [answer(2 * number(r)) for r in requests]
"""), pbtxt(count=2))  # fmt: skip
    repo.define("a", model("""
def execute(self, requests):
    inputs = [pb.Tensor("X", np.full(1, 4, np.int32))]
    r = pb.InferenceRequest(model_name="double", requested_output_names=["Y"], inputs=inputs)
    other = threading.Thread(target=r.exec)
    other.start()
    gates.pass_gate("begun")
    value = value_of(r.exec())
    other.join()
    return [answer(value) for _ in requests]
"""), pbtxt())  # fmt: skip
    response = repo.infer("a", ints(1))
    assert value(response) == 8
    assert any("was sent again before its answer" in text for text in response.warnings)


SENT_BEFORE = {
    "the array of a Tensor that is sent twice": ("t = pb.Tensor('X', b); self.send(t); b[:] = 3; self.send(t)", 6),
    "the elements of a large one": ("t = pb.Tensor('X', big); self.send(t); big += 256; self.send(t)", 512),
    "a request that is sent twice": ("r = self.request(pb.Tensor('X', b)); r.exec(); b[:] = 3; self.sum(r)", 6),
    "an input that is passed on": ("x = self.input(requests); x.as_numpy()[:] = 4; self.send(x)", 8),
    "what as_numpy of a tensor of from_dlpack returned": (
        "t = pb.Tensor.from_dlpack('X', pb.Tensor('X', b)); t.as_numpy()[:] = 3; self.send(t)",
        6,
    ),
    "nothing": ("t = pb.Tensor('X', b); self.send(t); self.send(t)", 0),
    "the array, before the Tensor is sent": ("t = pb.Tensor('X', b); b[:] = 3; self.send(t)", 6),
    "the source of from_dlpack": ("t = pb.Tensor.from_dlpack('X', pb.Tensor('X', b)); b[:] = 3; self.send(t)", 6),
    "the array, of a new Tensor": ("self.send(pb.Tensor('X', b)); b[:] = 3; self.send(pb.Tensor('X', b))", 6),
}
AS_ON_A_SERVER = [*SENT_BEFORE][5:]


@pytest.mark.parametrize("isolation", ["kernel", pytest.param("process", marks=pytest.mark.slow)])
def test_a_tensor_is_sent_with_its_first_content_on_a_server(repo: bls.ModelRepository, isolation: str) -> None:
    repo.define("double", DOUBLE, pbtxt())
    bodies = "\n".join(f"        if way == {n}: {body}" for n, (body, _) in enumerate(SENT_BEFORE.values()))
    source = model(f"""
def request(self, tensor):
    return pb.InferenceRequest(model_name="double", requested_output_names=["Y"], inputs=[tensor])

def sum(self, request):
    self.last = int(request.exec().output_tensors()[0].as_numpy().reshape(-1)[0])

def send(self, tensor):
    self.sum(self.request(tensor))

def input(self, requests):
    return requests[0].inputs()[0]

def execute(self, requests):
    b, big = np.zeros(2, np.int32), np.zeros(1 << 16, np.int32)
    for way in requests[0].inputs()[0].as_numpy().tolist():
        self.last = 0
{bodies}
    return [answer(self.last) for _ in requests]
""")  # fmt: skip
    source = source.replace("from tests.engine import gates\n", "")  # a process does not find it
    repo.define("a", source, pbtxt(), isolation=isolation)
    for number, (way, (_, sent)) in enumerate(SENT_BEFORE.items()):
        response = repo.infer("a", ints(number))
        warned = [text for text in response.warnings if "A server sends the content of that time" in text]
        assert (value(response), len(warned)) == (sent, way not in AS_ON_A_SERVER), way


@pytest.mark.parametrize("change", ["x.as_numpy()[:] = 4", "x.as_numpy()"])
def test_an_array_that_is_changed_before_to_dlpack(repo: bls.ModelRepository, change: str) -> None:
    repo.define("a", model(f"""
def execute(self, requests):
    x = requests[0].inputs()[0]
    {change}
    return [answer(int(np.from_dlpack(x)[0]))]
"""), pbtxt())  # fmt: skip
    warned = [text for text in repo.infer("a", ints(1)).warnings if "a server exports the content of before" in text]
    assert len(warned) == ("=" in change)


def test_an_output_that_is_made_once_and_filled_again(repo: bls.ModelRepository) -> None:
    repo.define("a", model("""
def initialize(self, args):
    self.array = np.zeros(1, np.int32)
    self.tensor = pb.Tensor("Y", self.array)

def execute(self, requests):
    self.array[:] = requests[0].inputs()[0].as_numpy()[0]
    return [pb.InferenceResponse([self.tensor]) for _ in requests]
"""), pbtxt())  # fmt: skip
    for number, is_warned in ((1, False), (2, True), (2, True), (1, False)):
        response = repo.infer("a", ints(number))
        warned = [text for text in response.warnings if "output 'Y': its array was changed" in text]
        assert (value(response), len(warned)) == (number, is_warned)
