"""What the documents show works: README.md, the capability of docs/guides/extending.md, the example project."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?:^<!-- ([^\n]*) -->\n+)?^```python\n(.*?)^```(?:\n+^```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE
)
# A measured time or rate, or a word with digits such as an address: they differ from run to run.
MEASURED = re.compile(r"[\d.,]+ ?(?:ns|µs|ms|s|min|/s|x|%)(?!\w)|\b0x\w+")
OTHER_TESTS = ("data_sets.md", "extending.md", "testing.md")  # this module, tests/data_sets and tests/testing run them

# The blocks of a page run in one shell and in an empty folder. A page gets no variable and no model of another page.
# Prints for each page and block whether it succeeded, its error, and what it showed.
DRIVER = """
import contextlib, io, json, os, sys, tempfile
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}), colors="nocolor")
shell.run_line_magic("load_ext", "bls_notebook")
shell.run_line_magic("config", "BLSNotebook.raise_errors = True")
import bls_notebook as bls

found = []
for folder, blocks in json.load(sys.stdin):
    os.chdir(folder or tempfile.mkdtemp())
    shell.reset()
    shell.run_line_magic("config", "BLSNotebook.simulated_gpus = 0")
    bls.current_repository().close()
    bls.set_current_repository(bls.ModelRepository())
    found.append([])
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            result = shell.run_cell(block)
        reason = str(result.error_in_exec or result.error_before_exec or "")
        found[-1].append((result.success, reason, shown.getvalue()))
print(json.dumps(found))
"""


def run(arguments: list[str], **options: Any) -> str:
    """Run Python; return its output."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=6 * LIMIT, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pages() -> list[Path]:
    """Return README.md and the pages of the manual that nobody generates."""
    manual = (path for kind in ("", "*/") for path in (ROOT / "docs").glob(f"{kind}*.md"))
    return [ROOT / "README.md", *sorted(manual)]


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Return the Python blocks of a page, each with the error and the output that the page shows.

    A comment above a block has a part of the error, ``<!-- fails: circular BLS -->``, or the reason why the block is
    left out, ``<!-- not run: needs a server -->``. A text block below it has its output, in which ``...`` stands
    for any text; with a comment ``<!-- varies -->`` before it, nobody compares it.
    """
    found = [(comment, textwrap.dedent(code), output) for comment, code, output in BLOCK.findall(text)]
    assert all(comment == "" or comment.startswith(("fails: ", "not run: needs ")) for comment, *_ in found)
    return [(comment.removeprefix("fails: "), *rest) for comment, *rest in found if not comment.startswith("not run")]


def comparable(output: str) -> str:
    """Return an output without measured values and without the width of its columns."""
    return re.sub(r"\s*\n\s*|[ \t]+", " ", MEASURED.sub("#", re.sub(r"Out\[0\]: \n?", "", output))).strip()


def shows(output: str, shown: str) -> bool:
    """Return whether the output of a page is what its block showed."""
    pattern = re.escape(comparable(output)).replace(r"\.\.\.", r"(?s:.*)")
    return re.fullmatch(pattern, comparable(shown)) is not None


@pytest.mark.slow
def test_the_code_of_the_manual_and_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    todo = {path: blocks(path.read_text("utf-8")) for path in pages() if path.name not in OTHER_TESTS}
    assert sum(map(len, todo.values())) > 60
    assert sum(bool(output) for found in todo.values() for *_, output in found) > 20
    folders = [str(ROOT) if path.name == "README.md" else "" for path in todo]
    code = [[block for _, block, _ in found] for found in todo.values()]
    results = json.loads(run(["-c", DRIVER], input=json.dumps(list(zip(folders, code, strict=True)))).splitlines()[-1])
    failures = []
    for path, found, done in zip(todo, todo.values(), results, strict=True):
        for (error, block, output), (success, reason, shown) in zip(found, done, strict=True):
            if success is bool(error) or error not in reason:
                failures.append(f"{path}: expected {error or 'no error'}, got {reason or 'none'}:\n{block}\n{shown}")
            elif output and not shows(output, shown):
                failures.append(f"{path}: the page shows another output of\n{block}\nIt is\n{shown}")
    assert not failures, "\n\n".join(failures)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("m  1.24 ms\n  IN  [4]", True), ("m  1 s\n...", True), ("m  1 s\n IN [5]", False), ("m  1 s", False),
        ("...\n  IN [4]", True),
    ],
)  # fmt: skip
def test_an_output_of_a_page_is_compared_without_its_times(output: str, expected: bool) -> None:
    assert shows(output, "Out[0]: \nm  830 µs\n  IN    [4]\n") is expected


def test_the_index_of_a_folder_lists_its_pages() -> None:
    for index in (ROOT / "docs").glob("*/index.md"):
        text = index.read_text("utf-8")
        folder = ROOT / "notebooks" if index.parent.name == "tutorials" else index.parent
        pattern = "*.ipynb" if folder.name == "notebooks" else "*.md"
        names = {path.name for path in folder.glob(pattern)} - {"index.md", "index.ipynb"}
        assert [name for name in sorted(names) if f"{name})" not in text] == [], index


def test_the_pictures_of_the_readme_are_there_and_small() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(pictures) >= 6
    for name in pictures:
        assert (ROOT / name).stat().st_size < 150_000, name
    for name in (name for name in pictures if "-light" in name):
        assert name.replace("-light", "-dark") in pictures


@pytest.mark.parametrize(
    ("origin", "repository"),
    [
        ("https://github.com/someone/bls_notebook.git", "someone/bls_notebook"),
        ("git@github.com:someone/bls_notebook", "someone/bls_notebook"),
        ("https://git.example.org/someone/bls_notebook.git", ""),
        ("/srv/git/bls_notebook", ""),
    ],
)
def test_badges_open_the_notebook_of_the_public_repository(
    origin: str, repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    found = importlib.import_module("badges")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", origin], check=True)
    assert found.repository_of(tmp_path) == repository
    shown = found.badges(repository, "05_batching.ipynb")
    links = (
        f"https://colab.research.google.com/github/{repository}/blob/main/notebooks/05_batching.ipynb",
        f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath=lab/tree/notebooks/05_batching.ipynb",
    )
    assert [f"]({link})" in shown for link in links] == [bool(repository)] * 2
    assert ("without the browser debugger" in shown) == bool(repository)


USE = """
import numpy as np
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
shell.run_line_magic("load_ext", "bls_notebook")
import bls_notebook as bls

