"""`prove`: sends the same requests to a model here and on a real server, and certifies equal answers."""

from __future__ import annotations

import hashlib
import itertools
import platform
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from math import isfinite
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from bls_notebook.checking.checked_model import read_model
from bls_notebook.checking.release_checks import later_changes, release_problems
from bls_notebook.checking.releases import release_of
from bls_notebook.engine import BLSError, ModelSpec, Parker
from bls_notebook.extending import Host, operation
from bls_notebook.inspection.records import TensorsCompared
from bls_notebook.network.connection import connect
from bls_notebook.pb_utils import Tensor
from bls_notebook.progress import Progress, progress
from bls_notebook.records import listed, tensor_record
from bls_notebook.repository import ModelRepository, current_repository, sequence_options, sources_in
from bls_notebook.repository import reached as callees_of
from bls_notebook.repository.source import folder_path, shown_path
from bls_notebook.shipping.exports.folder_writer import is_cache
from bls_notebook.shipping.records import Certificate, Package, Unequal, Verified
from bls_notebook.shipping.servers.server_programs import ServerEnvironment, distribution_name
from bls_notebook.shipping.servers.serving import LocalServer, serve

from .comparison import Allowed, ProofAnswer, differences, most
from .release_reasons import release_reasons
from .requests import DifferentError, NotSteadyError, ProofCase, ProofRequest, cases_of, generator
from .requests import generate as _generate
from .steadiness import UnansweredError, answers_of, compared_with_itself, variation_of
from .targets import LocalTarget, RemoteTarget, ServerTarget, compare_counts, fresh, grown
from .variations import PARALLEL, TOGETHER, possible_variations, variations_of

_CORRELATIONS = itertools.count(1)
_KEPT = 64  # equal cases that are kept, to be sent again as single rows and with other instance counts
_OLDEST = 5.0  # seconds that an instance waits at most, to become as old as the one that answered differently
_SELF_COMPARED = 4  # given and generated cases that the model here answers three times
_EXPLICIT = "pb_utils.load_model or unload_model, which a server allows only with --model-control-mode=explicit"
_TIMES_AGAIN = 2  # that requests are sent again after a difference
_PAIRS = 8  # pairs of requests that are sent at the same time
_BATCHES = 16  # batches whose rows are sent again one by one


@operation
def prove(
    model: str, *requests: Any, generate: int = 0, seed: int = 0, tolerance: float = 0.0, ulps: int = 0,
    instances: Sequence[int] = (), parameters: Mapping[str, Any] | None = None, repo: ModelRepository | None = None,
    environment: ServerEnvironment | None = None, server: str = "", timeout: float = 30.0,
) -> Certificate:  # fmt: skip
    """Send the same requests to a model in this process and on a real tritonserver, and compare the answers.

    The server runs an exported copy of the model and its callees. Both sides answer the same requests in the same
    order, with fresh instances; rows of batches are sent again one by one. `prove` compares outputs, errors (text,
    code), parameters, the version, whole streams, and the numbers of requests and executions. The model also answers
    some requests several times, which shows whether its answers vary or depend on earlier requests.

    Generated requests also ask for some of the outputs, and have parameters, IDs and timeouts; a model with a dynamic
    batcher gets pairs of them at the same time. The certificate lists what was never sent. Floats that differ by
    rounding alone are counted, with the tolerance that accepts them.

    Parameters
    ----------
    model : str
        Name of a loaded model.
    *requests : mapping of str to array_like, or recording
        Inputs by name, or a recording with requests to the model. For a model that batches sequences, the
        mappings are the requests of one sequence, in order.
    generate : int
        Number of requests to generate from the configuration: its data types, shapes, batches, absent optional
        inputs, NaN and other extremes. A request that shows a difference is shrunk. Needs hypothesis.
    seed : int
        The same seed generates the same requests, with the same version of hypothesis and the same imported
        modules: hypothesis sometimes draws a constant from modules that are not installed as packages.
    tolerance : float
        Allowed absolute or relative difference of floats.
    ulps : int
        Allowed difference of floats, in units in the last place.
    instances : sequence of int
        Instance counts with which requests are sent again, in parallel, to both sides.
    parameters : mapping, optional
        Parameters for requests without their own, and for some generated ones.
    repo : ModelRepository, optional
        Default: `current_repository`.
    environment : ServerEnvironment, optional
        Environment of the server. By default one is made, once, with the packages that the models import.
    server : str
        Address of a running server that has the model, such as ``grpc://host:8001``. Its files, packages and
        statistics cannot be compared.
    timeout : float
        Timeout of a request on either side, in seconds. A request without an answer is no difference.

    Returns
    -------
    Certificate
        ``equal`` is true if all answers and statistics were equal.

    Raises
    ------
    BLSError
        The model is not loaded, cannot be exported or cannot run on that server, or an input is not a tensor.
    TritonServerError
        The server cannot run on this machine.
    """
    repository = repo or current_repository()
    spec = Host(repository).ready(model).spec
    if generate:
        generator()  # BLSError if it is missing, before a server is started
    if cases := cases_of(spec, requests, parameters or {}):
        local = LocalTarget(repository, spec, timeout=timeout)
        with (
            Host(repository).uncounted(),
            fresh(repository, [model]),
            suppress(UnansweredError),
        ):  # reveals callees that the source does not name
            answers_of(local, cases)
    options: dict[str, Any] = {
        "generate": generate, "seed": seed, "tolerance": tolerance, "ulps": ulps, "instances": instances,
        "parameters": parameters,
    }  # fmt: skip
    if server:
        with (
            ModelRepository() as remote_repository,
            connect(server, model, repo=remote_repository, timeout=timeout) as connection,
        ):
            draft = Certificate(model, server=f"{connection.server}, {connection.address}, model control mode unknown")
            remote = RemoteTarget(remote_repository, spec)
            certificate = _certified(repository, remote, draft, requests, timeout=timeout, **options)
            reached = sorted(Host(repository).reached([model]))
            notes = [*_control_notes(repository, model)]
            notes += _release_notes(repository, reached, connection.server.rpartition(" ")[2], certificate, True)
            return replace(certificate, notes=(*certificate.notes, *notes))
    with proving(repository, [model], environment) as prover:
        return prover.prove(model, *requests, timeout=timeout, **options)


