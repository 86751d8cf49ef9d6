"""Many threads and coroutines, and models that come and go: see `under_load`, which runs on its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Longer where the suite is run for others than at one's own desk.
SECONDS = float(os.environ.get("BLS_LOAD_SECONDS") or (20 if os.environ.get("CI") else 8))


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_is_left() -> None:
    # One arena, or the memory of a process would say more about malloc than about what is kept.
    more = {"MALLOC_ARENA_MAX": "1", "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.repository.under_load", str(SECONDS)],
        cwd=ROOT,
        env={**os.environ, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS + 180,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[:4000]}\n...\n{done.stdout[-8000:]}"