MODEL = '''
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb_utils.Tensor("OUT", r.inputs()[0].as_numpy()) for r in requests]
        return [pb_utils.InferenceResponse([tensor]) for tensor in tensors]
'''
CONFIG = '''input [{ name: "IN", data_type: TYPE_FP32, dims: [1] }]
output [{ name: "OUT", data_type: TYPE_FP32, dims: [1] }]'''
repo = bls.current_repository()
repo.define("busy", MODEL, CONFIG)
repo.define("quiet", MODEL, CONFIG)
repo.infer("busy", {"IN": np.float32([1])})
found = shell.run_line_magic("tritonrepo", "idle")
assert found == bls.idle_models() and found.names == ("quiet",) and found.loaded == 2, found
shown, _ = shell.display_formatter.format(found)
assert "1 of 2 models are idle" in shown["text/plain"], shown
assert "<code>quiet</code>" in shown["text/html"], shown
assert "idle" in shell.complete("", "%tritonrepo id", 14)[1]
assert "List the models that have not answered" in shell.find_line_magic("tritonrepo").__doc__
"""


@pytest.mark.slow
def test_the_capability_of_the_document_works(tmp_path: Path) -> None:
    text = (ROOT / "docs/guides/extending.md").read_text(encoding="utf-8")
    files = re.findall(r"Put this into `([\w/]+\.py)`:\n\n```python\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in files] == [
        "idle_models/records.py", "idle_models/idle.py", "idle_models/__init__.py",
    ]  # fmt: skip
    assert 40 <= sum(len(code.splitlines()) for _, code in files) <= 60
    for name, code in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code, encoding="utf-8")
    (group, entry) = re.findall(r"\[project\.entry-points\.\"([\w.]+)\"\]\n(.*?)\n```", text, re.DOTALL)[0]
    installed = tmp_path / "idle_models-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: idle-models\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[{group}]\n{entry.replace(chr(34), '')}\n")
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    environ = {**os.environ, "PYTHONPATH": path, "IPYTHONDIR": str(tmp_path / "ipython")}
    run(["-c", USE], env=environ)


@pytest.mark.extra
@pytest.mark.slow
def test_ci_commands_of_the_example_project_pass(tmp_path: Path) -> None:
    example = ROOT / "examples" / "language"
    copy = shutil.copytree(example, tmp_path / "language", ignore=shutil.ignore_patterns("__pycache__", ".*cache"))
    workflow = (example / ".github" / "workflows" / "test.yml").read_text()
    steps = [step for step in re.findall(r"- run: (.+)", workflow) if not step.startswith("pip install")]
    assert [step.split()[0] for step in steps] == ["python", "pytest"]
    # As on GitHub, and with this package instead of an installed one.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV_"))}
    environ |= {"CI": "true", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    environ["PYTEST_ADDOPTS"] = "-p no:cacheprovider -p pytest_bls_notebook"
    for step in steps:
        command = step if step.startswith("python") else f"python -m {step}"
        stdout = run(command.split()[1:], env=environ, cwd=copy)
    assert "11 passed" in stdout
    assert re.search(r"models/detect/1/model\.py +\d+ +0 +100%", stdout)
