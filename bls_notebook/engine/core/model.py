"""`LoadedModel`: one version of a model, loaded and serving.

Guarantees: a model serves until `close`. Closing lets the requests in flight end, waits for the ensembles that hold
the model, and finalizes every instance exactly once, at its home; the caller does not wait for it. An exception of a
`finalize` is logged and does not affect other instances. `regroup` changes the instances without a pause: the remaining
ones are not disturbed, and a removed one is finalized when it is idle.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from types import CodeType
from typing import Any
from weakref import WeakSet

from bls_notebook.engine.core.scheduler import Scheduler
from bls_notebook.engine.core.signature_check import OutputCheck, RequestCheck, input_reshapes
from bls_notebook.engine.exception_text import describe
from bls_notebook.engine.waiting.parker import Parker
from bls_notebook.engine.waiting.worker_threads import ready as threads_ready
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.models import ModelSeen, RecordedInstance, TensorSeen

from .instance import Instance, is_ready
from .metrics_config import first_response_buckets
from .model_counters import ModelCounters
from .model_spec import ModelSpec

log = logging.getLogger("bls_notebook")
_SCHEDULERS = {"dynamic": "dynamic_batching", "sequence": "sequence_batching"}  # names in profiles

in_memory: WeakSet[LoadedModel] = WeakSet()  # all that have not been garbage-collected


class LoadedModel:
    """One model version in service.

    `server`: a `core.server.Server`, untyped here. `name`: its key, which is not its name if several namespaces have
    the name. `instances`: none for an ensemble; passive ones get no requests.
    `stub`: whether the instances are stubs. `remote`: address of the server that runs the model, or "".
    """

    on_closed: Callable[[LoadedModel], None] | None = None
    # Set by the repository: the state of the model's files when it was loaded, and a factory of more instances.
    fingerprint: object = None
    maker: Any = None
    load_seconds = 0.0  # 0 for an ensemble
    namespace = ""
    steps: Mapping[str, str] = {}  # keys of the models of an ensemble's steps, by name
    last_error: ErrorRecord | None = None  # the last exception of its code
    scheduler: Scheduler  # set before the model serves, see `schedulers.selection`

    def __init__(
        self,
        server: Any,
        spec: ModelSpec,
        version: int,
        directory: str,
        instances: Sequence[Instance],
        stub: bool = False,
        remote: str = "",
        name: str = "",
    ) -> None:
        self.server = server
        self.spec = spec
        self.name = name or spec.name
        self.version = version
        self.who = self.name, version
        self.directory = directory
        self.instances = tuple(i for i in instances if not i.spec.passive)
        self.passive = tuple(i for i in instances if i.spec.passive)
        self.leaving: tuple[Instance, ...] = ()  # not finalized yet
        self.decoupled = spec.decoupled
        self.is_async = any(i.is_async for i in instances)
        # Whether a BLS request first runs the model's own `is_ready`, as on servers since 26.03.
        self.asks_ready = not remote and any(getattr(i.backend, "asks_ready", False) for i in instances)
        self.output_names = tuple(spec.outputs)
        self.check = RequestCheck(spec)
        self.reshapes = input_reshapes(spec.inputs)
        self.text_in = any(tensor.datatype == "BYTES" for tensor in spec.inputs.values())
        # For an ensemble, the models of its steps decide.
        self.cpu_only = spec.scheduler != "ensemble" and (
            spec.force_cpu_only_input_tensors
            if spec.in_python
            else not any(getattr(i.backend, "takes_gpu", False) for i in instances)
        )
        self.outputs = OutputCheck(spec, server.strict)
        self.statistics = ModelCounters()
        if server.metrics_config.summaries:
            self.statistics.keep_latencies(True)
        if server.metrics_config.histograms and not remote:
            self.statistics.count_first_responses(first_response_buckets(spec.config))
        self.be(
            ModelSeen(
                name=self.name,
                version=version,
                backend=spec.backend,
                scheduler=_SCHEDULERS.get(spec.scheduler, spec.scheduler),
                instances=tuple(i.name for i in spec.instances if not i.passive),
                max_batch_size=spec.max_batch_size,
                decoupled=spec.decoupled,
                is_async=self.is_async,
                config=hashlib.sha256(spec.json.encode("utf-8", "surrogatepass")).hexdigest(),
                inputs=_tensors(spec.inputs),
                outputs=_tensors(spec.outputs),
                stub=stub,
                remote=remote,
                processes=bool(self.processes),
            )  # the hash of its code is added later
        )
        in_memory.add(self)
        threads_ready()
        self.closed = threading.Event()
        self._when_closed: list[Callable[[], None]] = []
        self.calls: set[str] = set()  # names of models that it has sent requests to
        self.bare: WeakSet[Any] = WeakSet()  # executions that send the requests of its bare threads
        self._lock = threading.Lock()
        self._holds = 0
        self._removed: list[Parker] = []
        self._closing = False
        self._finalizing = False  # whether all instances are being finalized

    def be(self, seen: ModelSeen) -> None:
        """Set the record of the model and its instances in profiles."""
        self.seen = seen
        self.received_as = seen, self.reshapes  # for tapes
        for instance in (*self.instances, *self.passive):
            instance.place = RecordedInstance(seen, instance.name, instance.device, _code_of(instance.backend))

    @property
    def options(self) -> set[str]:
        """What makes fields of its configuration effective, see fields.json."""
        return {*self.server.options, *(["process"] if self.processes else [])}

    @property
    def processes(self) -> dict[str, Any]:
        """The `ModelProcess` of each instance that is a process, by the instance's name."""
        instances = (*self.instances, *self.passive)
        return {i.name: process for i in instances if (process := getattr(i.backend, "process", None)) is not None}

    def ready(self) -> bool:
        return not self._closing and all(is_ready(i) for i in (*self.instances, *self.passive))

    def hold(self) -> bool:
        """Keep the model in service until `release`; False if it is closing."""
        with self._lock:
            if not self._closing:
                self._holds += 1
            return not self._closing

    def release(self) -> None:
        with self._lock:
            self._holds -= 1
            last = self._closing and not self._holds
        if last:
            self.scheduler.close(self._finalize)

    def regroup(self, spec: ModelSpec, instances: Sequence[Instance]) -> None:
        """Serve with these instances; finalize the removed ones, and wait for the `finalize` of idle ones."""
        before = (*self.instances, *self.passive)
        added = [i for i in instances if i not in before]
        removed = [i for i in before if i not in instances]
        caller: int | None = threading.get_ident()
        idle: list[Parker] = []

        parkers = {instance: Parker() for instance in removed}

        def left(instance: Instance) -> None:
            parker = parkers[instance]
            if threading.get_ident() == caller:
                idle.append(parker)
            instance.close(partial(self._finalized, instance, parker.unpark))

        with self._lock:
            self.leaving = (*self.leaving, *removed)
        self.spec = spec
        self.instances = tuple(i for i in instances if not i.spec.passive)
        self.passive = tuple(i for i in instances if i.spec.passive)
        self.check = RequestCheck(spec)
        self.be(replace(self.seen, instances=tuple(i.name for i in self.instances)))
        self.scheduler.resize(
            [i for i in added if not i.spec.passive], [i for i in removed if not i.spec.passive], left
        )
        for instance in removed:
            if instance.spec.passive:
                left(instance)
        caller = None
        for parker in idle:
            parker.park()
        if spec.scheduler != "sequence":  # its caller may have to end the sequences
            self._removed += [parker for parker in parkers.values() if parker not in idle]

    def wait_for_removed(self) -> None:
        """Wait until the busy instances that `regroup` has removed are finalized; Ctrl-C ends the wait."""
        while self._removed:
            self._removed.pop().park()

    def close(self) -> bool:
        """Accept no more requests, and finalize once the last one is answered, without waiting for that.

        Return whether no request is in flight, so that it is being finalized.
        """
        with self._lock:
            held = self._closing or self._holds > 0
            self._closing = True
        if not held:
            self.scheduler.close(self._finalize)
        return self._finalizing

    def _finalize(self) -> None:
        """Finalize all instances at their homes; without any, say at once that the model is closed."""
        instances = (*self.instances, *self.passive)
        with self._lock:
            self.leaving = (*self.leaving, *instances)
            self._finalizing = True
        for instance in instances:
            instance.close(partial(self._finalized, instance, lambda: None))
        self._say_closed()

    def _finalized(self, instance: Instance, then: Callable[[], None], error: BaseException | None) -> None:
        if error is not None:
            log.error("finalize of %s raised %s", instance.name, describe(error))
        with self._lock:
            self.leaving = tuple(i for i in self.leaving if i is not instance)
        self._say_closed()
        then()

    def when_closed(self, call: Callable[[], None]) -> None:
        """Call `call()` once all instances are finalized; at once if they are."""
        with self._lock:
            if not self.closed.is_set():
                self._when_closed.append(call)
                return
        call()

    def interrupt_finalize(self) -> None:
        """Interrupt the `finalize` of its instances."""
        for instance in self.leaving:
            instance.interrupt_finalize()

    def _say_closed(self) -> None:
        """Call `on_closed` once all instances are finalized, including those removed earlier."""
        with self._lock:
            if self.leaving or not self._finalizing:
                return
            self._finalizing = False
        try:
            if self.on_closed is not None:
                self.on_closed(self)
        finally:
            with self._lock:
                self.closed.set()
                calls, self._when_closed = self._when_closed, []
            for call in calls:
                call()