def _control_notes(repository: ModelRepository, model: str) -> Iterator[str]:
    """Yield what a proof on a user's own server does not know about its model control mode."""
    host = Host(repository)
    names = sorted(host.reached([model]))
    yield (
        "prove loaded nothing on this server, and clients cannot ask for its model control mode: in the explicit mode, "
        f"{listed(names, 8)} must be loaded by `--load-model` or by a client"
    )
    control = re.compile(r"\bpb_utils\.(un)?load_model\b")
    if controls := [name for name in names if any(map(control.search, sources_in(host.source(name).folder)))]:
        yield f"{listed(controls, 8)} uses {_EXPLICIT}"


def _release_notes(
    repository: ModelRepository, names: Sequence[str], version: str, certificate: Certificate, image: bool
) -> Iterator[str]:
    """Yield what the release of a server lacks for a model and its callees, and what it explains of the differences."""
    if release := release_of(version):
        host = Host(repository)
        checked = {name: read_model(host.source(name), host.find(name)) for name in names}
        for lines in release_problems(checked, release, image).values():
            yield from lines
        if certificate.unequal:
            yield from later_changes(checked, release)
        yield from release_reasons(certificate.unequal, release, calls=len(names) > 1)


@contextmanager
def proving(
    repository: ModelRepository, names: Sequence[str], environment: ServerEnvironment | None = None
) -> Iterator[Prover]:
    """Run a server with a copy of these models during the ``with``; yield a prover."""
    host = Host(repository)
    specs = {name: host.ready(name).spec for name in names}
    if on_gpu := [n for n, spec in specs.items() if any(each.kind == "GPU" for each in spec.instances)]:
        raise BLSError(f"prove: {', '.join(on_gpu)}: runs on a GPU, but prove compares models on the CPU only")
    with serve(*names, repo=repository, environment=environment, start_timeout=240) as server:
        folder = server.repository
        loaded = filter(None, map(host.find, server.exported.names))
        yield Prover(repository, server, {model.name: model.spec for model in loaded}, _hashes(folder))


