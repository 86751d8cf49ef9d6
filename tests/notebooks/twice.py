"""Run all cells of notebooks twice in one kernel, and report the outputs that differ.

    python tests/notebooks/twice.py notebooks/03_devices.ipynb

Cells with varying outputs (tag ``nbval-ignore-output``) are run but not compared. The replacements of
`notebooks/sanitize.cfg` apply.
"""

from __future__ import annotations

import re
import sys
from configparser import RawConfigParser
from difflib import unified_diff
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120
# IPython prints this when a cell loads the extension again.
ALREADY = re.compile(r"^The \w+ extension is already loaded.*\n.*%reload_ext.*\n", re.MULTILINE)


def differences(notebook: Path) -> list[str]:
    """Return a diff of the two runs, cell by cell; empty if they are equal."""
    import nbformat
    from nbclient import NotebookClient

    parsed: Any = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(parsed, timeout=SECONDS, resources={"metadata": {"path": str(notebook.parent)}})
    client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable
    rules, runs = _rules(), []
    with client.setup_kernel():
        for _ in range(2):
            for number, cell in enumerate(parsed.cells):
                client.execute_cell(cell, number)
            runs.append([_outputs(cell, rules) for cell in parsed.cells])
    found = []
    for number, (first, second) in enumerate(zip(*runs, strict=True)):
        if "nbval-ignore-output" not in parsed.cells[number].metadata.get("tags", ()):
            found += list(unified_diff(first, second, f"cell {number}", "again", lineterm="", n=0))
    return found


def _rules() -> list[tuple[re.Pattern[str], str]]:
    config = RawConfigParser()
    config.read(ROOT / "notebooks" / "sanitize.cfg", encoding="utf-8")
    return [(re.compile(config[name]["regex"]), config[name]["replace"]) for name in config.sections()]


def _outputs(cell: Any, rules: list[tuple[re.Pattern[str], str]]) -> list[str]:
    """Return the lines of a cell's outputs as text."""
    lines: list[str] = []
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        for text in (output.get("text", ""), data.get("text/plain", ""), data.get("text/html", "")):
            clean = ALREADY.sub("", text)
            for pattern, replacement in rules:
                clean = pattern.sub(replacement, clean)
            lines += clean.splitlines()
    return [line for line in lines if line]


if __name__ == "__main__":
    problems = {name: differences(Path(name)) for name in sys.argv[1:]}
    for name, lines in problems.items():
        print(name, *(lines or ["the same"]), sep="\n    ")
    sys.exit(any(problems.values()))
