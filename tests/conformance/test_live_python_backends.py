"""Models of Python-based backends, on both sides: where the server looks, what it tells, what it refuses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.shipping.servers.server_programs import ServerEnvironment
from bls_notebook.shipping.servers.tritonserver import TritonRequestError, TritonServer
from tests.conformance.sides import Sides, normal

pytestmark = pytest.mark.triton
BACKENDS = Path(__file__).parent / "backed"
OWN = "class TritonPythonModel:\n    pass\n"
# The configuration of each model, and its own model.py where it has one.
MODELS = {
    "plain": ('backend: "mine"', None),
    "named.mine": (None, None),
    "with_runtime": ('backend: "mine" runtime: "model.py"', None),
    "with_own_file": ('backend: "mine" platform: "any" default_model_filename: "x.py"', OWN),
    "kind_model": ('backend: "mine" instance_group { kind: KIND_MODEL }', None),
    "model.mine": (None, None),
}
REFUSED = {
    "nobody": ('backend: "nobody"', None),
    "no_runtime": ('backend: "nobody" runtime: "model.py"', None),
    "other_runtime": ('backend: "mine" runtime: "other.py"', None),
    "library": ('backend: "mine" runtime: "libtriton_python.so"', None),
    "path": ('backend: "../mine"', None),
    "python": ('backend: "python" runtime: "model.py"', OWN),
    "in_the_model": ('backend: "local"', OWN),
    "no_backend": ('runtime: "model.py"', None),
    "no_config": (None, None),
    "no_class": ('backend: "empty_class"', None),
    "fails": ('backend: "fails"', None),
}


@pytest.fixture(scope="module")
def backed(environment: ServerEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    root = tmp_path_factory.mktemp("backed") / "models"
    backends = root.parent / "backends"
    shutil.copytree(BACKENDS, backends, ignore=shutil.ignore_patterns("__pycache__"))
    (backends / "python").symlink_to(environment.server / "backends" / "python")
    for name, (config, own) in {**MODELS, **REFUSED}.items():
        folder = root / name / "1"
        folder.mkdir(parents=True)
        (folder / "beside.py").write_text("")
        if config is not None:
            (root / name / "config.pbtxt").write_text(config)
        if own is not None:
            (folder / "model.py").write_text(own)
    server = TritonServer(root, environment=environment, options=[f"--backend-directory={backends}"])
    try:
        with bls.ModelRepository(root) as here:
            sides = Sides(here, server.start())
            assert sides.same_loads(dict.fromkeys(MODELS)) == dict.fromkeys(MODELS)
            yield sides
    finally:
        server.stop(graceful=False)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_a_backend(backed: Sides, name: str) -> None:
    report = backed.same_report(name, {})
    assert report["config"]["runtime"] == "model.py"
    assert report["files"][0] == "mine/model.py"
    real = backed.on_real(lambda: backed.real.config(name))
    here = backed.here.config(name)
    for field in ("backend", "runtime", "default_model_filename", "platform"):
        assert getattr(here, field) == real[field]


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_is_refused(backed: Sides, name: str) -> None:
    with pytest.raises(TritonRequestError) as real:
        backed.on_real(lambda: backed.real.load(name))
    with pytest.raises(bls.BLSError) as here:
        backed.here.load(name)
    got, wanted = (normal(text) for text in (getattr(here.value, "reason", ""), str(real.value)))
    # The server looks for compiled libraries too, in the model's folders: there are none here.
    assert got.partition(", searched: ")[0] == wanted.partition(", searched: ")[0]
