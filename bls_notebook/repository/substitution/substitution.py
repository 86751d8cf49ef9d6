"""`Substitution`: run models with substituted answers of their callees.

Example: answer `resize` and `detect` with their real responses, and record these::

    class Kept:
        def __init__(self):
            self.responses = {}

        def answer(self, call, wait):  # a generator: one answer, or any number for a decoupled callee
            for response in wait.ask():  # or yield MADE_UP, ASK or a TritonError, or raise
                self.responses[call.key] = response
                yield response

    kept = Kept()
    with Substitution(repo, {"resize": kept, "detect": kept}, concurrent=True) as substitution:
        repo.infer("front", inputs)
    substitution.calls      # every Call, in the order of execution
    substitution.answered   # the keys of answered calls, in the order of completion

The next substitution that runs the same requests sees the same keys: a key is fixed when a request is sent, and
requests from the notebook are numbered from the start of the substitution. `wait.after(*keys)` waits until other calls
are answered, `wait.sleep(seconds)` for a time; both end early if the request is cancelled.

Guarantees: entering substitutes all names or none, also on Ctrl-C. Real versions in service stay loaded and serve again
afterwards; versions loaded in the meantime are substituted, too. Exiting ends every wait, answers later calls with an
error, and restores the real versions, also on Ctrl-C. Substitutions of one model may be nested and may end in any
order; the last one entered answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bls_notebook.backends.protocol import OpenModel
from bls_notebook.backends.python import open_model as open_python
from bls_notebook.engine import observer
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.model_spec import InstanceSpec, ModelSpec
from bls_notebook.engine.errors import BLSError, ModelNotFoundError
from bls_notebook.engine.schedulers.selection import scheduler_for
from bls_notebook.engine.waiting.operations import Scope, operation
from bls_notebook.repository.catalog import Catalog, Config
from bls_notebook.repository.config import parse_config
from bls_notebook.repository.model_index import STUBBED
from bls_notebook.repository.source.model_source import ModelSource, Stub
from bls_notebook.repository.source.names import check_model_name

from .call import OUTSIDE, THREAD, Answers, Call, CallKey, CallKeys, CallPath, CallProgress
from .stub_backend import AnswerSource, SubstituteInstance
from .stub_config import FOR_ENSEMBLE, as_stub, backend_of

Check = Callable[[str, ModelSpec], None]


class Substitution(Scope):
    """A context manager in which `answers` answer for models; None makes a model not ready.

    A model in service stays loaded; a model in the folders is not loaded. `configs` has the configurations of models
    that are in no folder, and replaces those of folders. By default a model answers like the real one: as many calls at
    a time as it has instances, in batches if it has a batcher. With `concurrent`, it answers any number of calls at a
    time, each as soon as it arrives. `check` is called with each name and specification before the substitution; an
    exception prevents it.
    """

    def __init__(
        self,
        catalog: Catalog,
        answers: Mapping[str, Answers | None],
        *,
        configs: Mapping[str, Config] | None = None,
        concurrent: bool = False,
        check: Check | None = None,
    ) -> None:
        for name in answers:
            check_model_name(name)
        self.names = tuple(answers)
        self._server = catalog._server
        self._progress = CallProgress(catalog._server)
        self._calls: list[Call] = []
        self._used = False
        self._keys = CallKeys()
        self._before: dict[CallPath, Mapping[str, int]] = {}  # numbers of the notebook's calls before the start
        self._models = {
            name: _SubstitutedModel(
                catalog,
                name,
                None if each is None else AnswerSource(each, self._progress, self._relative, self._calls, concurrent),
                self._progress,
                None if configs is None else configs.get(name),
                check or (lambda name, spec: None),
            )
            for name, each in answers.items()
        }

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that the substituted models received, in the order of execution."""
        return tuple(self._calls)

    @property
    def answered(self) -> tuple[CallPath, ...]:
        """The keys of answered calls, in the order of completion."""
        return tuple(self._progress.answered)

    @operation
    def unload(self, name: str) -> None:
        """Make a substituted model not ready from now on."""
        self._models[name].unload()

    def _relative(self, call_key: CallKey | None) -> CallPath:
        """Return the key with its outermost call numbered from the start of the substitution."""
        key: CallPath = ((), "", -1) if call_key is None else call_key.key
        calls = []
        while key and key[-1] != THREAD:
            sender, callee, number = key
            calls.append((callee, number))
            key = sender
        callee, number = calls.pop()
        key = key, callee, number - self._before.get(key, {}).get(callee, 0)
        for callee, number in reversed(calls):
            key = key, callee, number
        return key

    def _check(self) -> None:
        if self._used:
            names = ", ".join(map(repr, self.names))
            raise BLSError(f"stub of {names}: it was entered before; create a new one: repo.stub(...)")

    def _enter(self) -> None:
        self._used = True
        observer.add(self._keys)
        outside = list(self._server.outside.values())
        self._before = {OUTSIDE: {}, **{each.key: each.sent() for each in outside}}
        for model in self._models.values():
            model.enter()
        self._server.cache.clear()  # it has responses of models that call substituted ones

    def _leave(self) -> None:
        self._progress.end()
        for model in reversed(self._models.values()):
            model.leave()
        self._server.cache.clear()
        observer.remove(self._keys)


