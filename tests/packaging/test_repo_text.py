"""Rules for every file of the repository: no private paths, small modules, links to existing files."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 600

# Folders of one person or machine. Notebooks show them in tracebacks and warnings.
PRIVATE_PATH = re.compile(
    r"(?<![\w.\-/])/(?:root|work|home/[A-Za-z][\w.\-]*|Users/[A-Za-z][\w.\-]*|tmp/ipykernel_\d+)/[\w.]"
    r"|\b[A-Z]:\\{1,2}Users\\"
)
MARKDOWN_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


@cache
def text_files() -> dict[Path, str]:
    """Return the text of every file that git has or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    texts = {}
    for name in filter(None, listing.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_file():  # not one that was deleted and not yet committed
            data = path.read_bytes()
            if b"\0" not in data:
                texts[Path(name)] = data.decode("utf-8")
    return texts


def test_no_file_names_a_private_path() -> None:
    for line in ("File /root/x/model.py:3", '"/home/ann/b.py"', "C:\\\\Users\\\\ann", "/tmp/ipykernel_12/3.py"):
        assert PRIVATE_PATH.search(line)
    assert {Path("README.md"), Path("pyproject.toml"), Path("bls_notebook/__init__.py")} <= set(text_files())
    found = [
        f"{path}:{number}: {line.strip()[:120]}"
        for path, text in text_files().items()
        if path != Path("tests/packaging/test_repo_text.py")
        for number, line in enumerate(text.splitlines(), 1)
        if PRIVATE_PATH.search(line)
    ]
    assert not found, "\n".join(found)


def test_python_files_stay_small() -> None:
    long = {
        str(path): text.count("\n")
        for path, text in text_files().items()
        if path.suffix == ".py" and text.count("\n") > MAX_LINES
    }
    assert not long, f"split these, none over {MAX_LINES} lines: {long}"


def test_links_between_files_lead_somewhere() -> None:
    missing = [
        f"{path}: {target}"
        for path, text in text_files().items()
        if path.suffix == ".md"
        for target in MARKDOWN_LINK.findall(text)
        if not (ROOT / path).parent.joinpath(target).exists()
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/explanation/architecture.md"])
def test_paths_in_pages_for_contributors_exist(page: str) -> None:
    names = re.findall(r"`([\w./-]+(?:\.(?:py|json|txt|css|toml|pyi)|/))`", (ROOT / page).read_text("utf-8"))
    assert len(names) > 20
    paths = [f"/{path.as_posix()}" for path in text_files()]
    missing = [name for name in names if not any(f"/{name}" in path for path in paths)]
    assert not missing, f"{page} names files that do not exist: {missing}"


def test_tests_that_documents_name_exist() -> None:
    named = {
        (str(path), name)
        for path, text in text_files().items()
        if path.suffix in (".md", ".toml") or path.name == "Makefile"
        for name in re.findall(r"\btests/\w+/[\w/]+\.py\b", text)
    }
    assert named
    assert not {(page, name) for page, name in named if not (ROOT / name).exists()}


def test_names_of_tests_begin_with_searchable_words() -> None:
    vague = re.compile(r"def (test_(?:what\w*|it|who|nobody|they)_\w+)")
    tests = ((path, text) for path, text in text_files().items() if path.parts[0] == "tests" and path.suffix == ".py")
    assert not [f"{path}: {name}" for path, text in tests for name in vague.findall(text)]
