"""`serve`: the real tritonserver on an exported copy of what serves here.

Guarantees: it listens on loopback only; no process, shared memory or file is left when it is stopped, when
starting fails or is interrupted, when Python ends, and when this process is killed.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from bls_notebook.engine.errors import BLSError
from bls_notebook.network.kserve.address import HOST
from bls_notebook.progress import progress
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.shipping.exports.exporter import export
from bls_notebook.shipping.records import Exported, ServedModel, ServerRecord

from .environment import (
    InstalledServer,
    Program,
    ServerEnvironment,
    TritonServerError,
    container_for,
    has_docker,
    is_supported,
    make_environment,
)
from .tritonserver import PrivateFolder, TritonServer

_LOG_LINES = 12
_SAID = re.compile(r"\s*[^\s|+]")  # and no part of a table of options
_PATIENCE = 5.0  # seconds, for a look at how it is


class LocalServer(TritonServer):
    """A tritonserver on a copy of the notebook's models; a context manager.

    It has the methods of `TritonServer`: ``infer``, ``statistics``, ``log``, ``stop``. Once stopped it does not
    start again, because its copy of the models is gone.

    Attributes
    ----------
    exported : Exported
        What it serves.
    """

    def __init__(
        self, copy: PrivateFolder, exported: Exported, environment: Program, options: Sequence[str],
        start_timeout: float, notes: Sequence[str],
    ) -> None:  # fmt: skip
        super().__init__(
            copy.path / "models", environment=environment, load=exported.names, options=options,
            start_timeout=start_timeout,
        )  # fmt: skip
        self.exported = exported
        self._copy = copy
        self._notes = tuple(notes)
        self._seconds = 0.0
        self._version = ""
        self._last: tuple[ServedModel, ...] = ()

    def start(self) -> LocalServer:
        """Start it and wait until it is ready."""
        if not self._copy.remove.alive:
            raise TritonServerError("this server was stopped, and its models are gone; serve them again")
        super().start()
        self._version = str(self.metadata().get("version", ""))
        self._seconds = time.monotonic() - self._copy.made
        return self

    def __enter__(self) -> LocalServer:
        """Return the server; start it if it is not running."""
        return self if self.pid is not None else self.start()

    def stop(self, graceful: bool = True) -> None:
        """Stop the server and remove its copy of the models; nothing happens where it was stopped."""
        self._notes += self._ended()
        try:
            with progress("stopping tritonserver"):
                super().stop(graceful)
        finally:
            self._copy.remove()

    def restart(self) -> None:
        """Kill it and start it again on the same copy of the models."""
        super().stop(graceful=False)
        super().start()

    @property
    def site_packages(self) -> Path | None:
        """The folder of the packages that its models import; None if unknown."""
        return self.environment.site_packages if isinstance(self.environment, ServerEnvironment) else None

    @property
    def python(self) -> str:
        """The version of Python that its models run in; empty if unknown."""
        return self.environment.version if isinstance(self.environment, ServerEnvironment) else ""

    def wait(self) -> None:
        """Wait until the server ends.

        Raises
        ------
        TritonServerError
            It ended by itself; the message has the last lines of its log.
        """
        run = self._running()
        run.process.wait()
        if self._run is run:
            raise TritonServerError(f"tritonserver {run.how_it_ended()}:\n{run.last_lines()}")

    @property
    def record(self) -> ServerRecord:
        """The state of the server now; what a notebook shows."""
        state = self._state()
        if state in ("READY", "NOT READY"):
            self._last = self._models()
        environment = self.environment
        return ServerRecord(
            state=state,
            program=environment.description if environment is not None else "",
            version=self._version,
            http=self.url,
            grpc=self.grpc_url,
            metrics=f"http://{HOST}:{self.metrics_port}/metrics",
            models=self._last,
            log_file=str(self._run.folder / "log") if self._run is not None else "",
            log=tuple(filter(_SAID.match, self.log().splitlines()))[-_LOG_LINES:],
            seconds=self._seconds,
            notes=(*self._notes, *self._ended()),
        )

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
        """Return how the server ended, if it ended by itself."""
        run = self._run
        return () if run is None or run.process.poll() is None else (f"tritonserver {run.how_it_ended()}",)

    def _models(self) -> tuple[ServedModel, ...]:
        """Return the models in the server's repository index."""
        try:
            index = self.index(_PATIENCE)
        except TritonServerError:
            return self._last
        models = []
        for model in self.exported.models:
            rows = [row for row in index if row.get("name") == model.name]
            states = sorted({row.get("state", "") for row in rows})
            models.append(
                ServedModel(
                    name=model.name,
                    versions=tuple(sorted(int(row.get("version") or 0) for row in rows)),
                    state=", ".join(states),
                    reason=next((row["reason"] for row in rows if row.get("reason")), ""),
                    backend=model.backend,
                    calls=model.calls,
                )
            )
        return tuple(models)


