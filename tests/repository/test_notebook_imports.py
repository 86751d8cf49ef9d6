"""Modules that lie beside the notebook are told of when a cell's model imports them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.repository.source.syntax import stray_imports
from tests.repository.models import ECHO, ECHOES


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notebook's, which the kernel has on its path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    (tmp_path / "beside.py").write_text("X = 1\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "numpy.py").write_text("")  # the installed one is there on Triton too
    (tmp_path / "json.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import beside", {"beside": 1}),
        ("import beside.deep as b", {"beside": 1}),
        ("from beside import X", {"beside": 1}),
        ("import json, os\nimport package.sub, beside", {"beside": 2, "package": 2}),
        ("def f():\n    import beside\nimport beside", {"beside": 2}),
        ("try:\n    import beside\nexcept ImportError:\n    pass", {"beside": 2}),
        ("import numpy, json, triton_python_backend_utils, bls_notebook, nowhere", {}),
        ("from .beside import X\nfrom . import beside", {}),
        ("beside = 1\n'import beside'", {}),
        ("import beside)", {}),
    ],
)
def test_what_is_found(folder: Path, source: str, found: dict[str, int]) -> None:
    assert stray_imports(source) == found
    assert "beside" not in sys.modules


def test_a_folder_that_is_not_on_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(folder))])
    assert stray_imports("import beside") == {}


def test_what_lies_elsewhere_too(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "beside.py").write_text("")
    monkeypatch.syspath_prepend(str(other))
    assert stray_imports("import beside") == {}


SOURCE = f"import package\n{ECHOES}"


def test_the_record_of_the_model_tells(folder: Path, repo: bls.ModelRepository) -> None:
    (warning,) = repo.define("m", SOURCE, ECHO).warnings
    assert warning.startswith("model 'm', line 1: module 'package' exists only in the notebook's folder")
    assert repo.record("m").warnings == (warning,)
    repo.strict = True
    with pytest.raises(bls.ModelLoadError, match="only in the notebook's folder"):
        repo.define("other", SOURCE, ECHO)
