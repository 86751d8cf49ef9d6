"""Measure how long `import bls_notebook` and loading the extension take, beyond IPython and NumPy.

    python benchmarks/import_time.py [--runs N] [--json FILE]

Every run starts a new interpreter, with the files already in the page cache. IPython is the shell that `ipython`
starts; a kernel imports more (asyncio among others) before it loads the extension. The claim is under 0.1 s for the
import.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 0.1

BEYOND_IPYTHON_AND_NUMPY = """
import time, sys
import numpy
from IPython.terminal.interactiveshell import TerminalInteractiveShell
from traitlets.config import Config
shell = TerminalInteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
start = time.perf_counter()
import bls_notebook
imported = time.perf_counter()
bls_notebook.load_ipython_extension(shell)
done = time.perf_counter()
print(done - start, imported - start, done - imported)
"""
BEYOND_NUMPY = """
import time
import numpy
start = time.perf_counter()
import bls_notebook
print(time.perf_counter() - start)
"""


def measure(code: str, runs: int, folder: str) -> list[float]:
    """Return the median of each figure that `code` prints.

    With several runs, an extra first run compiles the modules, as an installation does. A single run is a trial.
    """
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": folder}
    if runs > 1:
        environ |= {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
    rows = []
    for _ in range(runs + (runs > 1)):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, env=environ, check=True, stdout=subprocess.PIPE, text=True
        )
        rows.append([float(figure) for figure in done.stdout.split()])
    return [statistics.median(column) for column in zip(*rows[runs > 1 :], strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, help="interpreters started for each figure")
    parser.add_argument("--quick", action="store_true", help="one run: a trial, not a measurement")
    parser.add_argument("--json", type=Path, help="also write the figures, in seconds, to this file")
    options = parser.parse_args()
    if options.quick:
        options.runs = 1
    with tempfile.TemporaryDirectory() as folder:
        total, imported, loaded = measure(BEYOND_IPYTHON_AND_NUMPY, options.runs, folder)
        [alone] = measure(BEYOND_NUMPY, options.runs, folder)
    figures = {
        "import and load, beyond IPython and NumPy": total,
        "  import bls_notebook": imported,
        "  load_ipython_extension": loaded,
        "import bls_notebook alone, beyond NumPy": alone,
    }
    for name, seconds in figures.items():
        print(f"{name:<44}{seconds * 1000:8.1f} ms")
    print(f"{'limit for the first line':<44}{LIMIT * 1000:8.1f} ms")
    if options.json:
        named = {name.strip(): seconds for name, seconds in figures.items()}
        options.json.write_text(json.dumps({"runs": options.runs, "seconds": named}, indent=2) + "\n")


if __name__ == "__main__":
    main()
