"""Shared by all tests: hypothesis profiles, the order and distribution of tests, the skip without a GPU."""

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

# Named here because the entry point is missing if the package is not installed.
pytest_plugins = ["pytester", "pytest_bls_notebook"]

# No deadline, because a shared machine may be slow at any moment. CI uses the same examples in every run.
hypothesis.settings.register_profile("default", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


@functools.cache
def cuda_devices() -> int:
    """Return the number of CUDA devices; 0 without CuPy, driver or device."""
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
    """Hide pytest's own stack frames from the search for owners: their variables refer to every test."""
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
    ("memory tracking", "bls_notebook.devices.allocation_log", "recording"),
    ("a profile", "bls_notebook.engine.recording.log", "active"),
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that leaves recording switched on, and switch it off for the next test."""
    result = yield
    for what, name, switch in SWITCHES:
        module = sys.modules.get(name)
        if getattr(module, switch, None) is not None:
            setattr(module, switch, None)
            pytest.fail(f"left on: {what}", pytrace=False)
    return result


# Folders whose tests share a tritonserver or a browser.
SHARED = {"tests/conformance": "triton", "tests/browser": "browser"}
# The longest groups of tests start first; otherwise one worker finishes long after the other.
LONGEST = (
    *("tests/browser/", "tests/conformance/", "tests/network/endpoints/", "tests/shipping/"),
    "tests/repository/test_under_load.py",
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
    """Put the longest tests first."""

    def place(item: pytest.Item) -> int:
        return next((i for i, start in enumerate(LONGEST) if item.nodeid.startswith(start)), len(LONGEST))

    items.sort(key=place)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the million objects of the imported tests from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run each file on one worker, and all tests that share a tritonserver or a browser on one worker."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return SHARED.get(file.rpartition("/")[0], file)

    config.option.loadscopereorder = False  # keep our order instead of the number of tests in a file
    return ByFile(config, log)