def _hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 hashes of the files below a folder, by path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not is_cache(path))
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def verify(certificate: Certificate, folder: str | Path) -> Verified:
    """Compare the files of an export, or of a server's model repository, with the hashes in a certificate.

    Parameters
    ----------
    certificate : Certificate
        What `prove` returned, or ``Certificate.from_dict`` of its JSON, also of the command's.
    folder : str or Path
        The folder of the models, or a folder directly above it, as `export` writes.

    Returns
    -------
    Verified
        ``equal`` is true if the folder has the same files of the compared models, and no others except Python's caches.

    Raises
    ------
    BLSError
        The folder does not exist, or the certificate has no hashes: with ``server=`` no files were compared.
    """
    proven = dict(certificate.files)
    names = {path.partition("/")[0] for path in proven}
    if certificate.model not in names:
        raise BLSError(f"verify: the certificate of {certificate.model!r} has no hashes of files")
    root = folder_path(folder, "verify", "give the folder of an export")
    root = next((model.parent for model in (root / certificate.model, *root.glob(f"*/{certificate.model}"))
                 if model.is_dir()), root)  # fmt: skip
    found = {f"{name}/{path}": digest for name in names for path, digest in _hashes(root / name).items()}
    changed = tuple(sorted(path for path in proven.keys() & found.keys() if proven[path] != found[path]))
    missing, added = sorted(proven.keys() - found.keys()), sorted(found.keys() - proven.keys())
    return Verified(certificate.model, shown_path(root), len(proven), changed, tuple(missing), tuple(added))


@dataclass(frozen=True)
class Prover:
    """Compares models of a repository with their copies on a running server."""

    repository: ModelRepository
    server: LocalServer
    specs: Mapping[str, ModelSpec]
    files: Mapping[str, str]

    @operation
    def prove(self, model: str, *requests: Any, timeout: float = 30.0, **options: Any) -> Certificate:
        """Compare one of the models with its copy; see `prove`."""
        exported = self.server.exported
        reached = {model} | callees_of(model, {each.name: each.calls for each in exported.models})
        environment = self.server.environment
        known = environment if isinstance(environment, ServerEnvironment) else None
        here, there = _packages(), _packages([str(known.site_packages)]) if known else {}
        names = sorted({*map(distribution_name, exported.requirements), "numpy"})
        python = f", Python {known.version}" if known else ""
        version = self.server.metadata()["version"]
        draft = Certificate(
            model,
            server=f"tritonserver {version}{python}, model control mode explicit",
            packages=tuple(Package(name, here.get(name, ""), there.get(name, "")) for name in names if there),
            files=tuple(file for file in self.files.items() if file[0].partition("/")[0] in reached),
        )
        with ServerTarget(self.server, self.specs[model], sorted(reached & self.specs.keys()), timeout) as target:
            target.renew()
            certificate = _certified(self.repository, target, draft, requests, timeout=timeout, **options)
        missing = Host(self.repository).reached([model]) - {*exported.names}
        notes = tuple(
            f"{name!r} was reached here, but is missing from the copy: give a request that reaches it"
            for name in sorted(missing)
        )
        names_here = sorted(reached & self.specs.keys())
        notes += tuple(_release_notes(self.repository, names_here, version, certificate, known is None))
        if controls := ", ".join(each.name for each in exported.models if each.controls and each.name in reached):
            notes = (f"{controls} uses {_EXPLICIT}, as this one had", *notes)
        return replace(certificate, notes=(*certificate.notes, *notes))


def _packages(path: list[str] | None = None) -> dict[str, str]:
    installed = distributions() if path is None else distributions(path=path)
    return {distribution_name(distribution.metadata["Name"]): distribution.version for distribution in installed}


