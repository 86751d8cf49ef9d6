"""SIGINT at chosen events of each kind of request: nothing is lost, and no KeyboardInterrupt is swallowed.

A sample, evenly spread; with the environment variable BLS_TEST_EVERY_EVENT=1 every event.
docs/reference/reliability.md says what that found.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.recording import request_log as recording
from tests.engine import gates
from tests.engine.harness import infer, until
from tests.engine.kinds import CONTROL, REQUESTS, at_rest, fresh_loop, lay_out
from tests.engine.sources import DOUBLE, pbtxt
from tests.waiting import LIMIT

EVERY = bool(os.environ.get("BLS_TEST_EVERY_EVENT"))
SAMPLES = {**dict.fromkeys(REQUESTS, 24), **dict.fromkeys(CONTROL, 12), "track_memory": 4, "compare": 2}
TRACKING = ("track_memory", "compare")


@pytest.fixture(scope="module")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("cc")
    headers = sysconfig.get_path("include")
    if compiler is None or not Path(headers, "Python.h").is_file():
        pytest.skip("needs a C compiler (cc) and the headers of this Python")
    library = tmp_path_factory.mktemp("injector") / "injector.so"
    source = str(Path(__file__).with_name("injector.c"))
    flags = ["-shared", "-fPIC", "-O1", f"-I{headers}"]
    if sys.platform == "darwin":
        flags += ["-undefined", "dynamic_lookup"]
    subprocess.run([compiler, *flags, source, "-o", str(library)], check=True, timeout=LIMIT)
    spec = importlib.util.spec_from_file_location("injector", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_kept: list[bls.ModelRepository] = []  # for all tests, or until one has failed


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    while _kept:
        _kept.pop().close(1)


@contextlib.contextmanager
def laid_out() -> Iterator[bls.ModelRepository]:
    if not _kept:
        _kept.append(bls.ModelRepository())
        lay_out(_kept[0])
    try:
        yield _kept[0]
    except BaseException:
        _kept.pop().close(1)
        raise


# Those that are also to hold where a handler of the user's own raises, which the engine does not put off.
ANYWHERE = (
    "inline", "nested", "async", "of async", "gather", "stream", "half-read stream", "infer_async",
    "stream_async", "cached", "body", "async body", "define", "reload", "unload", "profile", "track_memory",
)  # fmt: skip


_struck_in: list[str] = []  # the files in which the handler `own` has raised


def _raises(_: int, frame: FrameType | None) -> None:
    _struck_in.append("" if frame is None else frame.f_code.co_filename)
    raise KeyboardInterrupt


HANDLERS = {"default": signal.default_int_handler, "own": _raises}


class Striking:
    """Calls with SIGINT at an event, and what came of it."""

    def __init__(self, injector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._injector = injector
        self.unheard: list[Any] = []
        monkeypatch.setattr(sys, "unraisablehook", self.unheard.append)

    def count(self, call: Any) -> int:
        """How many events a call has."""
        return self.strike(0, call)[1]

    def strike(self, n: int, call: Any) -> tuple[bool, int]:
        """Whether KeyboardInterrupt came out of a call, struck at the n-th event, and how many there were."""
        events, tracer = 0, sys.gettrace()
        try:
            try:
                self._injector.start(n)
                call()
            finally:
                events = self._injector.stop()
                for thread in threading.enumerate():
                    if isinstance(thread, threading.Timer):  # one that was caught comes back a moment later
                        thread.join(gates.LIMIT)
        except KeyboardInterrupt:
            return True, events
        except RuntimeError as error:  # what Python's own `Condition` makes of one that strikes inside it
            if not isinstance(error.__context__, KeyboardInterrupt) or "unlocked lock" not in str(error):
                raise
            return True, events
        finally:
            sys.settrace(tracer)
        return False, events


@pytest.fixture
def striking(injector: Any, monkeypatch: pytest.MonkeyPatch) -> Striking:
    return Striking(injector, monkeypatch)


@contextlib.contextmanager
def handler(name: str) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, HANDLERS[name])
    enabled = gc.isenabled()
    gc.disable()  # what strikes is chosen, and no destructor comes in between by chance
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if enabled:
            gc.enable()
        if recording.active is not None:
            gc.collect()  # a profile whose `__exit__` was struck ends with its object, or on another thread
            until(lambda: recording.active is None, "the profile ends")


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    ("kind", "how"),
    [(kind, how) for kind in (*REQUESTS, *CONTROL) for how in HANDLERS if how == "default" or kind in ANYWHERE],
)
def test_struck(striking: Striking, kind: str, how: str) -> None:
    gates.reset()
    expected, once = {**REQUESTS, **CONTROL}[kind]
    struck = 0
    with laid_out() as repo, handler(how):
        for _ in range(2):  # the first is slower, and does more
            with fresh_loop() as loop:
                total = striking.count(lambda: once(repo, loop))
        stride = 1 if EVERY else max(1, total // SAMPLES[kind])
        for n in range(1 + stride // 2, total, stride):
            striking.unheard.clear()
            with fresh_loop() as loop:
                heard, events = striking.strike(n, lambda: once(repo, loop))
            heard = heard or any(u.exc_type is KeyboardInterrupt for u in striking.unheard)
            in_protobuf = "protobuf" in "".join(_struck_in[-1:])  # its parser drops exceptions
            assert heard or events < n or in_protobuf, f"swallowed at event {n} of {total}"
            assert signal.getsignal(signal.SIGINT) is HANDLERS[how], f"left at event {n} of {total}"
            for unheard in striking.unheard:
                assert "bls_notebook" not in repr(unheard.object), f"dropped at event {n}: {unheard}"
            struck += heard
            try:
                if kind == "unload" and "double" not in repo._server.names():
                    repo.define("double", DOUBLE, pbtxt())
                with bls.profile(), bls.track_memory() if kind in TRACKING else contextlib.nullcontext():
                    assert infer(repo, "double", 4) == 8
                if kind in REQUESTS:
                    with fresh_loop() as loop:
                        assert once(repo, loop) == expected
                at_rest(repo)
            except BaseException as error:
                raise AssertionError(f"after SIGINT at event {n} of {total}: {error!r}") from error
        striking.unheard.clear()  # their tracebacks keep objects alive
    assert struck > 0
    if EVERY:
        print(f"\n{kind}, {how} handler: struck {struck} times, at events 1 to {total}")
