"""All code of an instance runs on its own thread, for every kind of request. State: `test_thread_state`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from tests.engine import gates
from tests.engine.ensembles import chain
from tests.engine.harness import Caller, infer, ints, row, value
from tests.engine.kinds import batched
from tests.engine.sources import caller_of, model, pbtxt

# Notes the thread of each part of its code, and fails if thread-bound objects of `initialize` do not work.
KEPT = (
    model("""
@staticmethod
def auto_complete_config(config):
    note("auto_complete_config")
    return config

def initialize(self, args):
    self.name = args["model_instance_name"]
    self.local = threading.local()
    self.local.values = []
    self.database = sqlite3.connect(":memory:")
    self.database.execute("create table seen (x)")
    note("initialize", self.name)

def use(self, requests):
    self.database.execute("insert into seen values (1)")
    self.local.values.extend(requests)
    note("execute", self.name)

def finalize(self):
    note("finalize", self.name, bool(self.local.values))
    self.database.close()
    note("closed", self.name)

def execute(self, requests):
    self.use(requests)
    return [same(request) for request in requests]
""")
    + """

import sqlite3

def note(*facts):
    gates.log.put((threading.get_ident(), *facts))

def same(request):
    return pb.InferenceResponse([pb.Tensor("Y", request.inputs()[0].as_numpy())])

note("import")
"""
)
DECOUPLED = KEPT.replace(
    "return [same(request) for request in requests]",
    "[request.get_response_sender().send(same(request), FINAL) for request in requests]",
)
ASYNC = KEPT.replace("def execute", "async def execute").replace("self.use(requests)", 'note("execute", self.name)')
FETCHES = model("""
async def execute(self, requests):
    got = await asyncio.gather(*[ask("kept", n).async_exec() for n in range(4)])
    return [answer(value_of(got[-1]))]
""")
IN_BARE_THREAD = model("""
def execute(self, requests):
    got = []
    thread = threading.Thread(target=lambda: got.append(ask("kept", 1).exec()))
    thread.start()
    thread.join()
    return [answer(value_of(got[0]))]
""")
READS_STREAM = model("""
def execute(self, requests):
    return [answer(value_of(next(iter(ask("kept", 1).exec(decoupled=True)))))]
""")
WARM_UP = """
model_warmup [ {
    name: "zeros" batch_size: 1
    inputs { key: "X" value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } }
} ]
"""


def fields(more: str = "", count: int = 1, decoupled: bool = False) -> str:
    return pbtxt(count, decoupled) + "\n" + more


def together(repo: bls.ModelRepository, inputs: dict[str, Any], count: int = 6) -> None:
    async def ask() -> list[Any]:
        return await asyncio.gather(*[repo.infer_async("kept", inputs) for _ in range(count)])

    for response in asyncio.run(ask()):
        assert response.error is None, response.error.message()


def through(source: str) -> Callable[[bls.ModelRepository], Any]:
    """Return a function that sends a request to `kept` from another model."""

    def call(repo: bls.ModelRepository) -> None:
        repo.define("caller", source, pbtxt())
        for _ in range(2):
            infer(repo, "caller")

    return call


def through_ensemble(repo: bls.ModelRepository) -> None:
    repo.define("steps", KEPT, chain("kept", "kept"))
    infer(repo, "steps")


def sequence(repo: bls.ModelRepository) -> None:
    for flags in (1, 0, 2):
        assert repo.infer("kept", row(1), correlation_id=1, flags=flags).error is None


def profiled(repo: bls.ModelRepository) -> None:
    with bls.profile():
        infer(repo, "kept")


async def read_stream(repo: bls.ModelRepository) -> None:
    assert [value(response) async for response in repo.stream_async("kept", ints(3))] == [3]


WAYS: dict[str, tuple[str, Callable[[bls.ModelRepository], Any]]] = {
    "notebook": (fields(), lambda repo: infer(repo, "kept")),
    "another thread": (fields(), lambda repo: Caller(infer, repo, "kept").result()),
    "queued": (fields(), lambda repo: together(repo, ints(1))),
    "two instances": (fields(count=2), lambda repo: together(repo, ints(1))),
    "exec": (fields(), through(caller_of("kept"))),
    "async_exec": (fields(), through(FETCHES)),
    "bare thread": (fields(), through(IN_BARE_THREAD)),
    "dynamic batch": (batched("dynamic_batching { }"), lambda repo: together(repo, row(1))),
    "no batcher": (batched(""), lambda repo: together(repo, row(1))),
    "sequence": (batched("sequence_batching { }"), sequence),
    "oldest": (batched("sequence_batching { oldest { max_candidate_sequences: 4 } }"), sequence),
    "ensemble": (fields(), through_ensemble),
    "cached": (fields("response_cache { enable: true }"), lambda repo: together(repo, ints(1))),
    "profile": (fields(), profiled),
    "warm-up": (fields(WARM_UP), lambda repo: None),
    "stream": (fields(decoupled=True), lambda repo: [value(r) for r in repo.stream("kept", ints(3))]),
    "stream_async": (fields(decoupled=True), lambda repo: asyncio.run(read_stream(repo))),
    "stream of a model": (fields(decoupled=True), through(READS_STREAM)),
}


def notes_of(config: str, source: str, call: Callable[[bls.ModelRepository], Any]) -> list[Any]:
    """Return the notes of the model `kept`, from its import to its end."""
    gates.reset()
    with bls.ModelRepository(cache_bytes=1 << 20) as repo:
        repo.define("kept", source, config)
        call(repo)
    return gates.logged()


def threads_of(notes: list[Any], *parts: str) -> set[int]:
    return {thread for thread, part, *_ in notes if part in parts}


@pytest.mark.parametrize("way", WAYS)
def test_all_code_of_an_instance_runs_on_its_thread(way: str) -> None:
    config, call = WAYS[way]
    notes = notes_of(config, DECOUPLED if "decoupled: true" in config else KEPT, call)
    names = {name for _, part, *rest in notes if part == "initialize" for name in rest}
    assert len(names) == (2 if way == "two instances" else 1)
    for name in names:
        own = [note for note in notes if note[2:3] == (name,)]
        assert len({thread for thread, *_ in own}) == 1
        parts = [part for _, part, *_ in own]
        assert parts == ["initialize", *["execute"] * (len(parts) - 3), "finalize", "closed"]
    assert threads_of(notes, "execute")
    assert len(threads_of(notes, "initialize")) == len(names)  # no two instances share a thread
    assert threads_of(notes, "import") == threads_of(notes, "initialize")  # each instance imports its own modules
    assert {notes[0][:2], *(note[:2] for note in notes if note[1] == "auto_complete_config")} == {
        (notes[0][0], "import"), (notes[0][0], "auto_complete_config"),
    }  # fmt: skip
    assert (notes[0][0], "initialize", "kept_0_0") in notes


@pytest.mark.parametrize("way", ["notebook", "another thread", "queued", "exec", "async_exec", "ensemble", "warm-up"])
def test_an_async_execute_runs_on_one_thread_and_the_rest_on_the_instances(way: str) -> None:
    config, call = WAYS[way]
    notes = notes_of(config, ASYNC, call)
    (loop,), (home,) = threads_of(notes, "execute"), threads_of(notes, "import", "initialize", "finalize")
    assert loop != home


@pytest.mark.parametrize("config", ["", "max_batch_size: 4 dynamic_batching {}"], ids=["default", "batcher"])
def test_idle_instances_take_turns_as_the_threads_of_a_server_do(config: str) -> None:
    source = """
