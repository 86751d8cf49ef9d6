"""Files that a model's code looks for and does not find, without an error."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bls_notebook.display import render
from tests.trying.conftest import DOUBLES, PYTHON, put

LOOKS = """
import os, pathlib, tempfile
from beside import reads
HERE = pathlib.Path(__file__).parent
found = os.path.exists(__file__), os.path.exists(HERE / "a.txt"), pathlib.Path("/no/b.txt").exists()
list(pathlib.Path("/no/folder").glob("*")), reads("/no/c.txt"), os.path.isfile("/no/later/data.txt")
made = HERE / "made.txt"
made.exists() or made.write_text("")
with tempfile.TemporaryDirectory() as folder:
    os.path.exists(folder + "/gone.txt")
"""


@pytest.mark.parametrize("in_kernel", [True, False])
def test_files_that_code_looks_for_in_vain_are_listed(trying: Any, tmp_path: Path, in_kernel: bool) -> None:
    functions = os.stat, os.scandir, io.open, open
    beside = "def reads(path):\n    try:\n        return open(path)\n    except OSError:\n        pass"
    files = {"1/model.py": LOOKS + DOUBLES, "1/beside.py": beside, "later/data.txt": ""}
    put(tmp_path, "m", PYTHON, files)
    put(tmp_path, "quiet", PYTHON, {"1/model.py": DOUBLES})
    late = DOUBLES.replace("arrays =", "raise ValueError('/no/later/data.txt does not exist')\n        arrays =")
    put(tmp_path, "late", PYTHON, {"1/model.py": late, "later/data.txt": ""})
    _, rows = trying(in_kernel=in_kernel)
    missing = {os.path.abspath(path): place for path, _, place in (each.partition(" (") for each in rows["m"].missing)}
    here = tmp_path / "m" / "1"
    assert missing.keys() - {"/no/folder"} >= {f"{here / 'a.txt'}", "/no/b.txt", "/no/c.txt", "/no/later/data.txt"}
    assert not missing.keys() & {str(here / "made.txt"), str(here / "model.py")}
    assert missing["/no/later/data.txt"].endswith("m/later has it)")
    assert rows["late"].missing[0].endswith("late/later has it)"), "where the file is that an answer's error names"
    assert (rows["quiet"].missing, rows["m"].kind) == ((), "real")
    assert "looked for files that it did not find" in " ".join(render(rows[""]).text.split())
    assert (os.stat, os.scandir, io.open, open) == functions
    (tmp_path / "link").symlink_to("nowhere")
    shutil.copytree(tmp_path, tmp_path / "copy", symlinks=True)
