"""SIGINT at points of each operation that starts something: it starts completely or not at all.

Nothing stays behind (models, threads, processes, sockets, files, recordings), and the operation works afterwards.
A sample of points, evenly spread; BLS_TEST_POINTS=160 takes that many, and BLS_TEST_EVERY_EVENT=1 every event.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.devices import allocation_log
from bls_notebook.engine.recording import request_log as recording
from bls_notebook.engine.waiting import interrupts
from tests.engine.harness import infer, ints, until
from tests.engine.sources import pbtxt
from tests.engine.test_injected_interrupts import Striking, handler, injector  # noqa: F401 - a fixture
from tests.shipping.fake_tritonserver import linux, private, stand_in

EVERY = bool(os.environ.get("BLS_TEST_EVERY_EVENT"))
POINTS = int(os.environ.get("BLS_TEST_POINTS", "6"))
MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()) for request in requests]

    def answer(self, x):
"""
DOUBLE = MODEL + '        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x)])'
NESTED = (
    MODEL
    + """        tensor = pb_utils.Tensor("X", x)
        request = pb_utils.InferenceRequest(model_name="double", inputs=[tensor], requested_output_names=["Y"])
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return response
"""
)
Operation = Callable[["Place"], Any]


class Place:
    """What the operations work on: a repository with two models, a server elsewhere, and folders."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        self.out, self.temporary = folder / "out", temporary
        self.out.mkdir()
        self.repo, self.elsewhere = bls.ModelRepository(), bls.ModelRepository()
        self.repo.define("double", DOUBLE, pbtxt())
        self.repo.define("nested", NESTED, pbtxt())
        self.elsewhere.define("remote", DOUBLE, pbtxt())
        self.server = bls.endpoint(self.elsewhere, token="")
        self.program, self.regions = stand_in(folder), folder / "flag.regions"
        self.theirs, self.recording = folder / "theirs", folder / "run.blsrec"
        bls.export(self.theirs, "nested", repo=self.repo)
        config = (self.theirs / "double").rename(self.theirs / "twice") / "config.pbtxt"
        config.write_text(f'name: "double" {config.read_text()}')  # so that `try` makes a folder of links
        with bls.record(self.recording, tensors="all"):
            infer(self.repo, "nested", 4)
        self.before: Counter[str] = Counter()

    def close(self) -> None:
        self.server.stop()
        self.repo.close(1)
        self.elsewhere.close(1)

    def left(self) -> dict[str, Any]:
        """Return what an operation has left behind, by kind; empty if nothing."""
        interrupts._later.clear()
        gc.collect()
        found = {
            "models": set(self.repo._server.names()) ^ {"double", "nested"},
            "substitutes": [name for name in ("double", "nested") if infer(self.repo, name, 4) != 8],
            "recording": [each for each in (recording.active, allocation_log.recording) if each is not None],
            "resources": dict(self.resources() - self.before),
            "beside": [path.name for path in self.out.iterdir() if path.name.startswith(".")],
            "half": [path.name for path in self.out.iterdir() if not _is_whole(path)],
            "critical": list(interrupts.critical_files),
        }
        return {kind: value for kind, value in found.items() if value}

    def resources(self) -> Counter[str]:
        """Count threads, files, sockets, child processes and settings of this process: by name, without numbers."""
        names = [f"thread {t.name}" for t in threading.enumerate() if not t.name.startswith("bls-worker")]
        for each in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                names.append(f"file {each.readlink()}")
        for each in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if os.fsencode(f"TMPDIR={self.temporary}") in each.read_bytes():
                    names.append(f"process {(each.parent / 'cmdline').read_bytes()[:200]!r}")
        names += [
            f"Ctrl-C {signal.getsignal(signal.SIGINT)}",
            f"output {sys.stdout} {sys.stderr}",
            f"log {logging.root.manager.disable}",
        ]
        names += [f"temporary {path.name[:12]}" for path in self.temporary.iterdir()]
        regions = self.regions.read_text().split() if self.regions.exists() else []
        names += [f"memory {name}" for name in os.listdir("/dev/shm") if name.startswith(tuple(regions))]
        return Counter(re.sub("[0-9]+", "", name) for name in names)


def _is_whole(path: Path) -> bool:
    if path.suffix == ".blsrec":
        return bls.load(path) is not None
    return path.name.startswith(".") or (path / "nested" / "1" / "model.py").is_file()


def within(place: Place, context: AbstractContextManager[Any]) -> None:
    with context:
        infer(place.repo, "nested", 4)


def connected(place: Place, url: str) -> None:
    entered = False
    try:
        with bls.connect(url, "remote", repo=place.repo):
            entered = True
            infer(place.repo, "remote", 4)
    except KeyboardInterrupt as error:
        functions = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
        # Ctrl-C between the return of `connect` and the block: the connection is complete, and belongs to the caller.
        if not entered and "connect" not in functions and place.repo.ready("remote"):
            assert infer(place.repo, "remote", 4) == 8
            place.repo.unload("remote")
        raise


FAULTS = ("error", "stall", "not-ready")
OPERATIONS: dict[str, Operation] = {
    "stub": lambda place: within(place, place.repo.stub("double", {"Y": [0]})),
    "drill": lambda place: bls.drill("nested", ints(4), faults=FAULTS, repo=place.repo),
    "endpoint": lambda place: bls.endpoint(place.repo).stop(),
    "connect http": lambda place: connected(place, place.server.url),
    "connect grpc": lambda place: connected(place, f"grpc://{place.server.grpc_url}"),
    "record": lambda place: within(place, bls.record(place.out / "x.blsrec", tensors="all")),
    "replay": lambda place: bls.replay(place.recording, repo=place.repo),
    "profile": lambda place: within(place, bls.profile()),
    "track_memory": lambda place: within(place, bls.track_memory()),
    "compare": lambda place: bls.compare("nested", ints(4), n=2, repeat=1, repo=place.repo),
    "tune": lambda place: bls.tune("nested", ints(4), n=2, repeat=1, repo=place.repo),
    "export": lambda place: bls.export(place.out / "ship", "nested", repo=place.repo),
    "serve": lambda place: bls.serve("double", repo=place.repo, environment=place.program).stop(graceful=False),
    "try": lambda place: bls.try_repository(place.theirs).repository.close(1),
    "check": lambda place: bls.check(repo=place.repo),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("interrupted")
        temporary = private.__wrapped__(folder, patch)  # type: ignore[attr-defined]
        made = Place(folder, temporary)
        yield made
        made.close()


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_stays_behind(
    name: str,
    place: Place,
    injector: Any,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operation, striking = OPERATIONS[name], Striking(injector, monkeypatch)
    bad: list[str] = []
    struck = 0
    with handler("default"):
        operation(place)
        time.sleep(0.5)
        place.before = place.resources()
        total = striking.count(lambda: operation(place))
        stride = 1 if EVERY else max(1, total // POINTS)
        for n in range(1 + stride // 2, total, stride):
            striking.unheard.clear()
            heard, events = striking.strike(n, lambda: operation(place))
            struck += heard
            if not (heard or events < n or striking.unheard or name == "try"):  # it reports the models not tried
                bad.append(f"event {n} of {total}: Ctrl-C was swallowed")
            with contextlib.suppress(AssertionError):
                until(lambda: not place.left(), "nothing is left", 5.0)
            if left := place.left():
                bad.append(f"event {n} of {total}: {left}")
        striking.unheard.clear()
        operation(place)
    print(f"\n{name}: struck {struck} times in {total} events; left behind {len(bad)} times")
    assert not bad, "\n".join(bad)
    assert struck > 0
