"""Every script of `benchmarks/` runs with `--quick`, a trial and not a measurement."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bls_notebook.shipping.servers.server_programs import TritonServerError, make_environment
from tests.browser.lab import find_chromium

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks"
# NumPy's threads spin while they wait for each other, which takes long beside other tests.
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))


def options_of(script: str) -> list[str]:
    """Return the options for a simulated GPU, and for a real server if the script starts one and there is one."""
    source = (FOLDER / script).read_text()
    simulated = ["--simulated"] if '"--simulated"' in source else []
    if '"--no-server"' not in source:
        return simulated
    try:
        return [*simulated, "--triton-env", str(make_environment().folder)]
    except TritonServerError:
        return [*simulated, "--no-server"]


def run(script: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), "--quick", *options],
        capture_output=True, text=True, timeout=300, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def results() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (FOLDER / "results").iterdir()}


def test_benchmarks_are_found_and_explained() -> None:
    assert len(SCRIPTS) >= 9
    readme = (FOLDER / "README.md").read_text()
    assert [name for name in SCRIPTS if f"[{name}]({name})" not in readme] == []


@pytest.mark.slow
@pytest.mark.extra
@pytest.mark.parametrize("script", SCRIPTS)
def test_each_benchmark_runs_quickly(script: str) -> None:
    """Run it on a simulated GPU; skip it if something else is missing."""
    if script == "timeline.py":
        pytest.importorskip("playwright")
        if find_chromium() is None:
            pytest.skip("needs a browser")
    before, options = results(), options_of(script)
    said = run(script, *options)
    assert said
    assert "--triton-env" not in options or "tritonserver" in said
    assert results() == before  # the committed figures come from measurements
    if script == "where_time_goes.py":
        share = re.search(r"^all stages .* (\d+)%", said, re.MULTILINE)
        assert share is not None
        assert int(share[1])  # on a busy machine, far from 100
