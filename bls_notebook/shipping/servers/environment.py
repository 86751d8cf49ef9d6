"""Programs that run as a tritonserver: of the wheel ``nvidia-pytriton``, an installed one, or one in a container.

The wheel carries a tritonserver with the Python backend, for Linux on x86-64. It needs NumPy 1, so it is installed
into a virtual environment of its own and never into the caller's. Models on that server import from there too.

A container of NVIDIA's image is run by the ``docker`` on PATH (or a program with its options). It has the label
``bls_notebook``, is published on 127.0.0.1 only, sees the models and nothing else of this machine, and is removed
when the server stops.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import json
import os
import platform
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.progress import Progress, progress
from bls_notebook.shipping.exports.deployment import IMAGE, RELEASE, shm_mib
from bls_notebook.shipping.records import Exported

WHEEL = "nvidia-pytriton==0.7.0"
NUMPY = "numpy>=1.26,<2"
PYTHONS = ("3.10", "3.11", "3.12")  # those that the wheel has a stub for and NumPy 1.26 a wheel
MARKER = "bls_notebook.json"


class TritonServerError(BLSError):
    """The server cannot be installed, started or reached, or it died."""


class Program:
    """A program that can be run as a tritonserver: of an environment, an installed one, or in a container."""

    cleanup: Sequence[str] = ()
    """A command to run when the server has ended."""
    description: str
    """Which server it is, in words."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that starts the server with these options."""
        raise NotImplementedError

    def variables(self) -> dict[str, str]:
        """Return the environment variables of the server."""
        return dict(os.environ)


