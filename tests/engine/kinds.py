"""Every kind of request, and of what else may be interrupted: one small call of each."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import bls_notebook as bls
from bls_notebook import pb_utils
from bls_notebook.extending import host_of
from tests.engine.ensembles import chain
from tests.engine.harness import assert_all_idle, ints, until, value
from tests.engine.sources import DOUBLE, model, pbtxt

Once = Callable[[bls.ModelRepository, asyncio.AbstractEventLoop], Any]

NESTED = model("""
def execute(self, requests):
    return [answer(value_of(ask("double", number(requests[0])).exec()))]
""")
ASYNC = model("""
async def execute(self, requests):
    await asyncio.sleep(0)
    return [answer(2 * number(requests[0]))]
""")
OF_ASYNC = model("""
def execute(self, requests):
    return [answer(value_of(ask("async", number(requests[0])).exec()))]
""")
LOGS = model("""
def execute(self, requests):
    import logging

    logging.getLogger("bls_test").warning("a line")
    return [answer(2 * number(requests[0]))]
""")
GATHER = model("""
async def execute(self, requests):
    got = await asyncio.gather(*[ask("double", number(requests[0])).async_exec() for _ in range(3)])
    return [answer(value_of(got[0]))]
""")
STREAM = model("""
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        for n in range(3):
            sender.send(answer(number(request) + n))
        sender.send(flags=FINAL)
""")
ROWS = model("""
def execute(self, requests):
    return [pb.InferenceResponse([pb.Tensor("Y", 2 * r.inputs()[0].as_numpy())]) for r in requests]
