"""Without a capability and those that need it, the core and the others work, and missing names have clear errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bls_notebook.capabilities import registry

ROOT = Path(__file__).resolve().parents[2]
CAPABILITIES = {each.name: set(each.needs) for each in registry().enabled() if each.name != "core"}
# Quick tests of each capability; they run in every removal.
QUICK = {
    "core": ["repository/source/test_model_folders.py"],
    "simulation": ["devices/test_stacks.py"],
    "engines": ["engines/test_tensor_positions.py"],
    "profiling": ["profiling/test_session_analysis.py"],
    "lifetimes": ["lifetimes/test_records.py"],
    "inspection": ["inspection/test_models.py"],
    "checking": ["checking/test_memory.py"],
    "trying": ["trying/test_example.py"],
    "network": ["network/kserve/test_http_client.py::test_an_answer"],
    "shipping": ["shipping/test_display.py"],
    "testing": ["testing/test_snapshots.py::test_what_else_may_differ"],
    "course": ["course/test_magics.py"],
}


def with_dependents(removed: str) -> set[str]:
    """Return a capability and all that need it, directly or not."""
    found = {removed}
    while more := {name for name, needs in CAPABILITIES.items() if needs & found} - found:
        found |= more
    return found


@pytest.mark.extra
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_rest_works_without(capability: str, tmp_path: Path) -> None:
    removed = with_dependents(capability)
    left_out = shutil.ignore_patterns(*removed)
    package = str(ROOT / "bls_notebook")
    shutil.copytree(
        package, tmp_path / "bls_notebook", ignore=lambda at, names: left_out(at, names) if at == package else ()
    )
    for name in ("widgets", "tests", "pyproject.toml", "pytest_bls_notebook.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    quick = [f"tests/{test}" for name, tests in QUICK.items() if name not in removed for test in tests]
    # One process for all tests, with few plugins: importing the others takes seconds.
    environ = {
        **os.environ, "PYTHONPATH": str(tmp_path), "IPYTHONDIR": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # fmt: skip
    check = str(Path(__file__).with_name("removal_check.py"))
    done = subprocess.run(
        [sys.executable, check, ",".join(sorted(removed)), *quick], cwd=tmp_path, env=environ, capture_output=True,
        text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def test_every_capability_has_quick_tests() -> None:
    assert QUICK.keys() == {"core", *CAPABILITIES}
    files = {ROOT / "tests" / test.partition("::")[0] for tests in QUICK.values() for test in tests}
    assert [file.name for file in files if not file.is_file()] == []
