"""What every test shares: hypothesis profiles, workers, and the skip for tests that need a GPU."""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from types import FrameType
from typing import Any

import hypothesis
import pytest

# The plugin by its name, for where it was not installed with the rest yet.
pytest_plugins = ["pytester", "pytest_bls_notebook"]

# A shared machine is slow at odd moments, so no deadline; in CI the same examples on every run.
hypothesis.settings.register_profile("default", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


@functools.cache
def cuda_devices() -> int:
    """How many CUDA devices CuPy sees; 0 without CuPy, driver or device."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except (ImportError, RuntimeError):
        return 0


def pytest_configure() -> None:
    # A job that a script starts in the background ignores SIGINT, and so would every process that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not cuda_devices():
        pytest.skip("needs a CUDA device")


PYTESTS = ("_pytest.", "pluggy.", "xdist.", "execnet.", __name__)


@pytest.fixture(scope="session", autouse=True)
def _pytest_holds_nothing() -> Iterator[None]:
    """No memory track looks for holders in pytest's own variables: they lead to every test."""
    try:
        from bls_notebook.lifetimes import owners as holders
    except ImportError:  # the test of removed capabilities
        yield
        return

    def stacks() -> dict[int, list[FrameType]]:
        return {thread: [f for f in frames if not is_pytests(f)] for thread, frames in all_of_them().items()}

    all_of_them = holders.stacks
    stacks.__module__ = all_of_them.__module__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holders, "stacks", stacks)
        yield


def is_pytests(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(PYTESTS)


SWITCHES = (
    ("a memory track", "bls_notebook.devices.allocation_log", "recording"),
    ("a profile", "bls_notebook.engine.recording.log", "active"),
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Nothing that a test turned on stays on: the next would be told that it is on already."""
    result = yield
    for what, name, switch in SWITCHES:
        module = sys.modules.get(name)
        if getattr(module, switch, None) is not None:
            setattr(module, switch, None)
            pytest.fail(f"left on: {what}", pytrace=False)
    return result


# What shares a tritonserver, and what a browser: by the folder of its file.
SHARED = {"tests/conformance": "triton", "tests/triton": "triton", "tests/browser": "browser"}
# What takes longest of all that has to stay together begins first, or one worker ends long after the other.
LONGEST = (
    *("tests/browser/", "tests/conformance/", "tests/triton/", "tests/repository/test_under_load.py"),
    *("tests/benchmarks/", "tests/lifetimes/test_memory_random.py", "tests/lifetimes/test_track_memory.py"),
    *(
        "tests/engine/test_recorded_batches.py",
        "tests/profiling/test_compare.py",
        "tests/profiling/test_tune.py",
        "tests/repository/profiling/",
        "tests/packaging/",
    ),
    *("tests/testing/test_plugin.py", "tests/engine/test_cycles.py", "tests/display/test_hostile.py"),
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes longest first."""

    def place(item: pytest.Item) -> int:
        return next((i for i, start in enumerate(LONGEST) if item.nodeid.startswith(start)), len(LONGEST))

    items.sort(key=place)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Every test has been imported, a million objects, which no garbage collection need look at again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file on one of `pytest -n`'s workers, and on one what shares a tritonserver or a browser."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return SHARED.get(file.rpartition("/")[0], file)

    config.option.loadscopereorder = False  # by the number of tests in a file
    return ByFile(config, log)
