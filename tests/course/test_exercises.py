"""Each exercise of the course rejects wrong solutions with a hint that names the mistake, and accepts right ones."""

from __future__ import annotations

import gc
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from tests.course.exercises.exercise import NOTEBOOKS, Changes, Exercise, changed, source

pytestmark = [  # wrong solutions leave coroutines behind
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TABLES = sorted(file.stem for file in Path(__file__).with_name("exercises").glob("*.py") if file.stem != "exercise")
EXERCISES: dict[str, Exercise] = {}
for table in TABLES:
    EXERCISES |= importlib.import_module(f"tests.course.exercises.{table}").EXERCISES


def test_the_first_line_of_a_folded_solution_shows_nothing() -> None:
    """JupyterLab shows the first line of a folded cell."""
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        shown = {"# A solution"}
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
            first = "".join(cell["source"]).partition("\n")[0]
            if "solution" in cell["metadata"].get("tags", ()):
                assert first in shown, (file.name, cell["id"])
                assert cell["metadata"]["jupyter"]["source_hidden"]
            shown.add(first)


@pytest.fixture
def notebook(cells: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("sklearn")
    monkeypatch.chdir(NOTEBOOKS)
    yield cells
    bls.current_repository().close()
    cells.shell.reset()  # the notebook's variables keep memory of simulated GPUs
    gc.collect()
    gc.freeze()  # the next drill collects for each fault, and would visit all that this notebook imported
    bls.simulate_gpus(0)


def solve(notebook: Any, exercise: Exercise, changes: Changes = ()) -> str:
    """Run a solution and its check; return what they show as text."""
    solution = changed(source(exercise.notebook, exercise.solution), changes, in_check=False)
    shown = [notebook(solution)]
    if exercise.check:
        shown.append(notebook(changed(source(exercise.notebook, exercise.check), changes, in_check=True)))
    last = shown[-1]
    return "\n".join([last.text, last.stdout, last.stderr, str(last.error or "")])


@pytest.mark.parametrize("name", EXERCISES)
def test_wrong_solutions_are_rejected_with_a_hint_that_names_the_mistake(notebook: Any, name: str) -> None:
    exercise = EXERCISES[name]
    assert len(exercise.wrong) >= 5
    for cell in exercise.before:
        text = source(exercise.notebook, cell)
        for _ in range(5):  # on a busy machine, overlap's limit of time may come before its program
            assert notebook(text).success
            if "seen = " not in text or getattr(notebook.shell.user_ns["seen"].code, "source", ""):
                break
    # A busy machine can make one measurement wrong: a check that measures may be asked again.
    check = source(exercise.notebook, exercise.check or exercise.solution)
    tries = 5 if any(word in check for word in ("speedup", "cancelled", "waits")) else 1
    cases = [*((changes, "") for changes in ((), exercise.right, *exercise.rights)), *exercise.wrong]
    problems = []
    for changes, words in cases:
        for _ in range(tries):
            shown = solve(notebook, exercise, changes)
            if ("✗" in shown and words in shown) if words else ("✗" not in shown and "✓" in shown):
                break
        else:
            problems.append(f"{changes}, expected {words or 'no mistake'!r}\n{shown}")
    if problems:
        pytest.fail("\n\n".join(problems), pytrace=False)
