"""docs/guides/data_sets.md runs as written: the loop, the map and Dask, and the engines that are installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/guides/data_sets.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python ?(\w*)\n(.*?)^```", GUIDE, re.M | re.S)


def run(engine: str, tmp_path: Path) -> None:
    """Run the blocks without an engine, and those of this one, as a script."""
    script = tmp_path / "recipe.py"
    script.write_text("\n".join(code for name, code in BLOCKS if name in ("", engine)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_loop_map_and_dask(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    run("dask", tmp_path)


@pytest.mark.extra
@pytest.mark.parametrize("engine", ["ray", "spark", "datasets"])
def test_other_engines(engine: str, tmp_path: Path) -> None:
    pytest.importorskip({"spark": "pyspark"}.get(engine, engine))
    run(engine, tmp_path)