def _certified(
    repository: ModelRepository, there: RemoteTarget, draft: Certificate, requests: Sequence[Any], generate: int = 0,
    seed: int = 0, tolerance: float = 0.0, ulps: int = 0, instances: Sequence[int] = (),
    parameters: Mapping[str, Any] | None = None, timeout: float = 30.0,
) -> Certificate:  # fmt: skip
    """Compare the model of a draft certificate with the one `there`, and complete the certificate; see `prove`."""
    model, spec, started = draft.model, there.spec, perf_counter()
    if not requests and generate < 1:
        raise BLSError(f"prove: no requests for model {model!r}: pass inputs, or generate=N")
    if not (isfinite(tolerance) and tolerance >= 0 and ulps >= 0):
        raise BLSError(f"prove: got tolerance {tolerance!r} and ulps {ulps!r}, expected 0 or more")
    if any(count < 1 for count in instances):
        raise BLSError(f"prove: instances: got {list(instances)}, expected counts of 1 or more")
    cases = cases_of(spec, requests, parameters or {})
    draft = replace(
        draft, version=repository.model(model).version, decoupled=spec.decoupled, seed=seed, tolerance=tolerance,
        ulps=ulps,
        here=f"bls_notebook {_packages().get('bls-notebook', '')}, Python {platform.python_version()}",
    )  # fmt: skip
    comparing = progress(f"comparing {model} with a server", len(cases) + generate, "request")
    with Host(repository).uncounted(), comparing as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, about generated values
        here = LocalTarget(repository, spec, there.names, timeout)
        began = perf_counter()
        examples = cases[:_SELF_COMPARED]
        if generate:
            _generate(spec, _SELF_COMPARED, seed, examples.append, words=there.words)
        try:
            varies, is_stateful = compared_with_itself(here, examples)
        except UnansweredError as error:
            return replace(draft, given=1, unequal=(_unequal((error.request,), [str(error)]),))
        if varies:
            return replace(draft, varies=varies)
        draft = replace(draft, stateful=is_stateful)
        with fresh(repository, [model, *there.names]):
            comparison = _Comparison(here, there, Allowed(tolerance, ulps), bar)
            certificate = comparison.run(draft, cases, generate, instances)
        if certificate.unequal and not certificate.unequal[0].lost:
            with suppress(UnansweredError):
                varies = comparison.sent_again(min(perf_counter() - started, _OLDEST))
        return replace(
            certificate, seconds=perf_counter() - began, varies=varies, unequal=() if varies else certificate.unequal
        )