""")


def batched(more: str) -> str:
    return f"""max_batch_size: 64 {more} instance_group [ {{ kind: KIND_CPU }} ]
        input [ {{ name: "X" data_type: TYPE_INT32 dims: [ 1 ] }} ]
        output [ {{ name: "Y" data_type: TYPE_INT32 dims: [ 1 ] }} ]"""


def lay_out(repo: bls.ModelRepository) -> None:
    """Define the models that the kinds ask."""
    for name, source in {
        "double": DOUBLE, "nested": NESTED, "async": ASYNC, "of_async": OF_ASYNC, "gather": GATHER,
        "logs": LOGS,
    }.items():  # fmt: skip
        repo.define(name, source, pbtxt())
    repo.define("stream", STREAM, pbtxt(decoupled=True))
    repo.define("dynamic", ROWS, batched("dynamic_batching { }"))
    repo.define("sequence", ROWS, batched("sequence_batching { }"))
    repo.define("oldest", ROWS, batched("sequence_batching { oldest { max_candidate_sequences: 64 } }"))
    repo.define("cached", DOUBLE, pbtxt() + "\nresponse_cache { enable: true }")
    repo.define("ensemble", DOUBLE, chain("double", "nested"))


def at_rest(repo: bls.ModelRepository) -> None:
    """Assert that nothing is lost: every request is answered, every instance is idle, no slot or lock is taken."""
    thread = threading.Thread(target=logging.getLogger("bls_test").warning, args=("of another thread",), daemon=True)
    thread.start()
    until(lambda: not thread.is_alive(), "another thread cannot log")
    for name in repo._server.names():
        found: Any = host_of(repo).find(name)
        scheduler = getattr(found.scheduler, "_inner", found.scheduler)
        until(lambda s=scheduler: not s._open, f"a request to {name!r} is never answered")
        assert_all_idle(repo, name)
        assert len(set(scheduler._idle)) == len(found.instances)
        assert not any(i.serving for i in found.instances), name


def _in_rows(repo: bls.ModelRepository, name: str, **more: Any) -> int:
    response = repo.infer(name, {"X": np.array([[4]], np.int32)}, **more)
    assert response.error is None, response.error.message()
    return int(response["Y"].as_numpy()[0, 0])


_sequences = itertools.count(1)


def _sequence(repo: bls.ModelRepository, name: str) -> list[int]:
    number = next(_sequences)
    return [_in_rows(repo, name, correlation_id=number, flags=flags) for flags in (1, 0, 2)]


def _half_read(repo: bls.ModelRepository) -> int:
    responses: Any = repo.stream("stream", ints(4))
    first = value(next(responses))
    responses.close()
    return first


async def _side_by_side(repo: bls.ModelRepository, *names: str) -> list[int]:
    return [value(r) for r in await asyncio.gather(*[repo.infer_async(n, ints(4)) for n in names])]


async def _rows_side_by_side(repo: bls.ModelRepository) -> list[int]:
    rows = {"X": np.array([[4]], np.int32)}
    got = await asyncio.gather(*[repo.infer_async("dynamic", rows) for _ in range(3)])
    return [int(r["Y"].as_numpy()[0, 0]) for r in got]


async def _walk(repo: bls.ModelRepository) -> list[int]:
    return [value(r) async for r in repo.stream_async("stream", ints(4))]


def _ask(name: str) -> Any:
    tensor = pb_utils.Tensor("X", ints(4)["X"])
    return pb_utils.InferenceRequest(model_name=name, inputs=[tensor], requested_output_names=["Y"])


def _number(response: Any) -> int:
    assert not response.has_error(), response.error().message()
    return int(pb_utils.get_output_tensor_by_name(response, "Y").as_numpy()[0])


async def _async_body() -> list[int]:
    return [_number(r) for r in await asyncio.gather(*[_ask("nested").async_exec() for _ in range(3)])]


# What each answers, and how it is asked.
REQUESTS: dict[str, tuple[Any, Once]] = {
    "inline": (8, lambda repo, loop: value(repo.infer("double", ints(4)))),
    "nested": (8, lambda repo, loop: value(repo.infer("nested", ints(4)))),
    "async": (8, lambda repo, loop: value(repo.infer("async", ints(4)))),
    "of async": (8, lambda repo, loop: value(repo.infer("of_async", ints(4)))),
    "gather": (8, lambda repo, loop: value(repo.infer("gather", ints(4)))),
    "logs": (8, lambda repo, loop: value(repo.infer("logs", ints(4)))),
    "stream": ([4, 5, 6], lambda repo, loop: [value(r) for r in repo.stream("stream", ints(4))]),
    "half-read stream": (4, lambda repo, loop: _half_read(repo)),
    "infer_async": (
        [8, 8, 8],
        lambda repo, loop: loop.run_until_complete(_side_by_side(repo, "double", "double", "async")),
    ),
    "stream_async": ([4, 5, 6], lambda repo, loop: loop.run_until_complete(_walk(repo))),
    "dynamic batcher": (8, lambda repo, loop: _in_rows(repo, "dynamic")),
    "dynamic batcher, queued": (
        [8, 8, 8], lambda repo, loop: loop.run_until_complete(_rows_side_by_side(repo)),
    ),
    "sequence batcher": ([8, 8, 8], lambda repo, loop: _sequence(repo, "sequence")),
    "oldest sequence": ([8, 8, 8], lambda repo, loop: _sequence(repo, "oldest")),
    "ensemble": (16, lambda repo, loop: value(repo.infer("ensemble", ints(4)))),
    "cached": (8, lambda repo, loop: value(repo.infer("cached", {"X": np.array([4], np.int32)}))),
    "body": (8, lambda repo, loop: repo.run(lambda: _number(_ask("nested").exec()))),
    "async body": ([8, 8, 8], lambda repo, loop: repo.run(_async_body)),
}  # fmt: skip


def _profile(repo: bls.ModelRepository, loop: asyncio.AbstractEventLoop) -> int:
    with bls.profile():
        return value(repo.infer("nested", ints(4)))


def _track(repo: bls.ModelRepository, loop: asyncio.AbstractEventLoop) -> int:
    with bls.track_memory():
        return value(repo.infer("nested", ints(4)))


def _unload(repo: bls.ModelRepository, loop: asyncio.AbstractEventLoop) -> int:
    if "double" not in repo._server.names():
        repo.define("double", DOUBLE, pbtxt())
    repo.unload("double")
    return 0


def _compare(repo: bls.ModelRepository, loop: asyncio.AbstractEventLoop) -> int:
    bls.compare("double", ints(4), n=2, instances=[1], repeat=1, repo=repo)
    return 0


CONTROL: dict[str, tuple[Any, Once]] = {
    "define": (None, lambda repo, loop: repo.define("double", DOUBLE, pbtxt()) and None),
    "reload": (None, lambda repo, loop: repo.reload("double") and None), "unload": (0, _unload),
    "profile": (8, _profile), "track_memory": (8, _track), "compare": (0, _compare),
}  # fmt: skip


@contextlib.contextmanager
def fresh_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that may be left in the middle of anything."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    try:
        yield loop
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        for _ in range(4 if tasks else 0):  # not until they are done: of one struck in asyncio itself, never
            with contextlib.suppress(KeyboardInterrupt):  # asyncio raises that of one task in who awaits it
                loop.call_soon(loop.stop)  # a run that was struck may have left a stop behind as well
                loop.run_forever()
        loop.close()
