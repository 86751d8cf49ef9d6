"""The cells of README.md run, one after the other, as a reader would run them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

# A shell of its own process: the cells load the extension and define models.
DRIVER = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}), colors="nocolor")
for cell in json.load(sys.stdin):
    if not shell.run_cell(cell).success:
        sys.exit("this cell of README.md failed:\\n" + cell)
"""


@pytest.mark.slow
def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cells = [textwrap.dedent(cell) for cell in BLOCK.findall((ROOT / "README.md").read_text("utf-8"))]
    assert len(cells) >= 5
    command = [sys.executable, "-c", DRIVER]
    done = subprocess.run(
        command, input=json.dumps(cells), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # A failed line magic raises nothing, so check an answer.
    assert "16" in done.stdout


def test_its_pictures_are_there_and_small() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(pictures) >= 6
    for name in pictures:
        assert (ROOT / name).stat().st_size < 150_000, name
    for name in (name for name in pictures if "-light" in name):
        assert name.replace("-light", "-dark") in pictures
