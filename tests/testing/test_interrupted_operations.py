"""Ctrl-C at calls and returns in each operation that starts something: it starts completely or not at all.

Nothing stays behind (models, threads, processes, sockets, files, recordings), and the operation works afterwards.
A sample of points, evenly spread; BLS_TEST_POINTS=160 takes that many.
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
from bls_notebook.engine import observer
from bls_notebook.engine.waiting import operations
from bls_notebook.engine.waiting.parker import requester
from tests.engine.harness import infer, ints, until
from tests.engine.sources import pbtxt
from tests.shipping.fake_tritonserver import linux, private, stand_in

POINTS = int(os.environ.get("BLS_TEST_POINTS", "4"))
PROMPT = 20.0  # seconds until the prompt comes, on a busy machine
PACKAGE = str(Path(bls.__file__).parent)
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
        gc.collect()
        found = {
            "models": set(self.repo._server.names()) ^ {"double", "nested"},
            "substitutes": [name for name in ("double", "nested") if infer(self.repo, name, 4) != 8],
            "recording": [each for each in (observer.active, allocation_log.recording) if each is not None],
            "resources": dict(self.resources() - self.before),
            "beside": [path.name for path in self.out.iterdir() if path.name.startswith(".")],
            "half": [path.name for path in self.out.iterdir() if not _is_whole(path)],
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
        return bls.open_file(path) is not None
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


def tried(place: Place) -> None:
    repository = bls.try_repository(place.theirs).repository
    sys.setprofile(None)  # a `close` that has not begun can be repeated
    repository.close(1)


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
    "try": lambda place: tried(place),
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


class Strikes:
    """Counts calls and returns in the package, on the main thread or in its operations, and presses Ctrl-C at one."""

    def __init__(self, on_main: bool, patch: pytest.MonkeyPatch) -> None:
        self.on_main, self.at, self.count, self.pressed = on_main, 0, 0, 0.0
        run = operations.Operation.run

        def watched(operation: operations.Operation, call: Callable[[], Any]) -> Any:
            before = sys.getprofile()
            sys.setprofile(self.tick if requester() == threading.main_thread().ident else before)
            try:
                return run(operation, call)
            finally:
                sys.setprofile(before)

        if not on_main:
            patch.setattr(operations.Operation, "run", watched)

    def run(self, call: Callable[[], Any], at: int = 0) -> bool:
        """Run the operation; return whether Ctrl-C interrupted it."""
        self.at, self.count = at, 0
        try:
            sys.setprofile(self.tick if self.on_main else None)
            call()
            time.sleep(0)  # for Ctrl-C at the last moment
        except KeyboardInterrupt:
            assert time.monotonic() - self.pressed < PROMPT
            return True
        finally:
            sys.setprofile(None)
        return False

    def tick(self, frame: Any, event: str, _: object) -> None:
        ended = frame.f_code if event == "return" else None
        frame = frame.f_back if ended else frame
        if event not in ("call", "return") or frame is None or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        if ended is operations.perform.__code__ and frame.f_code.co_name[:2] != "__":
            return  # the operation is complete, as when Ctrl-C strikes its caller
        if frame.f_code.co_name == "died" or (ended is not None and ended.co_name == "_remove"):
            return  # Python loses an exception in a destructor, and in the callback of a weak set
        self.count += 1
        if self.count != self.at:
            return
        self.pressed = time.monotonic()
        if self.on_main:
            handler: Any = signal.getsignal(signal.SIGINT)
            handler(signal.SIGINT, frame)
        else:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("on_main", [True, False])
@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_stays_behind(name: str, on_main: bool, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def operation() -> Any:
        return OPERATIONS[name](place)

    strikes = Strikes(on_main, monkeypatch)
    bad: list[str] = []
    operation()
    place.before = place.resources()
    assert not strikes.run(operation)
    total = strikes.count
    for n in range(1, total + 1, max(1, total // POINTS)):
        heard = strikes.run(operation, n)
        if not (heard or strikes.count < n or name == "try"):  # it reports the models not tried
            bad.append(f"event {n} of {total}: Ctrl-C was swallowed")
        with contextlib.suppress(AssertionError):
            until(lambda: not place.left(), "nothing is left", 5.0)
        if left := place.left():
            bad.append(f"event {n} of {total}: {left}")
    assert not strikes.run(operation)
    assert not bad, "\n".join(bad)