@dataclass(eq=False)
class _SubstitutedModel:
    """One model of a substitution: enters its substitutes into service, and restores the real versions."""

    _catalog: Catalog
    name: str
    _answers_from: AnswerSource | None  # None: the model is not ready
    _progress: CallProgress
    _config: Config | None
    _check: Check
    _source: ModelSource | None = None  # of a model that was not in service before
    _own: dict[int, tuple[LoadedModel, ModelSpec]] = field(default_factory=dict)  # the substituted real versions
    _serving: dict[int, LoadedModel] = field(default_factory=dict)
    _stale: list[LoadedModel] = field(default_factory=list)

    def enter(self) -> None:
        """Substitute the versions in service; without any, load the model with substituted instances."""
        catalog, service = self._catalog, self._catalog._service
        with service.lock_of(self.name):
            service.refuse_if_closed(self.name)
            service.ending.append(self.end)
            if catalog._server.own(self.name):
                self._serve_for_own()
            elif self._answers_from is not None:
                self._define()
        if self._source is not None:
            service.dependencies.add_explicit(self.name)
            catalog._refresh_users(self.name)

    def unload(self) -> None:
        server = self._catalog._server
        with self._catalog._service.lock_of(self.name):
            self._answers_from = None
            if self._source is None:
                server.exchange(self.name, server.own(self.name))
            else:
                self._catalog._service.unload(self.name)

    def _serve_for_own(self) -> None:
        server = self._catalog._server
        if self._config is not None:
            raise BLSError(
                f"stub of {self.name!r}: got a config, but the model in service already has a configuration; omit "
                f"config, or unload the model first"
            )
        self._check(self.name, next(reversed(server.own(self.name).values())).spec)
        server.substitute(self.name, self)

    def _define(self) -> None:
        catalog, name = self._catalog, self.name
        source = self._source_of_model()
        config = source.parsed_config()
        backend = backend_of(config, source.folder)
        asks: OpenModel | None = None
        if backend == "python" and self._config is None and not (config.input and config.output):
            asks = open_python
        stub = Stub(STUBBED, asks=asks, make=self._instance)
        stub_config = as_stub(config, backend or "python", list(source.versions))
        source = replace(source, config=stub_config, config_is_json=False, stub=stub)
        try:
            if not catalog._service.load(source).outputs:
                raise BLSError(f"stub of {name!r}: its configuration names no outputs; pass one that does: config=...")
            self._check(name, catalog._ready_model(name).spec)
            self._source = catalog._definitions[name] = source
        except BaseException:
            catalog._service.unload(name)
            catalog._service.folder.discard(source.folder)
            raise

    def _source_of_model(self) -> ModelSource:
        catalog, name = self._catalog, self.name
        try:
            source = catalog._source(name)
        except ModelNotFoundError as error:
            if self._config is None:
                raise BLSError(
                    f"stub of {name!r}: there is no such model, so its inputs and outputs are unknown; pass "
                    f"config=... ({error})"
                ) from error
            folder = catalog._service.folder.write(name, {"1/model.py": b"# A stub answers for this model.\n"})
            return ModelSource(name, folder, "stub", parse_config(self._config, model=name))
        config = self._config
        return source if config is None else replace(source, config=parse_config(config, model=name))

    def leave(self) -> None:
        """Restore the real versions. May be called twice."""
        catalog, name = self._catalog, self.name
        service = catalog._service
        with service.lock_of(name):
            if self.end not in service.ending:
                return
            if self._source is None:
                catalog._server.restore(name, self)
                catalog._server.close_all(self._serving.values())
            else:
                if catalog._definitions.get(name) is self._source:
                    del catalog._definitions[name]
                    service.unload(name)
                service.folder.discard(self._source.folder)
            service.ending.remove(self.end)

    def end(self) -> list[LoadedModel]:
        """End every wait because the repository closes; return the models to close with it."""
        self._progress.end()
        return [*self._serving.values(), *self._stale]

    def serve_for(self, own: dict[int, LoadedModel]) -> dict[int, LoadedModel]:
        """Return the substitutes of versions; versions that have changed get new ones."""
        serving: dict[int, LoadedModel] = {}
        for version, model in own.items() if self._answers_from is not None else ():
            before, spec = self._own.get(version, (None, None))
            same = before is model and spec is model.spec  # False: it was replaced, or its instance groups changed
            serving[version] = self._serving[version] if same else self._substitute_of(model)
        self._stale += [model for v, model in self._serving.items() if serving.get(v) is not model]
        self._own, self._serving = {v: (own[v], own[v].spec) for v in serving}, serving
        return dict(serving)

    def close_replaced(self) -> None:
        stale, self._stale = self._stale, []
        self._catalog._server.close_all(stale)

    def _substitute_of(self, model: LoadedModel) -> LoadedModel:
        spec = replace(model.spec, response_cache=False)
        concurrent = self._answers_from is not None and self._answers_from.concurrent
        if spec.scheduler == "ensemble" or concurrent:
            number = 1 if concurrent else FOR_ENSEMBLE
            places = tuple(InstanceSpec(f"{spec.name}_{n}", "CPU", 0) for n in range(number))
            spec = replace(spec, scheduler="default", instances=places)
        instances = []
        for each in spec.instances:
            arguments = {
                "model_config": spec.json,
                "model_instance_name": each.name,
                "model_version": str(model.version),
            }
            instances.append(Instance(each.name, self._instance(arguments), spec=each))
        out = LoadedModel(self._catalog._server, spec, model.version, model.directory, instances, True)
        out.scheduler = scheduler_for(out)
        return out

    def _instance(self, arguments: Mapping[str, str]) -> SubstituteInstance:
        assert self._answers_from is not None
        return SubstituteInstance(arguments, self._answers_from)
