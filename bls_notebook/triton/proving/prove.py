"""`prove_equal`: the same requests here and on a real server, and a certificate of what came of it."""

from __future__ import annotations

import hashlib
import itertools
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import distributions
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.observe.preview import tensor_record
from bls_notebook.observe.progress import Progress, progress
from bls_notebook.observe.records.inspection import TensorsCompared
from bls_notebook.observe.records.shipping.certificate import Certificate, Package, Unequal
from bls_notebook.observe.records.shipping.exported import Exported
from bls_notebook.repository.current import current_repository
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.requests.inputs import tensors_of
from bls_notebook.triton.tritonserver import (
    ServerEnvironment,
    TritonServer,
    TritonServerError,
    make_environment,
)

from .answers import Allowed, Differences, differences
from .generating import Different, Inputs, NotSteady, Steps, generate
from .places import Here, There, add_relay, flags_of, shown

_CORRELATIONS = itertools.count(1)


def prove_equal(
    model: str,
    *requests: Mapping[str, Any],
    generate: int = 0,
    seed: int = 0,
    tolerance: float = 0.0,
    ulps: int = 0,
    repository: ModelRepository | None = None,
    environment: ServerEnvironment | None = None,
) -> Certificate:
    """Send the same requests to a model in this process and on a real tritonserver, and compare the answers.

    The server runs an exported copy of the model and of all that it calls. Compared are the outputs (names,
    data types, shapes, values), errors (text, code), parameters, the version, and of decoupled models the
    whole stream.

    Parameters
    ----------
    model : str
        A model that serves.
    *requests : mapping of str to array_like
        Inputs by name. Of a model that batches sequences, the requests of one sequence, in order.
    generate : int
        How many more requests to make of what the configuration allows: data types, shapes, batches, absent
        optional inputs, NaN and other extremes. What differs is made as small as it gets. Needs hypothesis.
    seed : int
        The same one makes the same requests.
    tolerance : float
        Floats may differ by so much, absolutely or in proportion.
    ulps : int
        Or by so many floats that lie between the two.
    repository : ModelRepository, optional
        By default the one that magics use.
    environment : ServerEnvironment, optional
        Of the server; by default one is made, once, with the packages that the models import.

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
    repository = repository or current_repository()
    spec = _spec(repository, model)
    if spec.scheduler != "sequence":
        for (
            inputs
        ) in requests:  # what it calls by names that are not in its source is known, and served, then
            Here(repository, spec).ask({t.name(): t for t in tensors_of(model, inputs, spec)}, {})
    with proving(repository, [model], environment) as prover:
        return prover.prove(model, *requests, generate=generate, seed=seed, tolerance=tolerance, ulps=ulps)


@contextmanager
def proving(
    repository: ModelRepository, names: Sequence[str], environment: ServerEnvironment | None = None
) -> Iterator[Prover]:
    """Run a server with a copy of these models, as long as the body of the ``with`` takes."""
    with tempfile.TemporaryDirectory(prefix="bls-notebook-prove-") as temporary:
        folder = Path(temporary) / "models"
        exported = repository.export(folder, *names)
        cannot = [m.name for m in exported.models if m.backend not in ("python", "") or m.on_gpu]
        if cannot:
            raise BLSError(
                f"compare: {', '.join(cannot)}: the server on this machine runs Python models on the CPU "
                "only; give other names"
            )
        files = {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        specs = {name: _spec(repository, name) for name in exported.names}
        load = [*exported.names, *(add_relay(folder, specs[name]) for name in names if specs[name].decoupled)]
        environment = environment or make_environment(requirements=_requirements(exported))
        with TritonServer(folder, environment=environment, load=load, start_timeout=240) as server:
            yield Prover(repository, server, specs, exported, files, environment)


class Prover:
    """Compares models of a repository with their copies on a server, which runs."""

    def __init__(
        self,
        repository: ModelRepository,
        server: TritonServer,
        specs: Mapping[str, ModelSpec],
        exported: Exported,
        files: Mapping[str, str],
        environment: ServerEnvironment,
    ) -> None:
        self.repository = repository
        self.server = server
        self.specs = specs
        self.exported = exported
        self.files = files
        self.environment = environment

    def prove(
        self,
        model: str,
        *requests: Mapping[str, Any],
        generate: int = 0,
        seed: int = 0,
        tolerance: float = 0.0,
        ulps: int = 0,
    ) -> Certificate:
        """Compare one of the models; see `prove_equal`."""
        if not requests and generate < 1:
            raise BLSError(f"compare: no request for model {model!r}: give inputs, or how many to generate")
        if not (isfinite(tolerance) and tolerance >= 0 and ulps >= 0):
            raise BLSError(
                f"compare: got tolerance {tolerance!r} and ulps {ulps!r}, expected numbers from 0 on"
            )
        spec = self.specs[model]
        given: list[Inputs] = [{t.name(): t for t in tensors_of(model, inputs, spec)} for inputs in requests]
        calls = {each.name: each.calls for each in self.exported.models}
        reached = _reached(model, calls)
        wanted = sorted({_name(each) for each in self.exported.requirements} | {"numpy"})
        here, there = (
            {_name(found.metadata["Name"]): found.version for found in installed}
            for installed in (distributions(), distributions(path=[str(self.environment.site_packages)]))
        )
        begun = Certificate(
            model, version=self.repository.record(model).version, seed=seed, tolerance=tolerance, ulps=ulps,
            here=f"bls_notebook {here.get('bls-notebook', '')}, Python {platform.python_version()}",
            server=f"tritonserver {self.server.metadata()['version']}, Python {self.environment.version}",
            packages=tuple(Package(name, here.get(name, ""), there.get(name, "")) for name in wanted),
            files=tuple(each for each in self.files.items() if each[0].partition("/")[0] in reached),
        )  # fmt: skip
        with progress(f"comparing {model} with tritonserver", len(given) + generate, "request") as told:
            comparing = _Comparing(self, spec, Allowed(tolerance, ulps), told)
            return comparing.run(begun, given, generate, sorted(self.specs))


class _Comparing:
    """What is found out about one model."""

    def __init__(self, prover: Prover, spec: ModelSpec, allowed: Allowed, told: Progress) -> None:
        self.spec = spec
        self.allowed = allowed
        self.told = told
        self.here, self.there = Here(prover.repository, spec), There(prover.server, spec)
        self.asked = self.failed = 0
        self.here_ns: list[int] = []
        self.there_ns: list[int] = []
        self.last: tuple[Steps, Differences] | None = None

    def run(self, begun: Certificate, given: list[Inputs], number: int, words: list[str]) -> Certificate:
        sequence = self.spec.scheduler == "sequence"
        cases = [tuple(given)] if sequence and given else [(inputs,) for inputs in given]
        unequal = []
        for steps in cases:
            if found := self.differ(steps):
                unequal.append(_unequal(steps, found))
        sent = self.asked
        if number:
            # what differs is not to be found once more
            unequal += self._generated(begun.seed, number, [] if unequal else given, words)
        return replace(
            begun, given=sent, generated=self.asked - sent, failed=self.failed,
            here_ns=int(median(self.here_ns or [0])), there_ns=int(median(self.there_ns or [0])),
            unequal=tuple(unequal),
        )  # fmt: skip

    def _generated(self, seed: int, number: int, given: list[Inputs], words: list[str]) -> list[Unequal]:
        def check(steps: Steps) -> None:
            if found := self.differ(steps):
                self.last = steps, found
                raise _Lost if any(said.startswith("no answer") for said in found[0]) else Different

        try:
            if generate(self.spec, number, seed, check, given, words):
                return []
            steady = shrunk = True
        except NotSteady:
            steady = shrunk = False
        except _Lost:  # to make it smaller would start the server again each time
            steady, shrunk = True, False
        assert self.last is not None
        return [replace(_unequal(*self.last), shrunk=shrunk, steady=steady)]

    def differ(self, steps: Steps) -> Differences | None:
        """Send the requests of a case to both, and return what differs."""
        correlation = next(_CORRELATIONS)
        said: list[str] = []
        tensors: list[TensorsCompared] = []
        self.asked += 1
        failed = False
        for number, inputs in enumerate(steps):
            more: dict[str, Any] = {}
            if self.spec.scheduler == "sequence":
                more = {"correlation_id": correlation, "flags": flags_of(number, len(steps))}
            here, here_ns = self.here.ask(inputs, more)
            there, there_ns = self.there.ask(inputs, more)
            self.here_ns.append(here_ns)
            self.there_ns.append(there_ns)
            words, unlike = differences(here, there, self.allowed)
            at = f"request {number} of the sequence: " if len(steps) > 1 else ""
            said += [at + each for each in words]
            tensors += unlike
            failed |= not words and any(each.error is not None for each in here)
        self.failed += failed
        self.told.step()
        return (tuple(said), tuple(tensors)) if said else None


class _Lost(BaseException):
    """The server has died, or did not answer; no exception that hypothesis would look into."""


def _unequal(steps: Steps, found: Differences) -> Unequal:
    tensors = tuple(
        tuple(tensor_record(t._name, t._datatype, t._array) for t in step) for step in shown(steps)
    )
    return Unequal(found[0], tensors, found[1])


def _spec(repository: ModelRepository, name: str) -> ModelSpec:
    model = repository._server.find(name)
    if model is None:
        raise BLSError(f"compare: model {name!r} is not loaded; load it first")
    return model.spec


def _requirements(exported: Exported) -> list[str]:
    """Packages that the models import, of any version: the server has an older NumPy than is here."""
    names = [_name(each) for each in exported.requirements]
    return [name for name in names if name not in ("numpy", "bls-notebook")]


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


__all__ = ["Prover", "TritonServerError", "prove_equal", "proving"]
