from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bls_notebook.magics.completion.suggest import magic_line

Complete = Callable[[str], list[str]]


@pytest.fixture(params=[True, False], ids=["jedi", "no jedi"])
def models(request: pytest.FixtureRequest, cells, folder: Path) -> None:
    if request.param:
        pytest.importorskip("jedi")
    cells.shell.Completer.use_jedi = request.param
    cells(f"%tritonrepo use {folder}")
    cells.model("times")
    cells.model("tidy")
    cells.shell.user_ns["image_of_mine"] = [1]


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%bls ", ["tidy", "times"]),
        ("%bls tim", ["times"]),
        ("answer = %bls tim", ["times"]),
        ("for n in x:\n    %bls tim", ["times"]),
        ("%bls times ", ["IN="]),
        ("%bls times I", ["IN="]),
        ("%bls --async times I", ["IN="]),
        ("%bls times --o", ["--outputs"]),
        ("%bls times --outputs ", ["COUNT", "OUT"]),
        ("%bls times --outputs C", ["COUNT"]),
        ("%bls times --outputs COUNT,O", ["OUT"]),
        ("%bls times --device ", ["cpu", "gpu:0"]),
        ("%bls times --device g", ["gpu:0"]),
        ("%tritonrepo l", ["list", "load"]),
        ("%tritonrepo load ", ["broken", "disk"]),
        ("%tritonrepo load d", ["disk"]),
        ("%tritonrepo load disk b", ["broken"]),
        ("%tritonrepo unload t", ["tidy", "times"]),
        ("%tritonrepo unload --", ["--dependents", "--help"]),
        ("%%tritonmodel d", ["disk"]),
        ("%%tritonmodel times --ins", ["--instances"]),
        ("%%tritonconfig tim", ["times"]),
        ("%%bls --in", ["--into"]),
    ],
)
def test_suggestions(complete: Complete, line: str, expected: list[str]) -> None:
    whole = line.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")
    assert complete(line) == [whole + word for word in expected]


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    "line", ["%bls times IN=image_of_m", "%%bls\nimage_of_m", "%bls times IN=[image_of_m", "image_of_m"]
)
def test_pythons_own_names_still_come(complete: Complete, line: str) -> None:
    assert complete(line) == [line.replace("image_of_m", "image_of_mine")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with some beside it."""
    home = tmp_path / "home"
    for name in ("here/models/image_one", "here/more of them", "here/.hidden", "modest"):
        (home / name).mkdir(parents=True)
    (home / "here" / "my.json").touch()
    monkeypatch.chdir(home / "here")
    return home


@pytest.mark.usefixtures("models", "home")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%tritonrepo use ", ["models/", '"more of them/"']),
        ("%tritonrepo use ..", ["../"]),
        ("%tritonrepo use ../", ["../here/", "../modest/"]),
        ("%tritonrepo use ../mo", ["../modest/"]),
        ("%tritonrepo use models/", ["models/image_one/"]),
        ("%tritonrepo use ./mod", ["./models/"]),
        ("%tritonrepo use models/image_o", ["models/image_one/"]),
        ("%tritonrepo use models mo", ["models/", '"more of them/"']),
        ('%tritonrepo use "mo', ['"models/', '"more of them/']),
        ("%tritonrepo use .h", [".hidden/"]),
        ("%tritonrepo use ../image_of_m", ["../image_of_m"]),  # no folder: nothing else fits either
        ("%tritonrepo use --h", ["--help"]),
        ("%blsprofile times --save m", ["models/", '"more of them/"', "my.json"]),
        ("%%blsmemory --save my", ["my.json"]),
    ],
)
def test_paths(complete: Complete, line: str, expected: list[str]) -> None:
    whole = line[: line.rindex(" ") + 1]
    assert sorted(complete(line)) == sorted(whole + path for path in expected)


@pytest.mark.usefixtures("models", "home")
def test_paths_of_the_home_folder_and_from_the_root(
    complete: Complete, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    assert complete("%tritonrepo use ~/mod") == ["%tritonrepo use ~/modest/"]
    root = home.as_posix()
    assert complete(f"%tritonrepo use {root}/mod") == [f"%tritonrepo use {root}/modest/"]


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("line", ["%tritonrep", "%%tritonm", "%%tritonc"])
def test_names_of_magics_come_from_ipython(complete: Complete, line: str) -> None:
    assert len(complete(line)) == 1


@pytest.mark.usefixtures("models")
def test_all_inputs_given(complete: Complete) -> None:
    assert "%bls times IN=[1] --async" in complete("%bls times IN=[1] ")


@pytest.mark.filterwarnings("ignore:.Completer.complete. is pending:PendingDeprecationWarning")
def test_the_old_way_to_ask(cells) -> None:
    cells.model()
    assert cells.shell.complete("", "%bls times I", 12) == ("I", ["IN="])


def test_only_where_the_cursor_is_in_one_of_the_magics() -> None:
    assert magic_line("%%tritonmodel a", first_line=False) is None
    assert magic_line("x = 100 % bls ", first_line=True) is None
    assert magic_line("%blsnothing m", first_line=True) is None
    assert magic_line("%bls m A='x", first_line=True) is None


def test_unloading_ends_it(cells, complete: Complete) -> None:
    cells.model()
    cells("%unload_ext bls_notebook")
    assert "%bls times" not in complete("%bls ti")