import numpy as np
import triton_python_backend_utils as pb
class TritonPythonModel:
    def initialize(self, args):
        self.number = int(args["model_instance_name"][-1])
    def execute(self, requests):
        number = np.full((1, 1), self.number, np.int32)
        return [pb.InferenceResponse([pb.Tensor("Y", number)]) for request in requests]
"""
    dims = "[1]" if config else "[1, 1]"
    tensors = f'input [{{ name: "X" data_type: TYPE_INT32 dims: {dims} }}]'
    tensors += tensors.replace("input", " output").replace("X", "Y")
    with bls.ModelRepository() as repo:
        repo.define("m", source, f"{config} {tensors} instance_group [{{ count: 3 }}]")
        served = [int(repo.infer("m", {"X": np.zeros((1, 1), np.int32)})["Y"].as_numpy()[0, 0]) for _ in range(6)]
    assert served == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("config", ["", "max_batch_size: 1 dynamic_batching {}"], ids=["default", "batcher"])
def test_requests_go_to_the_instances_of_a_decoupled_model_evenly(config: str) -> None:
    """The first instance whose execute returns takes no requests of those whose execute has not begun."""
    source = """
import numpy as np
import triton_python_backend_utils as pb
from tests.engine import gates
class TritonPythonModel:
    def execute(self, requests):
        all_senders = gates.shared.setdefault("evenly", {})
        all_senders.setdefault(id(self), []).extend(request.get_response_sender() for request in requests)
        if sum(map(len, all_senders.values())) == 8:
            for senders in all_senders.values():
                for sender in senders:
                    number = pb.Tensor("Y", np.full((1, 1), len(senders), np.int32))
                    sender.send(pb.InferenceResponse([number]), flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
    tensors = f'input [{{ name: "X" data_type: TYPE_INT32 dims: {"[1]" if config else "[1, 1]"} }}]'
    tensors += tensors.replace("input", " output").replace("X", "Y")
    gates.shared.pop("evenly", None)

    async def ask() -> list[int]:
        streams = await asyncio.gather(*(_all(repo) for _ in range(8)))
        return [int(stream[0]["Y"].as_numpy()[0, 0]) for stream in streams]

    with bls.ModelRepository() as repo:
        config += f" {tensors} instance_group [{{ count: 4 }}] model_transaction_policy {{ decoupled: true }}"
        repo.define("m", source, config)
        before = sys.getswitchinterval()
        sys.setswitchinterval(60)  # so that threads take turns only where they wait
        try:
            served = repo.run(ask)
        finally:
            sys.setswitchinterval(before)
    assert max(served) <= 3, served


async def _all(repo: bls.ModelRepository) -> list[Any]:
    return [response async for response in repo.stream_async("m", {"X": np.zeros((1, 1), np.int32)})]
