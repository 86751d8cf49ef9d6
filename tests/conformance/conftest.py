"""One tritonserver and one repository in this process, with the same models, for the whole session."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.shipping.servers.server_programs import ServerEnvironment, TritonServerError, make_environment
from bls_notebook.shipping.servers.tritonserver import TritonServer
from tests.conformance.sides import Sides

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
DIVERGENCES = Path(__file__).parent / "live_divergences.toml"
RELEASE = DIVERGENCES.with_name("release_differences.toml")
FOLDERS = (ROOT / "model_repository", Path(__file__).parent / "model_repository")
NO_BACKEND = {"digit_classifier_onnx", "digit_classifier_torch"}  # that server runs Python models only
SAME_TIME = [f"recast{number}" for number in range(4)]  # copies of recast, to be loaded at the same time
LOADED_BY_TESTS = {"recast", "regrouped", *SAME_TIME}
CACHE = 1 << 20
# Models with the code of another one and a configuration of their own.
SAME_CODE = {
    **dict.fromkeys(["bad_config/1", "bad_text/1", "batched/1", "recast/1"], "arguments/1"),
    "bad_scalar/1": "reshaped/1", "sums_oldest/1": "sums_direct/1",
    "versions/2": "versions/1", "versions/3": "versions/1",
}  # fmt: skip


# Code that cannot be loaded is written here, so that no other tool reads it.
BAD = {
    "bad_syntax": "class TritonPythonModel\n",
    "bad_import": "import no_such_module_anywhere\n\n\nclass TritonPythonModel:\n    pass\n",
    "bad_no_class": "X = 1\n",
    "bad_initialize": "class TritonPythonModel:\n    def initialize(self, args):\n"
    "        raise ValueError(f\"version {args['model_version']} is not to be loaded\")\n",
}


def is_loaded_at_start(name: str) -> bool:
    """Whether a model runs on both sides from the start."""
    return name not in NO_BACKEND | LOADED_BY_TESTS and not name.startswith("bad_")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What differs on purpose is expected to."""
    for item in items:
        if item.path.parent == DIVERGENCES.parent and item.name in divergences():
            item.add_marker(pytest.mark.xfail(reason=divergences()[item.name], strict=True))


@cache
def divergences() -> dict[str, str]:
    """Why an answer differs from a live server's on purpose, or for its release, by the name of the test."""
    older = tomllib.loads(RELEASE.read_text())["live"]
    reasons = {test: f"{change}: the answer of an older release" for test, change in older.items()}
    return tomllib.loads(DIVERGENCES.read_text()) | reasons


@pytest.fixture(scope="session")
def environment() -> ServerEnvironment:
    """With what the sample models import; skips where it cannot be installed."""
    try:
        return make_environment(requirements=["scikit-learn"])
    except TritonServerError as error:
        if "BLS_NOTEBOOK_TRITON_ENV" in os.environ:  # somebody counts on it
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every model in one folder of its own: the server writes into it."""
    folder = tmp_path_factory.mktemp("conformance") / "models"
    folder.mkdir()
    for source in FOLDERS:
        for model in source.iterdir():
            if model.is_dir() and model.name not in NO_BACKEND:
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(model, folder / model.name, ignore=ignored)
    for name, source in SAME_CODE.items():
        shutil.copytree(folder / source, folder / name)
    for name in SAME_TIME:
        shutil.copytree(folder / "recast", folder / name)
    for name, source in BAD.items():
        (folder / name / "1").mkdir(exist_ok=True)
        (folder / name / "1" / "model.py").write_text(source)
    return folder


@pytest.fixture(scope="package")  # ends before the tests of the engine, which count threads
def sides(environment: ServerEnvironment, models: Path) -> Iterator[Sides]:
    names = sorted(path.name for path in models.iterdir() if is_loaded_at_start(path.name))
    server = TritonServer(
        models, environment=environment, load=names, options=[f"--cache-config=local,size={CACHE}"], start_timeout=240
    )
    try:
        with bls.ModelRepository(models, cache_bytes=CACHE) as here, ThreadPoolExecutor(1) as pool:
            starting = pool.submit(server.start)  # most of its time a server waits for its models' processes
            for name in names:
                here.load(name)
            starting.result()
            yield Sides(here, server)
    finally:
        # Killed: it would wait half a minute for the requests that it has lost.
        server.stop(graceful=False)