def wait_until_closed(models: Iterable[LoadedModel], deadline: float | None = None) -> list[LoadedModel]:
    """Wait until models are finalized or the `deadline` (monotonic, s) has passed; return the unfinalized ones.

    Ctrl-C ends the wait and interrupts the `finalize` of these models.
    """
    models = list(models)
    try:
        for model in models:
            parker = Parker()
            model.when_closed(parker.unpark)
            parker.park(-1 if deadline is None else max(0.0, deadline - monotonic()))
    except KeyboardInterrupt:
        for model in models:
            model.interrupt_finalize()
        raise
    return [model for model in models if not model.closed.is_set()]


def _tensors(specs: Mapping[str, Any]) -> tuple[TensorSeen, ...]:
    return tuple(TensorSeen(name, spec.datatype, tuple(spec.dims)) for name, spec in specs.items())


def _code_of(backend: object) -> CodeType | None:
    """Return the code of a Python model's `execute`, or None."""
    process = getattr(backend, "process", None)
    if process is not None:
        return process.execute_code  # type: ignore[no-any-return]
    try:
        execute = getattr(getattr(backend, "model", None), "execute", None)
        code = getattr(getattr(execute, "__wrapped__", execute), "__code__", None)
    except Exception:  # a model may have any attributes
        return None
    return code if isinstance(code, CodeType) else None
