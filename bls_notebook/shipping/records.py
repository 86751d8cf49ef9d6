"""Records of exports, of proofs (certificates) and of local tritonservers: frozen plain data that can be saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from bls_notebook.engine import DEFAULT_CACHE_BYTES
from bls_notebook.inspection.records import TensorsCompared
from bls_notebook.records import Change, Record, TensorRecord


@dataclass(frozen=True, slots=True, repr=False)
class ExportedModel(Record):
    """One model of an export.

    ``calls`` are its callees and ensemble steps, ``loads`` the models that it loads with `pb_utils.load_model`;
    the export lacks the models in ``absent``. ``controls``: it loads or unloads models; ``late``: already
    when it is loaded, which fails while a server starts. ``at_start``: the server loads it when it starts.
    ``sequences``: it batches sequences, so the requests of a sequence must reach the same server. ``decoupled``: it
    answers with streams. ``cached``: the server keeps its responses. ``shapes`` are example shapes of its inputs with
    free dimensions, for measuring: ``IN:1,3``.
    """

    name: str
    versions: tuple[int, ...] = (1,)
    backend: str = ""
    source: str = ""
    files: int = 0
    bytes: int = 0
    calls: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    controls: bool = False
    late: bool = False
    at_start: bool = True
    on_gpu: bool = False
    sequences: bool = False
    decoupled: bool = False
    cached: bool = False
    shapes: tuple[str, ...] = ()

    @property
    def uses(self) -> tuple[str, ...]:
        """The names of its callees, and of the models that it only loads."""
        return (*self.calls, *(f"loads {name}" for name in self.loads if name not in self.calls))


@dataclass(frozen=True, slots=True, repr=False)
class Exported(Record):
    """An export: the folder or archive, its models, and their requirements on a server.

    ``requirements`` are pip requirements, ``remarks`` say how they differ from the versions installed here. ``needs``
    are sentences about needs of the models that the export lacks. ``unknown`` are imported modules that are not
    installed here: model, file and line, module, its package if known. ``secrets`` are files that were left out.
    ``copied`` are modules of the user that were found elsewhere: model, module, place. ``failed`` pairs each model that
    was left out with the reason. ``shm_bytes`` is the ``/dev/shm`` of the models' processes, computed for full
    batches. ``python`` is the Python version of this process. ``elsewhere`` pairs each remote callee with its server's
    address. ``files`` are the files for the deployment ``target`` and for proofs; ``replicas`` is the number of
    servers. ``options`` are tritonserver's with which the repository was created.
    """

    place: str
    models: tuple[ExportedModel, ...] = ()
    requirements: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str, str, str], ...] = ()
    shm_bytes: int = 0
    python: str = ""
    target: str = ""
    files: tuple[str, ...] = ()
    replicas: int = 1
    elsewhere: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    copied: tuple[tuple[str, str, str], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()

    @property
    def server_options(self) -> tuple[str, ...]:
        """Options of tritonserver: the repository's, a response cache, and the explicit mode if models load others."""
        cache = (
            [f"--cache-config=local,size={DEFAULT_CACHE_BYTES}"] if any(model.cached for model in self.models) else []
        )
        loaded = (f"--load-model={model.name}" for model in self.models if model.at_start)
        return (*self.options, *cache, *(("--model-control-mode=explicit", *loaded) if self.controlling else ()))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about missing parts of the export and duties of a server, from exports/warnings.json."""
        texts = json.loads(files(__package__).joinpath("exports/warnings.json").read_text("utf-8"))
        remote = dict(self.elsewhere)
        said = [("failed", {"name": name, "reason": reason}) for name, reason in self.failed]
        for model in self.models:
            for name in model.absent:
                verb = "loads" if name in model.loads and name not in model.calls else "calls"
                facts = {"model": model.name, "verb": verb, "name": name, "address": remote.get(name, "")}
                said.append(("remote" if name in remote else "absent", facts))
            said += [("late", {"name": model.name})] if model.late else []
        for kind, names in (("explicit", self.controlling), ("cache", [m.name for m in self.models if m.cached])):
            said += [(kind, {"names": ", ".join(names)})] if names else []
        said += (("need", {"text": text}) for text in self.needs)
        for model_name, line, module, package in self.unknown:
            facts = {"model": model_name, "line": line, "name": module, "package": package}
            said.append(("package" if package else "module", facts))
        said += (("copied", {"model": m, "name": name, "place": place}) for m, name, place in self.copied)
        said += [("secrets", {"files": ", ".join(self.secrets)})] if self.secrets else []
        return tuple(texts[kind].format(**facts) for kind, facts in said)

    @property
    def controlling(self) -> tuple[str, ...]:
        """The names of the models that load or unload models."""
        return tuple(model.name for model in self.models if model.controls)

    @property
    def entries(self) -> tuple[str, ...]:
        """The models that no other exported model calls; all if each has a caller."""
        called = {name for model in self.models for name in model.calls}
        return tuple(m.name for m in self.models if m.name not in called) or self.names

    @property
    def on_gpu(self) -> bool:
        return any(model.on_gpu for model in self.models)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models."""
        return tuple(model.name for model in self.models)


@dataclass(frozen=True, slots=True, repr=False)
class Unequal(Record):
    """A request that the two sides answered differently.

    ``steps`` are the inputs of one request, or of each request of a sequence from its start. ``what`` has a line
    for each difference; ``tensors`` compares the outputs that differ. ``shrunk``: it is the smallest such request
    that hypothesis found. ``steady``: its answers differed each time it was sent. ``options`` has what each step set
    besides its inputs, such as ``request_id='7'``.
    """

    what: tuple[str, ...]
    steps: tuple[tuple[TensorRecord, ...], ...] = ()
    tensors: tuple[TensorsCompared, ...] = ()
    shrunk: bool = False
    steady: bool = True
    options: tuple[str, ...] = ()

    @property
    def lost(self) -> bool:
        """Return whether a side did not answer; that is not counted as a difference."""
        return self.what[0].startswith("no answer")


