"""`try --install`: what it shows, the question, and models in the environment that it makes."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.__main__ import main
from tests.repository import test_environments
from tests.trying.conftest import DOUBLES, PYTHON, in_notebook, put

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Linux or macOS")
uv = test_environments.uv
ONES = {"IN": np.ones(3, np.float32)}
USES = f"import only_of_the_project\n{DOUBLES.replace('* 2', '* only_of_the_project.FACTOR')}"


@pytest.fixture
def project(uv: Path) -> Path:
    """Return a project whose models need a package that the pretended uv installs."""
    (uv / "last").write_text("(site / 'only_of_the_project.py').write_text('FACTOR = 7')")
    folder = uv / "project"
    put(folder / "models", "uses", PYTHON, {"1/model.py": USES})
    (folder / "requirements.txt").write_text("# needed\nonly_of_the_project==1.5\n-e ./here\n")
    return folder


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the answers of a person in a terminal, and afterwards also the questions."""
    answers: list[str] = []

    def answer(question: str) -> str:
        answers.append(question)
        return answers.pop(0)

    monkeypatch.setattr("builtins.input", answer)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    return answers


def called(uv: Path) -> bool:
    return (uv / "calls").exists()


def test_models_run_in_an_environment_of_the_project_after_yes(
    trying: Any, project: Path, uv: Path, person: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(project / "models", "lacks", PYTHON, {"1/model.py": f"import not_even_there, only_of_the_kernel\n{DOUBLES}"})
    (uv / "only_of_the_kernel.py").touch()
    monkeypatch.syspath_prepend(uv)
    with bls.ModelRepository() as maker:  # the models' own, without the package
        (uv / "last").rename(uv / "later")
        own = maker.environment("other").path
        (uv / "later").rename(uv / "last")
    parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{own}" }} }}'
    put(project / "models", "own", f"{PYTHON} {parameter}", {"1/model.py": USES})
    completes = """
import only_of_the_project
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT64", "dims": [only_of_the_project.FACTOR]})
        return config

    def initialize(self, args):
        raise ValueError("no")
"""
    put(project / "models", "completes", None, {"1/model.py": completes})
    person.append("y")
    told: list[str] = []
    repository, rows = trying(project, install=True, in_kernel=False, tell=told.append)
    assert person == ["Install them? [y/N] "]
    for words in (
        "only_of_the_project==1.5 (requirements.txt, line 2)", "-e ./here (requirements.txt, line 3): it is no package",
        "numpy (added, because pb_utils needs it)", "By uv, ", "for Python 3.", str(uv / "cache"),
    ):  # fmt: skip
        assert words in told[0], words
    assert repository.infer("uses", ONES)["OUT"].as_numpy().tolist() == [7, 7, 7]
    repository.reload("uses")
    assert repository.infer("uses", ONES)["OUT"].as_numpy().tolist() == [7, 7, 7]
    assert repository.infer("completes", ONES)["OUT"].as_numpy().shape == (7,)
    assert "Python models ran in an environment with 2 packages" in rows[""].notes[0]
    assert rows["lacks"].why.startswith("the packages not_even_there, only_of_the_kernel are missing in the env")
    assert in_notebook(rows["lacks"].remedy).startswith("add not_even_there, only_of_the_kernel to the project")
    assert "only_of_the_project is missing in the model's environment" in rows["own"].why
    assert f"`{own}/bin/python -m pip install only_of_the_project`" in in_notebook(rows["own"].remedy)


@pytest.mark.parametrize("answer", ["", "n", "yess"])
def test_any_other_answer_than_yes_installs_nothing(
    trying: Any, project: Path, uv: Path, person: list[str], answer: str
) -> None:
    person.append(answer)
    _, rows = trying(project, install=True, in_kernel=False)
    assert (rows[""].notes[0], called(uv)) == ("nothing was installed: the answer was no", False)
    assert "the package only_of_the_project is missing" in rows["uses"].why


def test_nothing_is_installed_without_a_person(
    project: Path, uv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(["try", str(project), "--install"]) == 2
    error = capsys.readouterr().err
    assert "install asks before it installs, and there is no input here" in error
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(bls.BLSError, match="there is no input here"):
        bls.try_repository(project, install=True)
    kernel = SimpleNamespace(raw_input=input, _allow_stdin=False)
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=kernel))
    with pytest.raises(bls.BLSError, match="there is no input here"):
        bls.try_repository(project, install=True)
    with pytest.raises(bls.BLSError, match="got in_kernel as well"):
        bls.try_repository(project, install=True, in_kernel=True)
    assert not called(uv)


def test_without_requirements_nobody_is_asked(trying: Any, project: Path, uv: Path) -> None:
    (project / "requirements.txt").write_text("-e ./here")
    _, rows = trying(project, install=True, in_kernel=False)
    assert rows[""].notes[0].startswith("nothing was installed: no requirements.txt, ")
    assert "-e ./here (requirements.txt, line 1)" in rows[""].notes[0]
    assert not called(uv)


def test_the_report_goes_on_after_a_failed_installation(
    trying: Any, project: Path, uv: Path, person: list[str]
) -> None:
    (uv / "last").write_text("print('first line'); sys.exit('ERROR: no such package')")
    person.append("yes")
    told: list[str] = []
    _, rows = trying(project, install=True, in_kernel=False, tell=told.append)
    assert "first line\n  ERROR: no such package" in told[1]
    assert rows[""].notes[0].startswith("the installation failed, so the models have the kernel's packages: ")
    assert "the package only_of_the_project is missing" in rows["uses"].why


def test_ctrl_c_stops_the_installation_and_the_trial(project: Path, uv: Path, person: list[str]) -> None:
    (uv / "last").write_text(f"import os, signal; os.kill({__import__('os').getpid()}, 2); signal.pause()")
    person.append("y")
    with pytest.raises(KeyboardInterrupt):
        bls.try_repository(project, install=True, tell=lambda text: None)
    assert test_environments.left() == []


@pytest.mark.slow
def test_a_real_package_is_installed_by_the_real_installer(
    trying: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, person: list[str]
) -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--retries", "0", "--timeout", "5", "-d", str(tmp_path)]
    if subprocess.run([*command, "--no-deps", "iniconfig==2.0.0"], check=False, capture_output=True).returncode:
        pytest.skip("pip's index does not answer")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "project"
    source = f"import iniconfig; assert '/bls_notebook/environments/' in iniconfig.__file__\n{DOUBLES}"
    put(folder / "models", "uses", PYTHON, {"1/model.py": source})
    (folder / "requirements.txt").write_text("iniconfig==2.0.0")
    person.append("y")
    _, rows = trying(folder, install=True, in_kernel=False)
    assert (rows["uses"].kind, rows["uses"].why, rows["uses"].problem) == ("real", "", "")
