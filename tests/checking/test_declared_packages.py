"""Packages that a project asks for, in each form in which projects write them down."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bls_notebook.checking.declared_packages import declared_packages
from bls_notebook.checking.pip_packages import install_advice

ASKS = {
    "requirements.txt": "# a\n--no-binary :all:\nmy_riva.client[grpc]==2.1 ; python_version > '3'\n-e ./local\n./b\n",
    "requirements-dev.in": "my-riva-client[grpc]",
    "Dockerfile": "RUN apt-get install foo && pip3 install --pre -r r.txt \\\n  'my-riva-client[grpc]>=2' && x",
    "start.sh": "python3 -m pip install -q my-riva-client[grpc]; tritonserver",
    "README.md": "First `pip install my-riva-client[grpc]`.\nOr pip install prose too.",
    "docker-compose.yml": 'command: bash -c "pip install my-riva-client[grpc] && tritonserver"',
    "environment.yml": "dependencies:\n  - conda-only ==1\n  - pip:\n    - my-riva-client[grpc]==2\n  - later\n",
    "setup.py": "setup(name='me', install_requires=['my-riva-client[grpc]>=2'], classifiers=['prose'])",
    "setup.cfg": "[options]\ninstall_requires =\n    my-riva-client[grpc]>=2\n    b\n[x]\n",
    "Pipfile.lock": '{"default": {"my-riva-client": {}}}',
}
TOML = {
    "pyproject.toml": '[project]\nname = "me"\ndependencies = ["my-riva-client[grpc]>=2"]',
    "Pipfile": '[packages]\nmy-riva-client = "*"',
    "poetry.lock": '[[package]]\nname = "my-riva-client"\nversion = "1"',
    "uv.lock": '[[package]]\nname = "me"\nsource = { virtual = "." }\n[[package]]\nname = "my-riva-client"',
}


@pytest.mark.parametrize("name", [*ASKS, *(TOML if sys.version_info >= (3, 11) else ())])
def test_the_forms_of_requirements(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text((ASKS | TOML)[name])
    found = declared_packages(tmp_path, tmp_path / "models")
    assert found["my-riva-client"].strip("'").lower().replace("_", "-").replace(".", "-").startswith("my-riva-client")
    assert not found.get("conda-only")
    assert ("conda-only" in found) == (name == "environment.yml")
    assert not found.get("later")
    assert not {"foo", "prose", "too", "me", "local", "r.txt", "r-txt"} & found.keys()


def test_advice_uses_the_names_of_the_project_and_guesses_none(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "requirements.txt").write_text("far-away\nopencv-python==4\nfaiss_cpu\nmine @ git+https://x.y/z\n")
    (tmp_path / "a" / "requirements.txt").write_text("opencv-contrib-python-headless\n")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "requirements.txt").write_text("--extra-index-url https://x.y\nsecret_tools\n")
    (tmp_path / "environment.yml").write_text(
        "dependencies:\n  - mxnet_x=1\n  - pip:\n    - git+https://x.y/e#egg=of_egg\n"
    )
    declared = declared_packages(tmp_path, tmp_path / "a" / "b")
    modules = ["cv2", "faiss", "far_away.part", "mine", "of_egg", "secret_tools", "mxnet_x", "sklearn", "no_such"]
    advice = install_advice(modules, "pip install", declared)
    assert advice == (
        "`pip install opencv-contrib-python-headless faiss_cpu far-away 'mine @ git+https://x.y/z' "
        "'git+https://x.y/e#egg=of_egg' scikit-learn`; `secret_tools`: the project's files say how to install it; "
        "`mxnet_x`: the project's files say how to install it; `no_such`: the distribution is unknown"
    )