@dataclass(frozen=True, slots=True, repr=False)
class Package(Record):
    """A package that the model imports, and its versions here and on the server; empty if not installed."""

    name: str
    here: str = ""
    there: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class ModelCounts(Record):
    """Growth of a model's statistics during a proof, on both sides.

    Each side has successful requests, failed requests, inferences (rows) and executions. ``batches``: clients
    form the batches, so that executions must be equal too; otherwise they may depend on timing. ``ensemble``: it is
    an ensemble, whose failed requests count twice unless another step still runs.
    """

    model: str
    here: tuple[int, ...] = ()
    there: tuple[int, ...] = ()
    batches: bool = True
    ensemble: bool = False

    @property
    def equal(self) -> bool:
        here, there = self.here[: 3 + self.batches], self.there[: 3 + self.batches]
        if self.ensemble and here and max(here[1], there[1]) <= 2 * min(here[1], there[1]):
            there = (there[0], here[1], *there[2:])
        return here == there


@dataclass(frozen=True, slots=True, repr=False)
class Certificate(Record):
    """The result of a proof: a model here and its copy on a real server answered the same requests.

    ``given`` and ``generated`` are the numbers of compared requests (or sequences) by origin; ``failed`` is the
    number that failed with the same error on both sides. ``tolerance`` and ``ulps`` are the allowed differences
    of floats. ``files`` are the SHA-256 hashes of the served files, those of callees included. ``here_ns`` and
    ``there_ns`` are median latencies: of a call in this process, and of a request, measured by the client.

    ``alone`` is the number of rows of batches that were sent again one by one; ``instances`` are the instance
    counts with which requests were sent again in parallel. ``counted`` compares the statistics of the model and
    its callees. ``notes`` are remarks about equal answers. ``seconds`` is the duration of the comparison.

    ``varies`` has the differences between two fresh instances on one side, for example of a model that uses random
    numbers or the time: its answers cannot be compared. ``stateful``: answers depend on earlier requests.
    ``decoupled``: it answers with streams.

    ``never_sent`` names variations of requests that the proof did not try. ``rounded`` is the number of requests whose
    floats differ by rounding alone: by at most ``ulps_needed`` units in the last place, which the tolerance
    ``rounding`` accepts; the last of ``unequal`` is then the one with the largest difference.
    """

    model: str
    version: int = 0
    given: int = 0
    generated: int = 0
    failed: int = 0
    seed: int = 0
    tolerance: float = 0.0
    ulps: int = 0
    here: str = ""
    server: str = ""
    packages: tuple[Package, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    here_ns: int = 0
    there_ns: int = 0
    unequal: tuple[Unequal, ...] = ()
    alone: int = 0
    instances: tuple[int, ...] = ()
    counted: tuple[ModelCounts, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    varies: tuple[str, ...] = ()
    stateful: bool = False
    decoupled: bool = False
    never_sent: tuple[str, ...] = ()
    rounded: int = 0
    rounding: float = 0.0
    ulps_needed: float = 0.0

    @property
    def rounds(self) -> bool:
        """Return whether rounding is the only difference."""
        return self.rounded > 0 and len(self.unequal) == 1

    @property
    def equal(self) -> bool:
        """Return whether all answers and statistics were equal."""
        return not self.unequal and not self.varies and self.requests > 0 and all(each.equal for each in self.counted)

    @property
    def requests(self) -> int:
        """The number of compared requests or sequences."""
        return self.given + self.generated

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate, with ``equal``, for ``json.dumps``."""
        return {**Record.to_dict(self), "equal": self.equal}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Certificate:
        """Build a certificate from the result of `to_dict`; ValueError, also if ``equal`` contradicts the rest."""
        certificate = super(Certificate, cls).from_dict({key: data[key] for key in data if key != "equal"})
        if data.get("equal", certificate.equal) != certificate.equal:
            raise ValueError(f"Certificate.equal: got {data['equal']}, but its other fields say {certificate.equal}")
        return certificate


@dataclass(frozen=True, slots=True, repr=False)
class Verified(Record):
    """The files of a folder, compared with the ``files`` hashes of a model's certificate."""

    model: str
    folder: str
    files: int
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return not (self.changed or self.missing or self.added)


@dataclass(frozen=True, slots=True, repr=False)
class ServedModel(Record):
    """A model on the server: its callees, and its versions, state and reason from the server's index."""

    name: str
    versions: tuple[int, ...] = (1,)
    state: str = ""
    reason: str = ""
    backend: str = ""
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ServerRecord(Record):
    """Snapshot of a local tritonserver.

    ``state`` is ``READY``, ``NOT READY``, ``STOPPED`` or ``ENDED`` (without `stop`). ``program`` describes the
    server program. ``http`` and ``metrics`` are URLs, ``grpc`` is host and port. ``log_file`` exists while the
    server runs; ``log`` has its last lines. ``seconds`` is the time from the call of `serve` until the server was
    ready. ``notes`` are differences from the notebook's environment.
    """

    state: str
    program: str = ""
    version: str = ""
    http: str = ""
    grpc: str = ""
    metrics: str = ""
    models: tuple[ServedModel, ...] = ()
    log_file: str = ""
    log: tuple[str, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ChangedModel(Record):
    """A model that a cell changed, and the differences of its files to those in ``folder``."""

    name: str
    folder: str
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Changes(Record):
    """The changed ones of ``total`` models; ``written`` says whether their files are on disk now."""

    models: tuple[ChangedModel, ...]
    total: int
    written: bool = False
