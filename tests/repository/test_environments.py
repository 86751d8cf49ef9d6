"""Making, sharing and deleting environments, with a `uv` that only pretends to install."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.backends.processes.environments import Environment, leave_environment, use_environment
from bls_notebook.repository.environments import _requirements, environments_folder
from tests.repository.models import saying

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Linux or macOS")

UV = f"""\
    #!{sys.executable}
    import os, pathlib, sys
    base = pathlib.Path({{base!r}})
    with (base / "calls").open("a") as file:
        print(*sys.argv[1:], file=file)
    if sys.argv[1] == "venv":
        folder = pathlib.Path(sys.argv[-1])
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "bin" / "activate").write_text("VIRTUAL_ENV=" + str(folder))
        (folder / "pyvenv.cfg").write_text("home = " + os.path.dirname(os.path.realpath(sys.executable)))
    else:
        site = pathlib.Path(sys.argv[4]).parents[1] / "lib" / ("python%d.%d" % sys.version_info[:2]) / "site-packages"
        for each in sys.argv[5:]:
            name, _, version = each.partition("==")
            version = version or (base / "newest").read_text()
            (site / (name + "-" + version + ".dist-info")).mkdir(parents=True)
            (site / (name + "-" + version + ".dist-info") / "METADATA").touch()
        (site / "numpy.pth").write_text({{numpy!r}})
        exec((base / "last").read_text() if (base / "last").exists() else "")
    """


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder with the notes of the pretended uv."""
    program = tmp_path / "bin" / "uv"
    program.parent.mkdir()
    program.write_text(textwrap.dedent(UV.format(base=str(tmp_path), numpy=str(Path(np.__file__).parents[1]))))
    program.chmod(0o755)
    (tmp_path / "newest").write_text("1.0")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        yield repository


def installs(uv: Path) -> int:
    return sum(line.startswith("pip install") for line in (uv / "calls").read_text().splitlines())


def left() -> list[str]:
    return sorted(path.name for path in environments_folder().iterdir() if path.name != ".lock")


def test_requests_with_the_same_packages_share_an_environment(uv: Path, repo: bls.ModelRepository) -> None:
    first = repo.environment("six==1.0, numpy")
    assert first.packages == ("numpy==1.0", "six==1.0")
    assert first.python == platform.python_version()
    assert Path(first.path, "bin", "activate").read_text() == f"VIRTUAL_ENV={first.path}"
    assert repo.environment("numpy", "six==1.0").path == first.path
    assert installs(uv) == 1
    assert repo.environment("six").path == first.path  # another request with the same result
    assert installs(uv) == 2
    assert [record.requests for record in repo.environments()] == [("numpy, six==1.0", "six, numpy")]
    assert left() == [first.name]


def test_upgrade_resolves_a_request_again(uv: Path, repo: bls.ModelRepository) -> None:
    old = repo.environment("six")
    (uv / "newest").write_text("2.0")
    assert repo.environment("six") == old
    new = repo.environment("six", upgrade=True)
    assert new.packages == ("numpy==2.0", "six==2.0")
    assert repo.environment("six") == new
    assert {record.name: record.requests for record in repo.environments()} == {
        old.name: (), new.name: ("six, numpy",),
    }  # fmt: skip


def test_a_failed_installation_shows_its_log_and_leaves_nothing(uv: Path, repo: bls.ModelRepository) -> None:
    (uv / "last").write_text("print('first line'); sys.exit('ERROR: no such package')")
    with pytest.raises(bls.BLSError, match=r"(?s)cannot install six, numpy.*: no such package.*first line\n  ERROR"):
        repo.environment("six")
    assert left() == []


def test_ctrl_c_stops_an_installation_and_leaves_nothing(uv: Path, repo: bls.ModelRepository) -> None:
    (uv / "last").write_text(f"import time; os.kill({os.getpid()}, 2); time.sleep(1000)")
    with pytest.raises(KeyboardInterrupt):
        repo.environment("six")
    (uv / "last").unlink()
    made = repo.environment("six")  # waits for the lock of the interrupted one
    assert left() == [made.name]


def test_a_killed_installation_is_removed_by_the_next_one(uv: Path, repo: bls.ModelRepository) -> None:
    (environments_folder() / ".new0123456789ab" / "bin").mkdir(parents=True)
    made = repo.environment("six")
    assert left() == [made.name]


def test_an_environment_in_use_is_not_deleted(uv: Path, repo: bls.ModelRepository) -> None:
    used, other = repo.environment("six"), repo.environment("attrs")
    of_models = Environment(str(Path(used.path, "bin", "python")))
    use_environment(of_models)
    try:
        assert {record.name: record.users for record in repo.environments()} == {
            used.name: ("this process",), other.name: (),
        }  # fmt: skip
        with pytest.raises(bls.BLSError, match=f"{used.name} is used by this process"):
            repo.delete_environments(used.name)
        assert [record.name for record in repo.delete_environments(unused=True)] == [other.name]
    finally:
        leave_environment(of_models)
    repo.delete_environments(used.name)
    assert left() == []
    with pytest.raises(bls.BLSError, match="there are no environments"):
        repo.delete_environments(used.name)


def test_an_environment_of_a_process_that_was_killed_is_unused(uv: Path, repo: bls.ModelRepository) -> None:
    made = repo.environment("six")
    code = (
        "import sys; from bls_notebook.backends.processes.environments import *; "
        "use_environment(Environment(sys.argv[1])); print('uses', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(Path(made.path, "bin", "python"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "uses\n"
        assert repo.environments()[0].users == (f"process {process.pid}",)
        process.kill()
        process.wait()
    assert repo.environments()[0].users == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("numpy<2, scikit-learn==1.4", ["numpy<2", "scikit-learn==1.4"]),
        ("numpy>=1.26,<2", ["numpy>=1.26,<2"]),
        ("scipy[test, dev]>1, attrs", ["attrs", "scipy[test, dev]>1", "numpy"]),
        ("NumPy\nsix", ["NumPy", "six"]),
        (["numpy < 2", "six"], ["numpy < 2", "six"]),
        ("", ["numpy"]),
    ],
)
def test_requirements_are_split_at_commas_between_packages(given: str | list[str], expected: list[str]) -> None:
    assert _requirements(given) == expected


def test_a_requirements_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("# packages\nsix==1.16  # pinned\nattrs>=20,<24\n\n")
    assert _requirements(str(tmp_path / "requirements.txt")) == ["attrs>=20,<24", "six==1.16", "numpy"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda repo: repo.environment("--index-url https://example.com"), "expected a package; set options"),
        (lambda repo: repo.environment("none.txt"), r"none.txt: No such file"),
        (lambda repo: repo.environment("six", python="3.7"), r"got '3.7', expected 3.8 or newer"),
        (lambda repo: repo.environment("six", python="pypy"), r"got 'pypy', expected a version such as '3.10'"),
        (lambda repo: repo.define("a", saying("1"), environment="/none"), r"environment: got '/none', expected the"),
        (lambda repo: repo.define("a", saying("1"), environment="/", isolation="kernel"), "omit one of them"),
    ],
)
def test_a_wrong_environment_is_named(
    uv: Path, repo: bls.ModelRepository, call: Callable[[bls.ModelRepository], object], message: str
) -> None:
    with pytest.raises(bls.BLSError, match=message):
        call(repo)


def test_a_marker_of_another_release_is_ignored(uv: Path, repo: bls.ModelRepository) -> None:
    made = repo.environment("six")
    Path(made.path, "bls_environment.json").write_text(json.dumps({"schema": 9}))
    assert repo.environments() == []
    assert repo.environment("six").name == made.name
