"""Each capability can be removed: the core works, the rest passes its quick tests, missing names say so.

A capability's folder is deleted from a copy of the package, together with the capabilities that need it.
"""

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
QUICK = {
    "core": ["repository/test_layout.py", "observe/test_visible.py"],
    "simulation": ["devices/test_registry.py"],
    "engines": ["engines/test_tensor_positions.py"],
    "profiling": ["profiling/test_call_graph.py"],
    "lifetimes": ["lifetimes/test_records.py"],
    "inspection": ["inspection/test_models.py"],
    "checking": ["checking/test_memory.py"],
    "trying": ["trying/test_deadline.py"],
    "network": ["network/kserve/test_http_client.py"],
    "shipping": ["display/test_exported.py"],
    "testing": ["testing/test_snapshots.py"],
    "course": ["course/test_completion.py"],
}


def with_dependents(removed: str) -> set[str]:
    """Return a capability and all that need it, directly or not."""
    found = {removed}
    while more := {name for name, needs in CAPABILITIES.items() if needs & found} - found:
        found |= more
    return found


def run(folder: Path, *arguments: str) -> None:
    environ = {**os.environ, "PYTHONPATH": str(folder), "IPYTHONDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environ, capture_output=True, text=True, timeout=280,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_rest_works_without(capability: str, tmp_path: Path) -> None:
    removed = with_dependents(capability)
    for folder in ("bls_notebook", "widgets"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    unused = shutil.ignore_patterns("conformance", "browser", "notebooks", "samples", "packaging")
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=unused)
    for file in ("pyproject.toml", "pytest_bls_notebook.py"):
        shutil.copy(ROOT / file, tmp_path)
    for name in removed:
        shutil.rmtree(tmp_path / "bls_notebook" / name)
    run(tmp_path, str(Path(__file__).with_name("removal_check.py")), *sorted(removed))
    quick = [f"tests/{file}" for name, files in QUICK.items() if name not in removed for file in files]
    run(tmp_path, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *quick)


def test_every_capability_has_quick_tests() -> None:
    assert QUICK.keys() == {"core", *CAPABILITIES}