class _Comparison:
    """The comparison of a model here with its copy on a server."""

    def __init__(self, here: LocalTarget, there: RemoteTarget, allowed: Allowed, bar: Progress) -> None:
        self.spec = here.spec
        self.here, self.there = here, there
        self.allowed = allowed
        self.bar = bar
        self.compared = self.failed = self.alone = 0
        self.times: tuple[list[int], list[int]] = ([], [])  # ns of each request, here and there
        self.equal: list[ProofCase] = []  # up to `_KEPT` of them
        self.asked: list[_Asked] = []  # until the first difference
        self.has_differed = False
        self.sent: set[str] = set()  # variations of requests
        self.rounded = 0  # requests that differ by rounding alone
        self.rounding = self.ulps = 0.0  # the smallest tolerance that accepts these, and the largest difference
        self.roundest: Unequal | None = None  # the one with the largest difference

    def run(self, draft: Certificate, cases: Sequence[ProofCase], number: int, instances: Sequence[int]) -> Certificate:
        """Compare given cases, then `number` generated ones, single rows of batches, and other instance counts."""
        before = self.here.counts(), self.there.counts()
        unequal = [found for case in cases if (found := self.differ(case))]
        given = self.compared
        if number:
            # Generated requests that reuse a differing input would only show the same difference.
            examples = [] if unequal else [request for case in cases for request in case]
            unequal += self._generated(draft.seed, number, examples)
        generated = self.compared - given
        notes: list[str] = []
        if self.failed == self.compared:
            notes.append("every request had an error: pass inputs that the model accepts")
        if not unequal:
            unequal += self._rows_alone(notes)
        batches = self.spec.scheduler == "default"
        counted = () if self.there.lost or unequal else compare_counts(self.here, self.there, before, batches)
        if draft.stateful and unequal and len(self.spec.instances) > 1:
            notes.append(f"the model keeps state in {len(self.spec.instances)} instances, which either side may choose")
        if draft.stateful and instances:
            notes.append("not sent in parallel: the model has state, and parallel requests have no order")
            instances = ()
        if number and not (unequal or draft.stateful or self.there.lost):
            unequal += self._together()
        for count in instances:
            if not unequal:
                unequal += self._with_instances(count)
                self.sent.add(PARALLEL)
        never = (each for each in possible_variations(self.spec) if each not in self.sent)
        if self.roundest is not None:
            unequal.append(self.roundest)
        here_ns, there_ns = (int(median(times or [0])) for times in self.times)
        return replace(
            draft, given=given, generated=generated, failed=self.failed, alone=self.alone, here_ns=here_ns,
            there_ns=there_ns, unequal=tuple(unequal), counted=counted, instances=tuple(instances), notes=tuple(notes),
            never_sent=tuple(never), rounded=self.rounded, rounding=self.rounding, ulps_needed=self.ulps,
        )  # fmt: skip

    def _generated(self, seed: int, number: int, examples: list[ProofRequest]) -> list[Unequal]:
        last: list[Unequal] = []

        def check(case: ProofCase) -> None:
            if found := self.differ(case):
                last[:] = [found]
                raise UnansweredError(case[0], "") if last[0].lost else DifferentError

        try:
            if _generate(self.spec, number, seed, check, examples, self.there.words):
                return []
            return [replace(last[0], shrunk=True)]
        except NotSteadyError:
            return [replace(last[0], steady=False)]
        except UnansweredError:  # no shrinking: each attempt would restart the server
            return last

    def differ(self, case: ProofCase) -> Unequal | None:
        """Send a case to both sides; return how the answers differ by more than rounding, None if they do not."""
        self.compared += 1
        here, there = self._ask(case, keep=True)
        found = self._judge(case, here, there)
        if found is None:
            self.failed += any(answer.error is not None for answers in here for answer in answers)
            if len(self.equal) < _KEPT:
                self.equal.append(case)
        self.bar.step()
        return found

    def _ask(self, case: ProofCase, keep: bool = False) -> tuple[list[list[ProofAnswer]], list[list[ProofAnswer]]]:
        """Return the responses to each request of a case, here and on the server; `keep`: to send it again."""
        correlation = next(_CORRELATIONS)
        self.sent.update(variations_of(self.spec, case))
        answers: tuple[list[list[ProofAnswer]], list[list[ProofAnswer]]] = ([], [])
        for step, request in enumerate(case):
            options = sequence_options(self.spec, correlation, step, len(case))
            for side, into, times in zip((self.here, self.there), answers, self.times, strict=True):
                responses, took = side.ask(request, options)
                into.append(responses)
                times.append(took)
        if keep and not self.has_differed:
            self.asked.append(_Asked(case, correlation, answers))
        return answers

    def _judge(
        self, case: ProofCase, here: list[list[ProofAnswer]], there: list[list[ProofAnswer]], prefix: str = ""
    ) -> Unequal | None:
        """Return how answers differ by more than rounding, None if they do not; count those that are rounded."""
        lines: list[str] = []
        tensors: list[TensorsCompared] = []
        rounding: list[float | None] = []
        for step, (first, second) in enumerate(zip(here, there, strict=True)):
            found = differences(first, second, self.allowed)
            of_step = f"request {step} of the sequence: " if len(here) > 1 else ""
            lines += [of_step + line for line in found.lines]
            tensors += found.tensors
            rounding += [found.rounding] if found.lines else []
        if not lines:
            return None
        self.has_differed = True
        unequal = _unequal(case, lines, tensors, prefix)
        needed = most(rounding)
        if needed is None:
            return unequal
        self.rounded += 1
        self.rounding = max(self.rounding, needed)
        ulps = max(pair.ulps or 0.0 for pair in tensors)
        if self.roundest is None or ulps > self.ulps:
            self.ulps, self.roundest = ulps, unequal
        return None

    def sent_again(self, pause: float) -> tuple[str, ...]:
        """Return how a side answers otherwise if it gets the same requests again, up to the first difference.

        A difference between the sides stays the same; that of a model which varies, however seldom, does not. The
        model may also vary by process, or by its age: fresh instances wait `pause` seconds.
        """
        cases = [asked.case for asked in self.asked]
        correlations = [asked.correlation for asked in self.asked]
        for side, target in enumerate((self.here, self.there)[: 1 + isinstance(self.there, ServerTarget)]):
            answers = [responses for asked in self.asked for responses in asked.answers[side]]
            for number in range(_TIMES_AGAIN):
                with target.fresh():
                    Parker().park(0 if side or number else pause)
                    if lines := variation_of(target, answers, answers_of(target, cases, correlations)):
                        return lines
        return ()

    def _together(self) -> list[Unequal]:
        """Send pairs of equal requests at the same time, so that the batcher combines each pair."""
        pairs = _pairs(self.spec, self.equal) if isinstance(self.there, ServerTarget) else []
        if not pairs or not self.spec.config.HasField("dynamic_batching"):
            return []
        rows = sum(map(_rows, pairs[0]))
        with self.here.with_batches(rows), self.there.with_batches(rows), ThreadPoolExecutor(2) as pool:
            before = self.there.counts()[self.spec.name]
            count = 0
            for pair in pairs:
                count += len(pair)
                here, there = self._pair(pool, self.here, pair), self._pair(pool, self.there, pair)
                for _ in range(_TIMES_AGAIN):  # the order in a batch is that of arrival
                    if any(differences(*sides, self.allowed).lines for sides in zip(here, there, strict=True)):
                        there = self._pair(pool, self.there, pair)
                found = [
                    self._judge((request,), [first], [second], "two requests at the same time, to be one batch: ")
                    for request, first, second in zip(pair, here, there, strict=True)
                ]
                if any(found):
                    break
            requests, _, _, executions = grown(self.there, self.spec.name, before, count)
        if any(found) or executions < requests:
            self.sent.add(TOGETHER)
        return [each for each in found if each][:1]

    @staticmethod
    def _pair(pool: ThreadPoolExecutor, target: LocalTarget, pair: Sequence[ProofRequest]) -> list[list[ProofAnswer]]:
        return list(pool.map(lambda request: target.ask(request, {})[0], pair))

    def _rows_alone(self, notes: list[str]) -> list[Unequal]:
        """Send the rows of batches one by one: a batching queue could form other batches from them."""
        if self.spec.max_batch_size < 2 or self.spec.decoupled or self.spec.scheduler == "sequence":
            return []
        batches = [case[0] for case in self.equal if _rows(case[0]) > 1]
        changed = 0
        for batch in batches[:_BATCHES]:
            whole = self._ask((batch,))[1][0][0]
            if whole.error is not None:
                continue
            for row in range(_rows(batch)):
                request = replace(batch, inputs={t._name: _row(t, row) for t in batch.inputs.values()})
                here, there = self._ask((request,))
                self.alone += 1
                if found := self._judge((request,), here, there, f"row {row} of a batch, sent alone: "):
                    return [found]
                outputs = {
                    name: replace(output, values=output.values[row : row + 1]) if output.values.ndim else output
                    for name, output in whole.outputs.items()
                }
                changed += bool(differences(there[0], [replace(whole, outputs=outputs)], self.allowed).lines)
        if changed:
            notes.append(
                f"{changed} of {self.alone} rows get other answers alone than in their request, on both sides: the "
                "model does not answer every row of a request, or the rows of a batch change each other's answers"
            )
        return []

    def _with_instances(self, count: int) -> list[Unequal]:
        """Send the equal cases again, in parallel, with this instance count."""
        with self.here.with_instances(count), self.there.with_instances(count), ThreadPoolExecutor(2 * count) as pool:
            answered = list(pool.map(self._ask, self.equal))
        prefix = f"with {count} instance{'s' if count > 1 else ''}, requests in parallel: "
        for case, (here, there) in zip(self.equal, answered, strict=True):
            if found := self._judge(case, here, there, prefix):
                return [found]
        return []