def serve(
    *models: str,
    repo: ModelRepository | None = None,
    environment: Program | None = None,
    container: bool | str = False,
    requirements: Sequence[str] | None = None,
    options: Sequence[str] = (),
    start_timeout: float = 120.0,
) -> LocalServer:
    """Serve models, with all that they call, by the real tritonserver, on a copy of what they are now.

    The server is the ``tritonserver`` on PATH; without one, that of the wheel ``nvidia-pytriton``, which is
    installed once into an environment of its own (see `make_environment`), with what the models import; and
    where that does not run, NVIDIA's image in a container, if there is docker. It listens on free ports of
    127.0.0.1 alone.

    Parameters
    ----------
    *models : str
        Names of loaded models; by default all.
    repo : ModelRepository, optional
        Where they serve; default: `current_repository`.
    environment : ServerEnvironment, InstalledServer or Container, optional
        What to serve them with; nothing is installed into it.
    container : bool or str
        Whether to serve them in a container, or the image to do so with.
    requirements : sequence of str, optional
        What the models import, as pip requirements; default: what they import here, in the versions that are
        here, or in others where those cannot be had beside NumPy 1.
    options : sequence of str
        More options of tritonserver.
    start_timeout : float
        Seconds that loading all models may take.

    Returns
    -------
    LocalServer
        It is ready; stop it by ``stop()``, or use it as a context manager.

    Raises
    ------
    BLSError
        A model cannot ship, or this server cannot run it.
    TritonServerError
        The server cannot be had here, or did not start; the message has the last lines of its log.

    Examples
    --------
    >>> with bls.serve("add_sub") as server:  # doctest: +SKIP
    ...     server.infer("add_sub", {"INPUT0": a, "INPUT1": b})["OUTPUT0"]
    """
    found = environment
    if found is None and not container and (program := shutil.which("tritonserver")):
        found = InstalledServer(Path(program))
    if found is None and not container and not is_supported():
        container = has_docker()
        if not container:
            make_environment()  # raises TritonServerError
    copy = PrivateFolder("bls-serve-")
    try:
        exported = export(copy.path / "models", *models, repo=repo)
        notes: list[str] = []
        if found is None and container:
            image = container if isinstance(container, str) else ""
            found = container_for(exported, copy.path / "models", image, requirements)
        elif found is None:
            found, notes = _with_packages(exported.requirements if requirements is None else requirements)
        elif needs := [each for each in exported.requirements if not each.startswith("numpy")]:
            notes = [f"its own Python has to have what the models import: {', '.join(needs)}"]
        _refuse_backends(exported, found)
        notes += [
            f"the models import {each}, which neither this environment nor the server has; name its package in "
            "requirements="
            for each in exported.unknown
            if requirements is None
        ]
        server = LocalServer(copy, exported, found, options, start_timeout, notes)
        server.start()
        return server
    except BaseException:
        copy.remove()
        raise


def _with_packages(wanted: Sequence[str]) -> tuple[ServerEnvironment, list[str]]:
    """Return the wheel's server with packages: in other versions if these cannot be installed."""
    packages = [each for each in wanted if not each.startswith("numpy")]  # it has its own NumPy
    try:
        return make_environment(requirements=packages), []
    except TritonServerError:
        if not any("==" in each for each in packages):
            raise
    made = make_environment(requirements=[each.partition("==")[0] for each in packages])
    failed = f"{', '.join(packages)} could not be installed there together"
    return made, [f"{failed}: the server has the versions that fit its Python and NumPy 1"]


def _refuse_backends(exported: Exported, environment: Program) -> None:
    """Raise BLSError for models that the wheel's server cannot run."""
    if not isinstance(environment, ServerEnvironment):
        return
    folder = environment.server / "backends"
    backends = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    for model in exported.models:
        if model.backend == "python" and len(model.name.split()) > 1:
            raise BLSError(
                f"serve: model {model.name!r}: the tritonserver in {environment.folder} starts Python models "
                "by a shell, where a name with a space falls apart, and would never be ready; give the model "
                "another name, or put a newer tritonserver on PATH"
            )
        if backends and model.backend and model.backend not in backends:
            raise BLSError(
                f"serve: model {model.name!r} needs the backend {model.backend!r}; the tritonserver in "
                f"{environment.folder} has {', '.join(backends)}; put a tritonserver that has it on PATH, or "
                "serve other models"
            )