@dataclass(frozen=True)
class ServerEnvironment(Program):
    """A virtual environment with a tritonserver laid out in it.

    `version`: of its Python, in which models on the server run, as ``"3.11"``.
    `python_libraries`: the folder of the base interpreter's shared libraries, ``libpython`` among them.
    """

    folder: Path
    version: str
    site_packages: Path
    python_libraries: Path

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python3"

    @property
    def server(self) -> Path:
        """The folder with the server's ``bin``, ``backends`` and ``caches``."""
        return self.folder / f"tritonserver-{WHEEL.partition('==')[2]}-python{self.version}"

    def variables(self) -> dict[str, str]:
        variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        # The stub finds its packages through PATH, as an interpreter named python3 would.
        # It ignores PYTHONPATH and PYTHONHOME.
        variables["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        libraries = [str(self.site_packages / "nvidia_pytriton.libs"), str(self.python_libraries)]
        if variables.get("LD_LIBRARY_PATH"):
            libraries.append(variables["LD_LIBRARY_PATH"])
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
        variables["VIRTUAL_ENV"] = str(self.folder)
        return variables

    def command(self, arguments: Sequence[str]) -> list[str]:
        return [
            str(self.server / "bin" / "tritonserver"),
            f"--backend-directory={self.server / 'backends'}",
            f"--cache-directory={self.server / 'caches'}",
            *arguments,
        ]

    @property
    def description(self) -> str:  # type: ignore[override]
        home = Path.home()
        inside = self.folder.is_relative_to(home) and home != Path("/")
        folder = Path("~", self.folder.relative_to(home)) if inside else self.folder
        return f"{WHEEL}, Python {self.version}, in {folder}"


@dataclass(frozen=True)
class InstalledServer(Program):
    """A tritonserver that is installed, as on PATH in NVIDIA's images, with the packages of its own Python."""

    program: Path

    def command(self, arguments: Sequence[str]) -> list[str]:
        return [str(self.program), *arguments]

    @property
    def description(self) -> str:  # type: ignore[override]
        return str(self.program)


def default_environment_folder() -> Path:
    """Return the default folder: that of ``BLS_NOTEBOOK_TRITON_ENV``, or one in the user's cache folder."""
    if named := os.environ.get("BLS_NOTEBOOK_TRITON_ENV"):
        return Path(named).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "bls_notebook" / "tritonserver"


def make_environment(
    folder: str | os.PathLike[str] | None = None,
    requirements: Sequence[str] = (),
    python: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> ServerEnvironment:
    """Return the environment of the server and its models; make it if need be.

    The first call downloads some 100 MB and takes about 15 seconds; later ones take a fraction of a second
    and need no network. Several processes may call it at once.

    `folder`: the virtual environment. Default: `default_environment_folder`.
    `requirements`: the models' packages beside NumPy, as pip requirements (``"scikit-learn"``).
    `python`: the interpreter to make it with. Default: this one, or python3.12, 3.11 or 3.10 on PATH.
    `progress`: called with one line before each step that takes seconds.
    Raises TritonServerError: not Linux on x86-64, no fitting Python, or the packages cannot be installed.
    """
    if not is_supported():
        raise TritonServerError(
            f"tritonserver runs on Linux x86-64 only, this is {platform.system()} {platform.machine()}; "
            "use a Linux machine, a container or a server elsewhere"
        )
    told = Progress("looking at the environment for tritonserver")

    def say(line: str) -> None:
        told.what = line
        if progress is not None:
            progress(line)

    place = Path(folder).expanduser().absolute() if folder is not None else default_environment_folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TritonServerError(f"cannot make the folder {place}: {error.strerror}") from None
    with told, _locked(place):
        interpreter = place / "bin" / "python3"
        before = _read_marker(place)
        had = dict(before)
        if not before:
            check = [str(interpreter), "-m", "pip", "--version"]
            if not interpreter.exists() or subprocess.run(check, capture_output=True).returncode:
                say(f"making a Python environment for tritonserver in {place}")
                _run([str(python or _fitting_python()), "-m", "venv", str(place)], "make a virtual environment")
        if had.get("wheel") != WHEEL:
            say(f"installing {WHEEL} (once)")
            _pip(interpreter, ["--no-deps", WHEEL])  # of the wheel only the server itself is used
            _pip(interpreter, [NUMPY])
            had = {"wheel": WHEEL, "requirements": []}
        present = {*had["requirements"], *map(_distribution, had["requirements"])}
        missing = [item for item in requirements if item not in present]
        if missing:
            say(f"installing {', '.join(missing)} for models on tritonserver")
            _pip(interpreter, [NUMPY, *missing])
            new = {_distribution(item) for item in missing}
            kept = [item for item in had["requirements"] if _distribution(item) not in new]
            had["requirements"] = kept + missing
        environment = _describe(place)
        try:
            _lay_out(environment)
            if had != before:
                (place / MARKER).write_text(json.dumps(had))
        except OSError as error:
            raise TritonServerError(f"cannot lay tritonserver out in {place}: {error}") from None
    return environment


def _distribution(requirement: str) -> str:
    """Return the normalized name of the package in a requirement."""
    found = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", found.group()).lower() if found else requirement


def is_supported() -> bool:
    """Whether the wheel's tritonserver runs on this system at all: Linux on x86-64."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")


def _fitting_python() -> str:
    here = platform.python_version().rpartition(".")[0]
    if here in PYTHONS:
        return sys.executable
    for version in reversed(PYTHONS):
        found = shutil.which(f"python{version}")
        if found and subprocess.run([found, "-c", "import ensurepip"], capture_output=True).returncode == 0:
            return found
    few = f"{', '.join(PYTHONS[:-1])} or {PYTHONS[-1]}"
    raise TritonServerError(
        f"models on tritonserver need Python {few}, this is {here} and PATH has none of them; "
        "install one, or give its path as python="
    )


def _run(command: list[str], to: str, hint: str = "") -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")}
    try:
        done = subprocess.run(command, env=clean, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise TritonServerError(f"cannot {to}: {command[0]}: {error.strerror}") from None
    if done.returncode == 0:
        return done.stdout.strip()
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines or [f"status {done.returncode}"]
    raise TritonServerError(f"cannot {to}: {errors[-1].removeprefix('ERROR: ')}{hint}")


def _pip(interpreter: Path, arguments: list[str]) -> None:
    wanted = " ".join(item for item in arguments if not item.startswith("--"))
    command = [str(interpreter), "-m", "pip", "install", "--quiet", "--no-input", "--retries", "1"]
    hint = "; installing it needs the network, or the wheels in a folder that PIP_FIND_LINKS names"
    _run([*command, "--disable-pip-version-check", *arguments], f"install {wanted}", hint)


def _describe(folder: Path) -> ServerEnvironment:
    script = (
        "import json, sys, sysconfig, numpy; print(json.dumps(['%d.%d' % sys.version_info[:2], "
        "sysconfig.get_path('purelib'), sysconfig.get_config_var('LIBDIR')]))"
    )
    hint = "; delete that folder to have it made anew"
    version, site, libraries = json.loads(_run([str(folder / "bin" / "python3"), "-c", script], f"use {folder}", hint))
    return ServerEnvironment(folder, version, Path(site), Path(libraries))


def _lay_out(environment: ServerEnvironment) -> None:
    """Copy the server out of the wheel into the layout that it expects, with its stub beside the backend."""
    wheel, server = environment.site_packages / "pytriton" / "tritonserver", environment.server
    if server.exists():
        return
    stub = wheel / "python_backend_stubs" / environment.version / "triton_python_backend_stub"
    if not stub.exists():
        raise TritonServerError(
            f"{WHEEL} has no stub for Python {environment.version} ({environment.folder}); "
            f"make the environment with one of {', '.join(PYTHONS)}"
        )
    library = f"libpython{environment.version}.so.1.0"
    if not (environment.python_libraries / library).exists() and not ctypes.util.find_library(
        f"python{environment.version}"
    ):
        raise TritonServerError(
            f"models on tritonserver need {library}, which the Python of {environment.folder} does not have; "
            f"install libpython{environment.version}, or give another interpreter as python="
        )
    new = environment.folder / "tritonserver-new"
    shutil.rmtree(new, ignore_errors=True)
    for part in ("bin", "backends", "caches"):
        shutil.copytree(wheel / part, new / part)
    shutil.copy2(stub, new / "backends" / "python")
    for program in (new / "bin" / "tritonserver", new / "backends" / "python" / stub.name):
        program.chmod(0o755)
    new.rename(server)  # last: a folder of that name is whole


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    import fcntl  # not on Windows

    try:
        file = open(folder / ".lock", "w")  # noqa: SIM115 - closed below
    except OSError as error:
        raise TritonServerError(f"cannot write into {folder}: {error.strerror}") from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read_marker(folder: Path) -> dict[str, Any]:
    try:
        had = json.loads((folder / MARKER).read_text())
    except (OSError, ValueError):
        return {}
    return had if isinstance(had, dict) and isinstance(had.get("requirements"), list) else {}


DEFAULT_IMAGE = f"{IMAGE}:{RELEASE}-py3"
_DOCKER_VERSION = ["docker", "version", "--format", "{{.Server.Version}}"]
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
    _run(_DOCKER_VERSION, "use docker")
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode:
        with progress(f"pulling {image}, which takes minutes"):
            _run(["docker", "pull", "--quiet", image], "pull the image")
    wanted = exported.requirements if requirements is None else requirements
    return Container(image, folder, shm_mib(exported), tuple(wanted), exported.on_gpu)


def has_docker() -> bool:
    """Whether there is a docker that can run containers."""
    return shutil.which("docker") is not None and not subprocess.run(_DOCKER_VERSION, capture_output=True).returncode