@dataclass(frozen=True)
class _Asked:
    """A case that both sides got, with its correlation ID and the responses to each request, here and there."""

    case: ProofCase
    correlation: int
    answers: tuple[list[list[ProofAnswer]], list[list[ProofAnswer]]]


def _unequal(
    case: ProofCase, lines: Sequence[str], tensors: Sequence[TensorsCompared] = (), prefix: str = ""
) -> Unequal:
    steps = [[tensor_record(t._name, t._datatype, t._array) for t in step.inputs.values()] for step in case]
    options = (", ".join(f"{name}={value!r}" for name, value in step.options.items()) for step in case)
    what = tuple(prefix + line for line in lines)
    return Unequal(what, tuple(map(tuple, steps)), tuple(tensors), options=tuple(options))


def _pairs(spec: ModelSpec, cases: Sequence[ProofCase]) -> list[tuple[ProofRequest, ProofRequest]]:
    """Return pairs of requests that fit into one batch, all with the same number of rows."""
    found: dict[int, list[tuple[ProofRequest, ProofRequest]]] = {}
    requests = [case[0] for case in cases if len(case) == 1 and _rows(case[0])]
    for first, second in itertools.pairwise(requests) if spec.scheduler != "sequence" else ():
        shapes = [{name: t._array.shape[1:] for name, t in each.inputs.items()} for each in (first, second)]
        rows = _rows(first) + _rows(second)
        if shapes[0] == shapes[1] and rows <= spec.max_batch_size:
            found.setdefault(rows, []).append((first, second))
    return max(found.values(), key=len, default=[])[:_PAIRS]


def _rows(request: ProofRequest) -> int:
    """Return the batch size of a request; 0 if its inputs disagree."""
    rows = {tensor._array.shape[0] if tensor._array.ndim else 0 for tensor in request.inputs.values()}
    return int(rows.pop()) if len(rows) == 1 else 0


def _row(tensor: Tensor, row: int) -> Tensor:
    return Tensor._of(tensor._name, np.ascontiguousarray(tensor._array[row : row + 1]), tensor._datatype)
