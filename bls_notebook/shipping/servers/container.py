"""A tritonserver in a container: NVIDIA's image, run by the ``docker`` on PATH (or a program with its options).

The container has the label ``bls_notebook``, is published on 127.0.0.1 only, sees the models and nothing else of
this machine, and is removed when the server stops.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bls_notebook.records.progress import progress
from bls_notebook.shipping.exports.deployment import IMAGE, RELEASE, shm_mib
from bls_notebook.shipping.records import Exported

from .environment import Program, TritonServerError

DEFAULT_IMAGE = f"{IMAGE}:{RELEASE}-py3"
_LOOPBACK, _ANY = "127.0.0.1", "0.0.0.0"


@dataclass(frozen=True)
class Container(Program):
    """A tritonserver in a container, with the folder of ``models`` mounted at the same path.

    ``install`` are pip requirements, installed before the server starts.
    """

    image: str
    models: Path
    shm_mib: int
    install: tuple[str, ...] = ()
    gpus: bool = False
    name: str = field(default_factory=lambda: f"bls-notebook-{secrets.token_hex(6)}")

    def command(self, arguments: Sequence[str]) -> list[str]:
        ports = [each.partition("=")[2] for each in arguments if each.partition("=")[0].endswith("-port")]
        inside = [each.replace(f"-address={_LOOPBACK}", f"-address={_ANY}") for each in arguments]
        install = f"pip install --quiet {shlex.join(self.install)} && " if self.install else ""
        return [
            *("docker", "run", "--rm", "--name", self.name, "--label", "bls_notebook=serve"),
            f"--shm-size={self.shm_mib}m",
            *(("--gpus", "all") if self.gpus else ()),
            *(f"--publish={_LOOPBACK}:{port}:{port}" for port in ports),
            f"--volume={self.models}:{self.models}:ro",
            "--env=PYTHONDONTWRITEBYTECODE=1",
            *(self.image, "sh", "-c", f'{install}exec tritonserver "$@"', "sh", *inside),
        ]

    @property
    def cleanup(self) -> list[str]:  # type: ignore[override]
        """The command that removes the container, even if the one that started it is gone."""
        return ["docker", "rm", "--force", "--volumes", self.name]

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"{self.image}, in the container {self.name}"


def container_for(
    exported: Exported, folder: Path, image: str = "", requirements: Sequence[str] | None = None
) -> Container:
    """Return a container for an export; pull the image if need be.

    TritonServerError: there is no docker, its daemon does not answer, or the image cannot be pulled.
    """
    if shutil.which("docker") is None:
        raise TritonServerError("there is no docker on PATH, to run a container; install it")
    image = image or DEFAULT_IMAGE
    _docker("version", "--format", "{{.Server.Version}}")
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode:
        with progress(f"pulling {image}, which takes minutes"):
            _docker("pull", "--quiet", image)
    wanted = exported.requirements if requirements is None else requirements
    return Container(image, folder, shm_mib(exported), tuple(wanted), exported.on_gpu)


def has_docker() -> bool:
    """Whether there is a docker that can run containers."""
    try:
        _docker("version", "--format", "{{.Server.Version}}")
    except TritonServerError:
        return False
    return True


def _docker(*words: str) -> None:
    try:
        done = subprocess.run(["docker", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise TritonServerError(f"docker cannot be run: {error.strerror}") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        said = lines[-1] if lines else f"status {done.returncode}"
        raise TritonServerError(f"docker {words[0]} failed: {said}")
