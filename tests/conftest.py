"""What every test shares: hypothesis profiles, workers, and the skip for tests that need a GPU."""

from __future__ import annotations

import functools
import os

import hypothesis
import pytest

# A shared machine is slow at odd moments, so no deadline; in CI the same examples on every run, and fewer.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=50)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


@functools.cache
def cuda_devices() -> int:
    """How many CUDA devices CuPy sees; 0 without CuPy, driver or device."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except (ImportError, RuntimeError):
        return 0


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not cuda_devices():
        pytest.skip("needs a CUDA device")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a file on one of `pytest -n`'s workers, and on one what shares a tritonserver or a browser."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        shared = [name for name in ("triton", "browser") if item.get_closest_marker(name)]
        item.add_marker(pytest.mark.xdist_group(shared[0] if shared else item.nodeid.split("::")[0]))
