"""`prove`: the same requests here and on a real server, and a certificate of what came of it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import distributions
from math import isfinite
from time import perf_counter
from typing import Any

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host
from bls_notebook.network.connection.connection import connect
from bls_notebook.records.progress import progress
from bls_notebook.repository.repository import ModelRepository, current_repository
from bls_notebook.shipping.exports.folder_writer import is_cache
from bls_notebook.shipping.servers.environment import ServerEnvironment
from bls_notebook.shipping.servers.serving import LocalServer, serve

from .answers import Allowed
from .asked import cases_of
from .certificate import Certificate, Package
from .comparing import Comparing
from .generating import generator
from .places import Elsewhere, Here, There


def prove(
    model: str,
    *requests: Any,
    generate: int = 0,
    seed: int = 0,
    tolerance: float = 0.0,
    ulps: int = 0,
    instances: Sequence[int] = (),
    parameters: Mapping[str, Any] | None = None,
    repo: ModelRepository | None = None,
    environment: ServerEnvironment | None = None,
    server: str = "",
) -> Certificate:
    """Send the same requests to a model in this process and on a real tritonserver, and compare the answers.

    The server runs an exported copy of the model and of all that it calls. Compared are the outputs (names,
    data types, shapes, values), errors (text, code), parameters, the version, and of decoupled models the
    whole stream; then how often the model and those that it calls were asked and ran. Rows of batches are
    asked for once more by themselves.

    Parameters
    ----------
    model : str
        A model that serves.
    *requests : mapping of str to array_like, or recording
        Inputs by name; or what was recorded, of which the requests to the model are taken. Of a model that
        batches sequences, the mappings are the requests of one sequence, in order.
    generate : int
        How many more requests to make of what the configuration allows: data types, shapes, batches, absent
        optional inputs, NaN and other extremes. What differs is made as small as it gets. Needs hypothesis.
    seed : int
        The same one makes the same requests, by the same version of hypothesis and where the same modules are
        imported: at times it draws a constant from those that are not installed as packages.
    tolerance : float
        Floats may differ by so much, absolutely or in proportion.
    ulps : int
        Or by so many floats that lie between the two.
    instances : sequence of int
        Instance counts with which requests are sent once more, side by side, to both.
    parameters : mapping, optional
        Of the requests that have none of their own; generated ones have them at times.
    repo : ModelRepository, optional
        By default the one that magics use.
    environment : ServerEnvironment, optional
        Of the server; by default one is made, once, with the packages that the models import.
    server : str
        The address of one that runs already and has the model, such as ``grpc://host:8001``; its copy of the
        files, packages and statistics are not known then.

    Returns
    -------
    Certificate
        ``equal`` is true where every answer was.

    Raises
    ------
    BLSError
        The model does not serve, cannot ship or cannot run on that server, or an input is no tensor.
    TritonServerError
        The server cannot run on this machine.
    """
    repository = repo or current_repository()
    spec = _spec(repository, model)
    if generate:
        generator()  # before a server is started for nothing
    # What it calls by names that are not in its source is known then, and served.
    for steps in cases_of(spec, requests, parameters or {}) if spec.scheduler != "sequence" else ():
        Here(repository, spec).ask(steps[0], {})
    options: dict[str, Any] = {
        "generate": generate, "seed": seed, "tolerance": tolerance, "ulps": ulps, "instances": instances,
        "parameters": parameters,
    }  # fmt: skip
    if server:
        with ModelRepository() as there, connect(server, model, repo=there) as connection:
            place = Elsewhere(there, spec)
            begun = Certificate(model, server=f"{connection.server}, {connection.address}")
            return compare(repository, place, begun, requests, **options)
    with proving(repository, [model], environment) as prover:
        return prover.prove(model, *requests, **options)


def compare(
    repository: ModelRepository,
    there: There | Elsewhere,
    begun: Certificate,
    requests: Sequence[Any],
    generate: int = 0,
    seed: int = 0,
    tolerance: float = 0.0,
    ulps: int = 0,
    instances: Sequence[int] = (),
    parameters: Mapping[str, Any] | None = None,
) -> Certificate:
    """Compare the model of a certificate with what it is there; see `prove`."""
    model, spec = begun.model, there.spec
    if not requests and generate < 1:
        raise BLSError(f"prove: no request for model {model!r}: give inputs, or how many to generate")
    if not (isfinite(tolerance) and tolerance >= 0 and ulps >= 0):
        raise BLSError(f"prove: got tolerance {tolerance!r} and ulps {ulps!r}, expected numbers from 0 on")
    if any(count < 1 for count in instances):
        raise BLSError(f"prove: instances: got {list(instances)}, expected counts from 1 on")
    cases = cases_of(spec, requests, parameters or {})
    begun = replace(
        begun, version=repository.record(model).version, seed=seed, tolerance=tolerance, ulps=ulps,
        here=f"bls_notebook {_packages().get('bls-notebook', '')}, Python {platform.python_version()}",
    )  # fmt: skip
    with progress(f"comparing {model} with a server", len(cases) + generate, "request") as told:
        here = Here(repository, spec, there.names)
        comparing = Comparing(here, there, spec, Allowed(tolerance, ulps), told)
        started = perf_counter()
        done = comparing.run(begun, cases, generate, there.words, instances)
        return replace(done, seconds=perf_counter() - started)


@contextmanager
def proving(
    repository: ModelRepository, names: Sequence[str], environment: ServerEnvironment | None = None
) -> Iterator[Prover]:
    """Run a server with a copy of these models, as long as the body of the ``with`` takes."""
    specs = {name: _spec(repository, name) for name in names}
    if on_gpu := [n for n, spec in specs.items() if any(each.kind == "GPU" for each in spec.instances)]:
        raise BLSError(f"prove: {', '.join(on_gpu)}: runs on a GPU, and is compared on CPUs only; give other names")
    with serve(*names, repo=repository, environment=environment, start_timeout=240) as server:
        folder = server.repositories[0]
        files = {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not is_cache(path)
        }
        yield Prover(repository, server, {n: _spec(repository, n) for n in server.exported.names}, files)


class Prover:
    """Compares models of a repository with their copies on a server, which runs."""

    def __init__(
        self, repository: ModelRepository, server: LocalServer, specs: Mapping[str, ModelSpec], files: Mapping[str, str]
    ) -> None:
        self.repository = repository
        self.server = server
        self.specs = specs
        self.files = files

    def prove(self, model: str, *requests: Any, **options: Any) -> Certificate:
        """Compare one of the models; see `prove`."""
        exported = self.server.exported
        reached = _reached(model, {each.name: each.calls for each in exported.models})
        site = self.server.site_packages
        here, there = _packages(), _packages([str(site)]) if site is not None else {}
        wanted = sorted({_name(each) for each in exported.requirements} | {"numpy"})
        python = self.server.python
        begun = Certificate(
            model,
            server=f"tritonserver {self.server.metadata()['version']}{python and f', Python {python}'}",
            packages=tuple(Package(name, here.get(name, ""), there.get(name, "")) for name in wanted if there),
            files=tuple(each for each in self.files.items() if each[0].partition("/")[0] in reached),
        )
        with There(self.server, self.specs[model], sorted(reached & self.specs.keys())) as place:
            return compare(self.repository, place, begun, requests, **options)


def _spec(repository: ModelRepository, name: str) -> ModelSpec:
    return Host(repository).ready(name).spec


def _packages(path: list[str] | None = None) -> dict[str, str]:
    """The versions of what is installed, here or in a folder."""
    found = distributions() if path is None else distributions(path=path)
    return {_name(each.metadata["Name"]): each.version for each in found}


def _name(requirement: str) -> str:
    end = next((i for i, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")), len(requirement))
    return requirement[:end].lower().replace("_", "-")


def _reached(model: str, calls: Mapping[str, Sequence[str]]) -> set[str]:
    """The model and all that it calls."""
    found, left = set(), [model]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += calls.get(name, ())
    return found
