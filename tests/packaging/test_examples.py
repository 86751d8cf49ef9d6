"""The commands of the example project's CI file pass in a copy of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bls_notebook as bls

ROOT = Path(bls.__file__).parents[1]
EXAMPLE = ROOT / "examples" / "language"


@pytest.mark.slow
def test_what_its_ci_file_runs_passes(tmp_path: Path) -> None:
    copy = shutil.copytree(EXAMPLE, tmp_path / "language", ignore=shutil.ignore_patterns("__pycache__", ".*cache"))
    workflow = (EXAMPLE / ".github" / "workflows" / "test.yml").read_text()
    steps = [step for step in re.findall(r"- run: (.+)", workflow) if not step.startswith("pip install")]
    assert [step.split()[0] for step in steps] == ["python", "pytest"]
    # As on GitHub, and with this package instead of an installed one.
    plugin = "-p pytest_bls_notebook" if "site-packages" not in bls.__file__ else ""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV_"))},
        "CI": "true",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": f"-p no:cacheprovider {plugin}",
    }
    for step in steps:
        command = step if step.startswith("python") else f"python -m {step}"
        words = [sys.executable, *command.split()[1:]]
        done = subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "11 passed" in done.stdout
    assert re.search(r"models/detect/1/model\.py +\d+ +0 +100%", done.stdout)
