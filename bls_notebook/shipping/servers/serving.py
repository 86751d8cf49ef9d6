"""`serve`: runs the real tritonserver on an exported copy of loaded models.

Guarantees: the server listens on loopback only. No process, shared memory or file remains after `stop`, after a
failed or interrupted start, after Python ends, and after this process is killed.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bls_notebook.backends import environment_path
from bls_notebook.checking.checked_model import CheckedModel, read_model
from bls_notebook.checking.environments import python_of
from bls_notebook.checking.release_checks import release_problems
from bls_notebook.checking.releases import release_of, versions
from bls_notebook.engine import BLSError
from bls_notebook.extending import host_of, operation, undo
from bls_notebook.network.kserve.address import HOST
from bls_notebook.progress import progress
from bls_notebook.records import Printable
from bls_notebook.repository import ModelRepository
from bls_notebook.repository.config import environment_parameter, parse_config
from bls_notebook.shipping.exporter import export
from bls_notebook.shipping.records import Exported, ServedModel, ServerRecord

from . import server_programs
from .server_programs import InstalledServer, Program, ServerEnvironment, TritonServerError
from .tritonserver import PrivateFolder, TritonServer

_LOG_LINES = 12
_MESSAGE = re.compile(r"\s*[^\s|+]")  # a line of the log that is not part of a table
_PATIENCE = 5.0  # timeout in seconds of queries for the server's state


class LocalServer(TritonServer, Printable):
    """A tritonserver on a copy of the notebook's models; a context manager.

    It has the methods of `TritonServer`, such as ``infer``, ``statistics``, ``log`` and ``stop``. A stopped server
    cannot start again, because its copy of the models is removed.

    Attributes
    ----------
    exported : Exported
        The served copy of the models.
    release_problems : mapping of str to tuple of str
        What the server's release lacks for each model, and its known bugs that the model would meet.
    """

    def __init__(
        self, copy: PrivateFolder, exported: Exported, environment: Program, options: Sequence[str],
        start_timeout: float, notes: Sequence[str], checked: Mapping[str, CheckedModel],
    ) -> None:  # fmt: skip
        at_start = [model.name for model in exported.models if model.at_start]
        given = {option.partition("=")[0] for option in (*options, "--model-control-mode", "--load-model")}
        options = (*options, *(each for each in exported.server_options if each.partition("=")[0] not in given))
        super().__init__(
            copy.path / "models", environment=environment, load=at_start, options=options, start_timeout=start_timeout
        )
        self.exported = exported
        self._copy = copy
        self._notes = tuple(notes)
        self._seconds = 0.0
        self._version = ""
        self._last: tuple[ServedModel, ...] = ()
        self._checked = checked
        self.release_problems: Mapping[str, tuple[str, ...]] = {}

    @operation
    def start(self) -> LocalServer:
        if not self._copy.remove.alive:
            raise TritonServerError(
                "this server was stopped, which removed its copy of the models; call bls.serve again"
            )
        release = self.environment.release if self.environment is not None else ""
        self._know_release(release)
        try:
            self._start()
        except TritonServerError as error:
            problems = "".join(f"\n  {line}" for lines in self.release_problems.values() for line in lines)
            raise TritonServerError(f"{error}{problems}") from None
        self._version = str(self.metadata().get("version", ""))
        self._know_release(release or release_of(self._version))
        self._seconds = time.monotonic() - self._copy.made
        return self

    def _know_release(self, release: str) -> None:
        """Find out what a release lacks for the models; an unknown one, nothing."""
        is_image = not isinstance(self.environment, ServerEnvironment)
        if release in versions():
            problems = release_problems(self._checked, release, is_image)
            self.release_problems = {name: lines for name, lines in problems.items() if lines}

    def _enter(self) -> None:
        if self.pid is None:
            self.start()

    @operation
    def stop(self, graceful: bool = True) -> None:
        """Stop the server and remove its copy of the models. May be called twice."""
        self._notes += self._ended()
        try:
            with progress("stopping tritonserver"):
                super().stop(graceful)
        finally:
            self._copy.remove()

    @operation
    def restart(self) -> None:
        """Kill the server and start it again on the same copy of the models."""
        super().stop(graceful=False)
        self._start()

    def _start(self) -> None:
        super().start()
        for model in self.exported.models:
            if model.late:  # it loads other models, which a starting server refuses
                self.load(model.name)

    def wait(self) -> None:
        """Wait until the server ends.

        Raises
        ------
        TritonServerError
            The server ended without `stop`; the message has the last lines of its log.
        """
        run = self._running()
        run.process.wait()
        if self._run is run:
            raise TritonServerError(f"tritonserver {run.how_it_ended()}:\n{run.last_lines()}")

    @property
    def record(self) -> ServerRecord:
        """The current state of the server, which a notebook displays."""
        state = self._state()
        if state in ("READY", "NOT READY"):
            self._last = self._models()
        environment = self.environment
        return ServerRecord(
            state=state, program=environment.description if environment is not None else "", version=self._version,
            http=self.url, grpc=self.grpc_url, metrics=f"http://{HOST}:{self.metrics_port}/metrics",
            models=self._last, log_file=str(self._run.folder / "log") if self._run is not None else "",
            log=tuple(filter(_MESSAGE.match, self.log().splitlines()))[-_LOG_LINES:], seconds=self._seconds,
            notes=(*self._notes, *(line for lines in self.release_problems.values() for line in lines), *self._ended()),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<LocalServer {self._state()} {self.url} {', '.join(self.exported.names)}>"

    def _state(self) -> str:
        if self._run is None:
            return "STOPPED"
        try:
            ready = self.send("GET", "/v2/health/ready", wait=_PATIENCE).status == 200
        except TritonServerError:
            return "NOT READY" if self.pid is not None else "ENDED"
        return "READY" if ready else "NOT READY"

    def _ended(self) -> tuple[str, ...]:
        """Return the exit status of a server that ended without `stop`; empty otherwise."""
        run = self._run
        return () if run is None or run.process.poll() is None else (f"tritonserver {run.how_it_ended()}",)

    def _models(self) -> tuple[ServedModel, ...]:
        try:
            index = self.index(_PATIENCE)
        except TritonServerError:
            return self._last
        models = []
        for model in self.exported.models:
            rows = [row for row in index if row.get("name") == model.name]
            models.append(
                ServedModel(
                    name=model.name,
                    versions=tuple(sorted(int(row.get("version") or 0) for row in rows)),
                    state=", ".join(sorted({row.get("state", "") for row in rows})),
                    reason=next((row["reason"] for row in rows if row.get("reason")), ""),
                    backend=model.backend,
                    calls=model.calls,
                )
            )
        return tuple(models)


@operation
def serve(
    *models: str, repo: ModelRepository | None = None, environment: Program | None = None,
    container: bool | str = False, requirements: Sequence[str] | None = None, options: Sequence[str] = (),
    start_timeout: float = 120.0,
) -> LocalServer:  # fmt: skip
    """Serve a copy of loaded models and their callees with the real tritonserver.

    The server is the ``tritonserver`` on PATH. Without one, it is the server in the wheel ``nvidia-pytriton``,
    installed once into a separate environment (see `make_environment`) with the packages that the models import.
    If the wheel does not support this system, it is NVIDIA's image in a container, if docker is installed. The
    server listens on free ports of 127.0.0.1 only. The notes of its record say what its release lacks for the models.

    Parameters
    ----------
    *models : str
        Names of loaded models; by default all.
    repo : ModelRepository, optional
        Default: `current_repository`.
    environment : ServerEnvironment, InstalledServer or Container, optional
        The server program; nothing is installed into it.
    container : bool or str
        True to serve in a container, or the name of its image.
    requirements : sequence of str, optional
        The models' packages, as pip requirements. Default: the packages that they import, in the versions
        installed here; in other versions if those cannot be installed with NumPy 1.
    options : sequence of str
        Additional options of tritonserver.
    start_timeout : float
        Timeout for loading all models, in seconds.

    Returns
    -------
    LocalServer
        A ready server; stop it with ``stop()``, or use it as a context manager.

    Raises
    ------
    BLSError
        A model cannot be exported, or this server cannot run it.
    TritonServerError
        The server cannot be installed or did not start; the message has the last lines of its log.

    Examples
    --------
    >>> with bls.serve("add_sub") as server:  # doctest: +SKIP
    ...     server.infer("add_sub", {"INPUT0": a, "INPUT1": b})["OUTPUT0"]
    """
    program = environment
    if program is None and not container and (path := shutil.which("tritonserver")):
        program = InstalledServer(Path(path))
    if program is None and not container and not server_programs.is_supported():
        container = server_programs.has_docker()
        if not container:
            server_programs.make_environment()  # raises TritonServerError
    copy = PrivateFolder("bls-serve-")
    undo(copy.remove)
    exported = export(copy.path / "models", *models, repo=repo)
    notes: list[str] = []
    if program is None and container:
        image = container if isinstance(container, str) else ""
        program = server_programs.container_for(exported, copy.path / "models", image, requirements)
    elif program is None:
        program, notes = _with_packages(exported.requirements if requirements is None else requirements)
    elif needs := [each for each in exported.requirements if not each.startswith("numpy")]:
        notes = [f"the server's Python must have the packages of the models: {', '.join(needs)}"]
    _refuse_backends(exported, program)
    if isinstance(program, ServerEnvironment):
        _add_stubs(copy.path / "models", program)
    if requirements is None and exported.unknown:
        modules = ", ".join(sorted({module for _, _, module, _ in exported.unknown}))
        notes.append(f"the server may lack modules that the models import and are not installed here: {modules}")
    host = host_of(repo)
    checked = {name: read_model(host.source(name), host.find(name)) for name in exported.names}
    server = LocalServer(copy, exported, program, options, start_timeout, notes, checked)
    undo(partial(server.stop, graceful=False))
    server.start()
    return server


def _with_packages(requirements: Sequence[str]) -> tuple[ServerEnvironment, list[str]]:
    """Return the wheel's server with packages, and notes; in other versions if these cannot be installed."""
    packages = [each for each in requirements if not each.startswith("numpy")]  # the environment has its NumPy
    try:
        return server_programs.make_environment(requirements=packages), []
    except TritonServerError:
        if not any("==" in each for each in packages):
            raise
    environment = server_programs.make_environment(requirements=[each.partition("==")[0] for each in packages])
    failed = f"{', '.join(packages)} could not be installed together for the server"
    return environment, [f"{failed}: it has other versions, which suit its Python and NumPy 1"]


