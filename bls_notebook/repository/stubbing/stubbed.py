"""`Stubbed`: a model whose requests are answered by something else, from `with` to its end.

Guarantees: a model that serves is not touched: its own versions serve again afterwards, not loaded anew,
with what they were in the midst of; where they are replaced meanwhile, what is new is stood in for too.
What the stub was asked before its end is answered, without further delay.
"""

from __future__ import annotations

import weakref
from dataclasses import replace

from bls_notebook.backends.protocol import OpenModel
from bls_notebook.backends.python import open_model as open_python
from bls_notebook.backends.stub.calls import StubCall
from bls_notebook.backends.stub.how import Stub
from bls_notebook.backends.stub.model import stub_instance
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.spec import InstanceSpec, ModelSpec
from bls_notebook.engine.errors import BLSError, ModelNotFoundError
from bls_notebook.engine.schedulers.choose import scheduler_for
from bls_notebook.engine.waiting.ctrl_c import CtrlC
from bls_notebook.records.quantities import count
from bls_notebook.repository.catalog import Catalog
from bls_notebook.repository.config import parse_config
from bls_notebook.repository.for_models import Config
from bls_notebook.repository.index import STUBBED
from bls_notebook.repository.source.model_source import ModelSource
from bls_notebook.repository.source.names import check_model_name
from bls_notebook.repository.substitution.stub_config import FOR_ENSEMBLE, as_stub, backend_of

from .answers import GivenAnswers


class Stubbed:
    """A model whose requests are answered by something else; see `ModelRepository.stub`, which makes it."""

    def __init__(
        self,
        catalog: Catalog,
        model: str,
        answer: object,
        delay: float,
        config: Config | None,
        clock: object,
    ) -> None:
        check_model_name(model)
        self.model = model
        self._catalog = catalog
        self._config = config
        server = weakref.ref(catalog.server)

        def spec_of() -> ModelSpec | None:
            found = server()
            serving = None if found is None else found.find(model)
            return None if serving is None else serving.spec

        self._answers = GivenAnswers(model, answer, delay, clock, spec_of)
        self._stub = Stub(reason=STUBBED, answers=self._answers)
        self._source: ModelSource | None = None  # of a model that served nothing before
        self._of: dict[int, tuple[LoadedModel, ModelSpec]] = {}  # the versions that it stands in for
        self._made: dict[int, LoadedModel] = {}  # what does
        self._stale: list[LoadedModel] = []
        self._entered = False

    @property
    def calls(self) -> tuple[StubCall, ...]:
        """The requests that it was asked to answer, in the order in which they were begun."""
        return tuple(self._answers.calls)

    # -- from `with` to its end ----------------------------------------------------------------------

    def __enter__(self) -> Stubbed:
        if self._entered:
            raise BLSError(f"stub of {self.model!r}: it was entered before; make a new one: repo.stub(...)")
        service = self._catalog.service
        with CtrlC(), service.lock_of(self.model):
            service.refuse_if_closed(self.model)
            if self._catalog.server.own(self.model):
                self._stand_in()
            else:
                self._define()
            self._entered = True
            service.ending.append(self.end)
        if self._source is not None:
            service.dependencies.asked_for(self.model)
            self._catalog._refresh_users(self.model)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with CtrlC():
            self.end()
            self._step_back()
        failed = self._answers.failed
        if error is None and failed:
            raise failed[0]

    def end(self) -> list[LoadedModel]:
        """Answer without further delay; return what serves in the place of others, to be closed."""
        self._answers.over.set()
        return [*self._made.values(), *self._stale]

    def _stand_in(self) -> None:
        server = self._catalog.server
        if self._config is not None:
            raise BLSError(
                f"stub of {self.model!r}: config: the model serves, with a configuration of its own; leave "
                f"config out, or unload the model first"
            )
        self._answers.check(next(reversed(server.own(self.model).values())).spec)
        server.stand_in(self.model, self)

    def _define(self) -> None:
        """Load a stub where there is no model in service: of files, or of the configuration given."""
        catalog, name = self._catalog, self.model
        source = self._found()
        config = source.parsed_config()
        backend = backend_of(config, source.folder)
        asks: OpenModel | None = None
        if backend == "python" and self._config is None and not (config.input and config.output):
            asks = open_python
        told = as_stub(config, backend or "python", list(source.versions))
        stub = replace(self._stub, asks=asks)
        source = replace(source, config=told, config_is_json=False, stub=stub)
        try:
            record = catalog.service.load(source)
            if not record.outputs:
                raise BLSError(
                    f"stub of {name!r}: its configuration names no outputs; give one that does: config=..."
                )
            self._answers.check(catalog.ready_model(name).spec)
        except BaseException:
            catalog.service.unload(name)
            catalog.service.folder.discard(source.folder)
            raise
        self._source = catalog._definitions[name] = source

    def _found(self) -> ModelSource:
        catalog, name = self._catalog, self.model
        try:
            source = catalog._source(name, None)
        except ModelNotFoundError as error:
            if self._config is None:
                raise BLSError(
                    f"stub of {name!r}: there is no such model, so that nothing says what its inputs and "
                    f"outputs are; give config=... ({error})"
                ) from error
            folder = catalog.service.folder.write(name, {"1/model.py": b"# A stub answers for it.\n"})
            return ModelSource(name, folder, "stub", parse_config(self._config, model=name))
        given = self._config
        return source if given is None else replace(source, config=parse_config(given, model=name))

    def _step_back(self) -> None:
        catalog, name = self._catalog, self.model
        service = catalog.service
        with service.lock_of(name):
            if not self._entered or self.end not in service.ending:
                return
            service.ending.remove(self.end)
            if self._source is None:
                catalog.server.step_back(name, self)
                for model in self._made.values():
                    model.close()
                return
            if catalog._definitions.get(name) is self._source:
                del catalog._definitions[name]
                service.unload(name)
            service.folder.discard(self._source.folder)

    # -- as `StandIn` --------------------------------------------------------------------------------

    def serve_for(self, own: dict[int, LoadedModel]) -> dict[int, LoadedModel]:
        """Return stubs of versions, made anew of those that have changed."""
        made: dict[int, LoadedModel] = {}
        for version, model in own.items():
            before, spec = self._of.get(version, (None, None))
            same = before is model and spec is model.spec  # else it has been replaced, or regrouped
            made[version] = self._made[version] if same else self._stub_of(model)
        self._stale += [model for v, model in self._made.items() if made.get(v) is not model]
        self._of, self._made = {version: (model, model.spec) for version, model in own.items()}, made
        return dict(made)

    def let_go(self) -> None:
        """Close what has served before and is out of service now."""
        stale, self._stale = self._stale, []
        for model in stale:
            model.close()

    def _stub_of(self, model: LoadedModel) -> LoadedModel:
        spec = model.spec
        if spec.scheduler == "ensemble":
            places = tuple(InstanceSpec(f"{spec.name}_{number}", "CPU", 0) for number in range(FOR_ENSEMBLE))
            spec = replace(spec, scheduler="default", instances=places)
        instances = []
        for each in spec.instances:
            arguments = {
                "model_config": spec.json,
                "model_instance_name": each.name,
                "model_version": str(model.version),
            }
            instances.append(Instance(each.name, stub_instance(self._stub, arguments), spec=each))
        out = LoadedModel(self._catalog.server, spec, model.version, model.directory, instances, True)
        out.scheduler = scheduler_for(out)
        return out

    def __repr__(self) -> str:
        return f"<Stubbed {self.model}: {count(len(self._answers.calls), 'request')}>"
