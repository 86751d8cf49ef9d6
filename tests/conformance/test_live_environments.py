"""Models with packages and a Python of their own, here and, as exported archives, on a real server."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.repository import environments
from bls_notebook.shipping.servers.server_programs import ServerEnvironment
from bls_notebook.shipping.servers.tritonserver import TritonRequestError, TritonServer

pytestmark = [pytest.mark.extra, pytest.mark.triton]

# NumPy 2 gets and returns its arrays by DLPack, because the stubs of this server are built for NumPy 1.
FACTS = """\
import sys
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x, version = pb_utils.get_input_tensor_by_name(request, "X"), int(np.__version__.split(".")[0])
        x = x.as_numpy() if version < 2 else np.from_dlpack(x)
        scalar = np.float32(3) + 3e10  # its type depends on NumPy's version
        facts = np.array([*sys.version_info[:2], version, scalar.itemsize, *(x * scalar)], np.float64)
        make = pb_utils.Tensor if version < 2 else pb_utils.Tensor.from_dlpack
        return pb_utils.InferenceResponse([make("Y", facts)])
"""
BOTH = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "X")) for request in requests]

    def answer(self, x):
        facts = []
        for name in ("old", "new"):
            request = pb_utils.InferenceRequest(model_name=name, requested_output_names=["Y"], inputs=[x])
            response = request.exec()
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            facts.append(pb_utils.get_output_tensor_by_name(response, "Y").as_numpy())
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.concatenate(facts))])
"""
X = {"X": np.array([1.5, 2.25], np.float32)}


def config(length: int) -> dict[str, object]:
    return {
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}],
        "output": [{"name": "Y", "data_type": "TYPE_FP64", "dims": [length]}],
    }


def test_numpy_1_on_python_3_9_and_numpy_2_on_3_13_answer_as_on_a_server(
    environment: ServerEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "environments_folder", lambda: tmp_path / "environments")
    with bls.ModelRepository() as repo:
        try:
            old = repo.environment("numpy==1.26.4", python="3.9")
            new = repo.environment("numpy>=2", python="3.13")
        except bls.BLSError as error:
            pytest.skip(f"needs Python 3.9 and 3.13, and a package index: {str(error).splitlines()[0]}")
        repo.define("old", FACTS, config(6), environment=old)
        repo.define("new", FACTS, config(6), environment=new)
        repo.define("both", BOTH, config(12))
        here = repo.infer("both", X)["Y"].as_numpy()
        assert here[[0, 1, 2, 6, 7, 8]].tolist() == [3, 9, 1, 3, 13, 2]
        assert [record.users for record in repo.environments()] == [
            (name,) for _, name in sorted([(old.name, "old"), (new.name, "new")])
        ]
        with bls.serve(repo=repo) as server:
            there = server.infer("both", X)["Y"]
        assert here.tobytes() == there.tobytes()
        proof = bls.prove("old", X, repo=repo)
        assert proof.equal
        exported = [bls.export(tmp_path / name, repo=repo) for name in ("a", "b")]
        assert [(tmp_path / name / "old" / "environment.tar.gz").exists() for name in ("a", "b")] == [True, True]
        assert exported[0].requirements == ("numpy<2",)  # of `both`, which has no environment
        shutil.rmtree(tmp_path / "environments")  # the archive has everything
        with bls.ModelRepository(tmp_path / "a") as copy:
            copy.load("old")
            assert copy.infer("old", X)["Y"].as_numpy().tobytes() == here[:6].tobytes()


def packed(file: Path, mode: str, names: list[str]) -> None:
    with tarfile.open(file, mode) as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))


def test_forms_of_environments_that_a_server_refuses_are_reported_by_check(
    environment: ServerEnvironment, tmp_path: Path
) -> None:
    forms = {
        "relative": "environment.tar.gz",
        "one_dollar": "$TRITON_MODEL_DIRECTORY/environment.tar.gz",
        "below": "$$TRITON_MODEL_DIRECTORY/below.tar.gz",
        "bzip2": "$$TRITON_MODEL_DIRECTORY/environment.tar.bz2",
        "bare": "$$TRITON_MODEL_DIRECTORY/bare",
        "missing": "$$TRITON_MODEL_DIRECTORY/missing.tar.gz",
    }
    for name, path in forms.items():
        folder = tmp_path / name
        (folder / "1").mkdir(parents=True)
        (folder / "bare").mkdir()
        (folder / "1" / "model.py").write_text(FACTS)
        (folder / "config.pbtxt").write_text(
            'backend: "python"\ninput { name: "X" data_type: TYPE_FP32 dims: [2] }\n'
            'output { name: "Y" data_type: TYPE_FP64 dims: [6] }\n'
            f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}\n'
        )
        packed(folder / "environment.tar.gz", "w:gz", ["bin/activate"])
        packed(folder / "below.tar.gz", "w:gz", ["environment/bin/activate"])
        packed(folder / "environment.tar.bz2", "w:bz2", ["bin/activate"])
    with bls.ModelRepository(tmp_path) as repo, TritonServer(tmp_path, environment=environment) as server:
        for name in forms:
            with pytest.raises(TritonRequestError, match="load failed"):
                server.load(name)
        findings = bls.check(repo=repo).findings
    codes = {(finding.model, finding.code) for finding in findings if finding.code.startswith("environment")}
    assert codes == {
        ("relative", "environment-outside"), ("one_dollar", "environment-outside"), ("below", "environment-refused"),
        ("bzip2", "environment-refused"), ("bare", "environment-refused"), ("missing", "environment-missing"),
    }  # fmt: skip