def _add_stubs(models: Path, environment: ServerEnvironment) -> None:
    """Put the wheel's stub for another Python beside each model whose environment has that Python."""
    for config in models.glob("*/config.pbtxt"):
        folder, stub = config.parent, config.parent / environment.stub("").name
        path = environment_parameter(parse_config(config.read_text("utf-8"), model=folder.name))
        packed = environment_path(path, folder)
        python = python_of(packed) if packed is not None else ""
        if python not in ("", environment.version) and environment.stub(python).exists() and not stub.exists():
            shutil.copy2(environment.stub(python), stub)
            stub.chmod(0o755)


def _refuse_backends(exported: Exported, environment: Program) -> None:
    """Raise BLSError if the wheel's server cannot run a model."""
    if not isinstance(environment, ServerEnvironment):
        return
    folder = environment.server / "backends"
    backends = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    for model in exported.models:
        if model.backend == "python" and len(model.name.split()) > 1:
            raise BLSError(
                f"serve: model {model.name!r}: the tritonserver in {environment.folder} starts Python models "
                "through a shell, which splits a name with spaces, and the model would never be ready; rename the "
                "model, or put a newer tritonserver on PATH"
            )
        if backends and model.backend and model.backend not in backends:
            raise BLSError(
                f"serve: model {model.name!r} needs the backend {model.backend!r}; the tritonserver in "
                f"{environment.folder} has {', '.join(backends)}; put a tritonserver with that backend on PATH, or "
                "serve other models"
            )
