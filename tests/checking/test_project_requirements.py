"""What pip would be asked to install for a repository, and what is left out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bls_notebook.checking.project_requirements import project_requirements

FILES = {
    "requirements.txt": (
        "# of the models\nnumpy<2,>=1.20  # why\nscipy[full]==1.1 ; python_version > '3'\n-e ./local\n"
        "-r more/base.txt\n--no-binary :all:\nlong==1 \\\n  --hash=sha256:00\nlast\n-r /none.txt\nfile.txt\n-c c.txt\n"
    ),
    "more/base.txt": "\nattrs",
    "docker/Dockerfile": "RUN pip install ignored",
    "Dockerfile": (
        "FROM x\nRUN pip install -U 'six>=1' scipy \\\n  -r /tmp/server.txt\n"
        "RUN pip3 install torch -f https://x.y && ls\n"
    ),
    "docker/server.txt": "--extra-index-url https://x.y\nprivate==1\n",
    "environment.yml": (
        "name: x\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.9.1\n  - pip\n  - blas ==1\n  - pip:\n"
        "    - six==9\n    - tomli==2\n"
    ),
}  # fmt: skip


def test_requirements_have_their_places_and_other_sources_are_left_out(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "models").mkdir()
    found = project_requirements(tmp_path, tmp_path / "models")
    assert [(each.text, each.place) for each in found.wanted] == [
        ("numpy<2,>=1.20", "requirements.txt, line 2"),
        ("scipy[full]==1.1 ; python_version > '3'", "requirements.txt, line 3"),
        ("attrs", "more/base.txt, line 2"),
        ("long==1", "requirements.txt, line 7"),
        ("last", "requirements.txt, line 9"),
        ("six>=1", "Dockerfile, line 2"),
        ("tomli==2", "environment.yml, line 10"),
    ]
    left = {each.text: each.left_out for each in found.left_out}
    assert "an index that only this file names" in left["torch"]
    assert left["private==1"] == left["torch"]
    assert "conda's" in left["blas ==1"]
    assert {"-e ./local", "--no-binary :all:", "-r /none.txt", "file.txt", "-c c.txt"} <= left.keys()
    assert not {"conda-forge", "pip", "ignored", "/tmp/server.txt"} & left.keys()
    assert found.python == "3.9"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs tomllib")
def test_pyproject_has_dependencies_without_extras(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "me"\ndependencies = [\n  "six>=1",\n  "mine @ git+https://x.y/z",\n  "bad; rm -rf",\n'
        '  "--index-url=https://x.y",\n]\n[project.optional-dependencies]\ntest = ["extra"]\n'
        '[tool.poetry.dependencies]\npython = "^3.9"\npoetic = "^1.2"\n'
    )
    found = project_requirements(tmp_path, tmp_path / "models")
    wanted = [(each.text, each.place) for each in found.wanted]
    assert wanted[:2] == [("six>=1", "pyproject.toml, line 4"), ("mine @ git+https://x.y/z", "pyproject.toml, line 5")]
    left = {each.text: each.place for each in found.left_out}
    assert left["poetic ^1.2"] == "pyproject.toml, line 13"
    assert "--index-url=https://x.y" in left


def test_the_nearest_files_count_if_none_is_around_the_repository(tmp_path: Path) -> None:
    for name in "server/docker/requirements.txt", "client/requirements.txt":
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name.partition("/")[0])
    found = project_requirements(tmp_path, tmp_path / "server" / "models")
    assert [each.text for each in found.wanted] == ["server"]
