"""The types that the browser modules state in comments hold, where there is a TypeScript to check them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

WIDGETS = Path(__file__).resolve().parents[2] / "widgets"


def test_the_modules_of_the_widgets_check() -> None:
    tsc = shutil.which("tsc")
    if tsc is None:
        pytest.skip("needs TypeScript: npm install --global typescript")
    done = subprocess.run([tsc, "-p", str(WIDGETS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
