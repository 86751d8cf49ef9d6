"""Files of a server's container, found in the project that says where its folders are mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from bls_notebook.checking.server_files import located
from tests.trying.conftest import DOUBLES, PYTHON, put

SAYS = {
    "docker-compose.yml": "services:\n  t:\n    volumes:\n      - ./run/models:/models:ro\n",
    "compose.yaml": "volumes: [ { type: bind, source: ./run/models, target: /models } ]",
    "start.sh": "docker run --rm -v $(pwd)/run/models:/models -p 8000:8000 image tritonserver",
    "README.md": "Run `docker run -v ${PWD}/run/models:/models image`.",
    "Dockerfile": "FROM x\nCOPY --chown=1 run/models /models\n",
    "run.sh": "tritonserver --model-repository=/models",
    "Makefile": "up:\n\tdocker run -v ${PWD}/run:/srv -e A=/models:/b image",
}


@pytest.mark.parametrize("name", SAYS)
@pytest.mark.parametrize("exists", [True, False])
def test_a_mount_point_is_read_from_the_project(tmp_path: Path, name: str, exists: bool) -> None:
    (tmp_path / name).write_text(SAYS[name])
    folder = put(tmp_path / "run" / "models", "step", PYTHON, {"1/model.py": DOUBLES})
    if exists:
        (folder / "words.txt").touch()
    found = located("/models/step/words.txt", tmp_path, tmp_path / "run" / "models", folder / "1")
    if name == "Makefile":  # says nothing of it: known only by its last parts
        assert (found and str(found).endswith("run/models has it"), found is None) == (exists or None, not exists)
        return
    assert found
    assert (found.place, found.place.exists()) == (folder / "words.txt", exists)
    assert str(found).endswith(f"run/models as /models ({name})" + ("" if exists else ", which lacks it"))


def test_relative_paths_and_paths_that_nothing_names(tmp_path: Path) -> None:
    folder = put(tmp_path / "run" / "models", "step", PYTHON, {"1/model.py": DOUBLES, "data/words.txt": ""})
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "words.txt").touch()

    def found(file: str) -> str:
        return str(located(file, tmp_path, folder.parent, folder / "1"))

    assert found("models/step/data/words.txt").endswith("run has it, if the server starts there")
    assert found("/anywhere/step/data/words.txt").endswith("run/models/step has it")
    assert (found("words.txt"), found("/anywhere/words.txt"), found("../models/no.txt")) == ("None", "None", "None")
    (tmp_path / "Dockerfile").write_text("WORKDIR /opt/app\nCOPY app/ .\nCOPY ../../.. /outside/")
    assert found("words.txt").endswith("app has it, if the server starts there")
    assert found("/opt/app/words.txt").endswith("app as /opt/app (Dockerfile)")
    assert found("/outside/bin/sh") == "None"
    (folder.parent / "words.txt").touch()
    assert found("/opt/ml/model/words.txt").endswith("run/models as /opt/ml/model (SageMaker)")
