"""Shared by all tests: hypothesis profiles, the quick selection, the order and distribution, the skip without a GPU."""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Named here because the entry point is missing if the package is not installed.
pytest_plugins = ["pytester", "pytest_bls_notebook"]

# No deadline, because a shared machine may be slow at any moment. CI uses the same examples in every run.
hypothesis.settings.register_profile("default", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=5)


@functools.cache
def cuda_devices() -> int:
    """Return the number of CUDA devices; 0 without CuPy, driver or device."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except (ImportError, RuntimeError):
        return 0


# `--quick` leaves out tests with these marks, and allows the other ones this much processor time (s).
LEFT_OUT = {"slow", "extra", "gpu", "triton", "browser"}
QUICK_SECONDS = 1.0
REFERENCE_SECONDS = 0.07  # of `slowness` on the machine for which QUICK_SECONDS was chosen


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true",
        help="the first case of each test function that is not marked slow, extra, gpu, triton or browser",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    profile = "ci" if os.environ.get("CI") else "default"
    hypothesis.settings.load_profile("quick" if config.getoption("quick") else profile)
    # A job that a script starts in the background ignores SIGINT, and so would every process that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if gates := sys.modules.get("tests.engine.gates"):
        gates.reset()  # a test before this one may have opened a gate of the same name
    if item.get_closest_marker("gpu") and not cuda_devices():
        pytest.skip("needs a CUDA device")


_OBSERVER = ("an observer", "bls_notebook.engine.observer", "active")
SWITCHES = (("memory tracking", "bls_notebook.devices.allocation_log", "recording"), _OBSERVER)


def _stays_on(module: object, switch: str, seconds: float = 10) -> bool:
    """An operation that Ctrl-C has interrupted may unwind after its prompt has returned, so wait for that."""
    deadline = time.monotonic() + seconds
    while is_on := getattr(module, switch, None) is not None:
        if time.monotonic() > deadline:
            break
        time.sleep(0.001)
    return is_on


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Fail a test that leaves recording switched on, and switch it off for the next test."""
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        exclude_from_collection()
    for recording, name, switch in SWITCHES:
        module = sys.modules.get(name)
        if _stays_on(module, switch):
            if hasattr(module, "clear"):
                module.clear()
            setattr(module, switch, None)
            pytest.fail(f"left on: {recording}", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """With `--quick`, fail a test that belongs to the slow ones. Waiting does not count: the machine may be busy.

    A test fails at three times its limit, because the same test uses more processor time in other versions of Python
    and on a machine whose caches it shares.
    """
    start = sum(os.times()[:4])
    result = yield
    seconds = sum(os.times()[:4]) - start
    limit = 3 * QUICK_SECONDS
    if item.config.getoption("quick") and seconds > limit and seconds > limit * slowness():
        pytest.fail(f"uses {seconds:.1f} s of processor time: mark it slow", pytrace=False)
    return result


def slowness() -> float:
    """Return how many times more processor time Python may need here and now: busy neighbors share its caches."""
    start = time.process_time()
    sum(i * i for i in range(1_000_000))
    return max(1.0, 2 * (time.process_time() - start) / REFERENCE_SECONDS)


# Tests of these folders share a tritonserver or a browser, so one worker runs them.
SHARED = ("tests/browser", "tests/conformance")
OTHERS = ("kit", "live_course", "live_documents", "live_proving")  # files there with servers of their own, or none
OWN_SERVER = tuple(f"tests/conformance/test_{name}.py" for name in OTHERS)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let each worker begin with another folder: it finds the test files that others have rewritten and compiled."""
    config, tests = session.config, Path(__file__).parent
    worker = getattr(config, "workerinput", None)
    if worker and [Path(arg).resolve() for arg in config.args] == [tests]:
        folders = sorted(str(path) for path in tests.glob("[a-z]*") if path.is_dir())
        start = len(folders) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args = folders[start:] + folders[:start]  # pytest_collection_modifyitems sorts again
    gc.disable()
    result = yield
    gc.enable()
    exclude_from_collection()
    return result


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Apply `--quick`, and start with the files that take longest: otherwise one worker finishes late."""
    if config.getoption("quick"):
        first = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
        chosen = {item for item in first.values() if not LEFT_OUT & {mark.name for mark in item.iter_markers()}}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    longest = {scope(item.nodeid) for item in items if item.get_closest_marker("slow")}
    shared = {scope(item.nodeid) for item in items if scope(item.nodeid) in SHARED or item.get_closest_marker("triton")}
    items.sort(key=lambda item: (scope(item.nodeid) not in shared, scope(item.nodeid) not in longest, item.path))


def scope(nodeid: str) -> str:
    """Return what one worker runs as a whole: a file, or a folder whose tests share a server."""
    file = nodeid.split("::")[0]
    folder = file.rpartition("/")[0]
    return folder if folder in SHARED and file not in OWN_SERVER else file


def exclude_from_collection() -> None:
    """Exclude existing objects from garbage collection.

    Tests and the libraries that they import have a million objects. Each collection, and each search for generators
    that own memory, would visit all of them.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run each file, and all tests that share a server or a browser, on one worker."""
    from xdist.scheduler import LoadScopeScheduling

    class ByScope(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    config.option.loadscopereorder = False  # keep our order instead of the number of tests in a file
    return ByScope(config, log)
