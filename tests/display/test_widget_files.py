"""The browser half is found in a checkout and in an installed package, as one module."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bls_notebook.display import widgets
from bls_notebook.display.widgets import pack_columns, widget_file, widget_source

ROOT = Path(__file__).resolve().parents[2]


def test_a_checkout() -> None:
    assert widget_file("common.js") == ROOT / "widgets" / "common.js"


def test_the_types_in_the_comments_of_the_modules_check() -> None:
    tsc = shutil.which("tsc")
    if tsc is None:
        pytest.skip("needs TypeScript: npm install --global typescript")
    done = subprocess.run([tsc, "-p", str(ROOT / "widgets")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_missing_widget_file_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"widget file 'nope.js' is missing from .*; install"):
        widget_file("nope.js")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(widgets, "widget_file", lambda name: tmp_path / name)
    widget_source.cache_clear()
    yield tmp_path
    widget_source.cache_clear()


def test_imports_are_put_in_place_once(folder: Path) -> None:
    (folder / "a.js").write_text('import { b,\n  c } from "./b.js";\nimport {c} from "./c.js";\nexport default {};\n')
    (folder / "b.js").write_text('import { c } from "./c.js";\nexport const b = "export const";\n')
    (folder / "c.js").write_text("export const c = 1;\nexport async function d() {}\n")
    text = widget_source("a.js")
    assert text.count("const c = 1;") == 1
    assert "import" not in text
    assert text.count("export") == 2  # the default of the widget itself, and the one inside a string
    assert text.index("const c") < text.index("const b") < text.index("export default")


def test_columns_lie_at_multiples_of_eight() -> None:
    data, layout = pack_columns({"a": ("u1", [1, 2, 3]), "b": ("f8", [0.5]), "c": ("i4", [-1, 7])})
    assert layout == [("a", "u1", 0, 3), ("b", "f8", 8, 1), ("c", "i4", 16, 2)]
    assert data == bytes([1, 2, 3, 0, 0, 0, 0, 0]) + b"\0\0\0\0\0\0\xe0\x3f" + b"\xff\xff\xff\xff\7\0\0\0"


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OverflowError):
        pack_columns({"a": ("u1", [256])})


@pytest.mark.parametrize("name", ["timeline.js", "lifetimes.js"])
def test_no_two_modules_of_a_widget_have_the_same_name_for_something(name: str) -> None:
    declared = re.findall(r"^(?:async )?(?:function|const|let|class) (?:\[(.*?)\]|(\w+))", widget_source(name), re.M)
    names = [each for several, one in declared for each in (several.split(", ") if several else [one])]
    assert len(names) > 30
    assert sorted(names) == sorted(set(names))
