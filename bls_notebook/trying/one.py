"""`Loading`: one model after the other: itself where that goes, else its stub, else why neither does."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

from bls_notebook.backends.protocol import OpenModel
from bls_notebook.backends.python import open_model as open_python
from bls_notebook.backends.registry import find_backend
from bls_notebook.devices.registry import gpu_count, gpus
from bls_notebook.engine.description import is_a
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.interrupt import Interrupted
from bls_notebook.extending import Host
from bls_notebook.records.visible import first_line
from bls_notebook.repository.call_order import calls_of, runs_python, sources_in
from bls_notebook.repository.config import ModelConfigMessage
from bls_notebook.repository.gpus import simulate_gpus, simulated_for
from bls_notebook.repository.loading.ensembles import members_of
from bls_notebook.repository.loading.python_backends import backend_folders, python_backend
from bls_notebook.repository.source.layout import (
    find_model,
    is_pointer,
    pointers_in,
    version_folders,
)
from bls_notebook.repository.source.model_source import ModelSource
from bls_notebook.repository.substitution.made_up import Stub
from bls_notebook.repository.substitution.stub_config import as_stub, backend_of, main_file

from . import reasons
from .deadline import Deadline
from .hub import asks_the_hub
from .preparing import Preparing
from .reasons import Reason
from .records import TriedModel
from .tokenizers import byte_tokenizers

log = logging.getLogger("bls_notebook")


_CUDA = re.compile(r"""["']cuda(:\d)?["']|\.cuda\(\)""")


@dataclass
class Plan:
    """What is known of a model before it is loaded."""

    name: str
    folder: Path  # its own, on disk
    files: Path  # where it is loaded from: the same, or one that was made for it
    config: ModelConfigMessage | None = None  # as it is written
    problem: str = ""  # why there is no configuration
    backend: str = ""
    calls: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)  # models that its requests name, known or not
    may_run: bool = True
    runs_code: bool = False  # Python of its own, in this process
    takes_cuda: bool = False  # names it without a look whether it is there
    sources: tuple[str, ...] = ()
    fetches: bool = False  # asks Hugging Face's hub for something, as its sources look


def plan_of(host: Host, name: str, known: Collection[str], real: Collection[str] | None) -> Plan:
    """Return what there is to know of a model without running anything of it."""
    folder = find_model(host.repository.paths, name).resolve()
    plan = Plan(name, folder, folder, may_run=real is None or name in real)
    try:
        source = host.source(name)
        plan.files, plan.config = source.folder, source.parsed_config()
    except (BLSError, OSError) as error:
        plan.problem = first_line(str(error), 400).removeprefix(f"model '{name}': ")
    if plan.config is not None:
        plan.backend = backend_of(plan.config, plan.files)
    if runs_python(plan.backend):
        plan.sources = sources = tuple(sources_in(plan.folder))
        plan.fetches = any(map(asks_the_hub, sources))
        plan.takes_cuda = any(_CUDA.search(s) is not None and "is_available" not in s for s in sources)
        plan.runs_code = plan.may_run and bool(sources)
    if plan.config is not None:
        plan.named, plan.calls = calls_of(name, plan.config, plan.backend, plan.sources, known)
    return plan


class Loading:
    """Loads the models of a repository; `top` is the outermost folder that belongs to the project."""

    def __init__(
        self,
        host: Host,
        preparing: Preparing,
        plans: Mapping[str, Plan],
        stub: Callable[[str], Stub],
        seconds: float,
        top: Path,
    ) -> None:
        self._host, self._repository = host, host.repository
        self._preparing = preparing
        self._plans = plans
        self._stub = stub
        self._seconds = seconds
        self._top = top
        self._rows: dict[str, TriedModel] = {}
        self.notes: tuple[str, ...] = ()

    def rows(self) -> tuple[TriedModel, ...]:
        """What came of each model: those that serve least first in each part, else by name."""
        return tuple(self._rows[name] for name in sorted(self._rows))

    def load(self, name: str) -> None:
        """Load one model, whatever it does; only Ctrl-C passes through."""
        began = perf_counter()
        plan = self._plans[name]
        try:
            row = self._row(plan)
        except Exception as error:  # whatever it is, the others are loaded all the same
            log.debug("%s could not be tried", name, exc_info=error)
            row = TriedModel(name, kind="absent", why=first_line(str(error)) or type(error).__name__)
        self._rows[name] = replace(
            row, backend=plan.backend, seconds=perf_counter() - began, calls=tuple(sorted(plan.calls))
        )

    def add_missing(self) -> None:
        """Tell of models that requests name and that are in no folder."""
        missing: dict[str, list[str]] = {}
        for plan in self._plans.values():
            for name in plan.named - self._plans.keys():
                missing.setdefault(name, []).append(plan.name)
        for name, callers in missing.items():
            why = f"there is no folder of that name; called by {', '.join(sorted(callers))}"
            remedy = f"a model of yours in its place: `%%tritonmodel {name}`"
            self._rows[name] = TriedModel(name, "", "absent", why, remedy)

    # -- one ---------------------------------------------------------------------------------------------

    def _row(self, plan: Plan) -> TriedModel:
        name = plan.name
        if plan.config is None:
            self._host.failed(name, plan.problem)
            remedy = f"correct it, then `%tritonrepo load {name}`"
            return TriedModel(name, kind="absent", why=plan.problem, remedy=remedy)
        reason = self._before(plan)
        asks = plan.may_run
        if reason is None:
            reason, asks = self._real(plan)
        if reason is None:
            note = self._preparing.notes.get(name, "")
            return TriedModel(name, kind="real", why=note)
        return self._stand_in(plan, plan.config, reason, asks)

    def _before(self, plan: Plan) -> Reason | None:
        """Why a model cannot be real, as far as a look at its files tells."""
        assert plan.config is not None
        name, backend = plan.name, plan.backend
        if backend == "ensemble":
            away = [step for step in members_of(plan.config) if not self._repository.ready(step)]
            return reasons.without_steps(name, away) if away else None
        if not plan.may_run:
            return reasons.kept_out(name)
        file = main_file(plan.config, backend, plan.files)
        there = file is not None and file.exists()
        shown = None if file is None else plan.folder / file.relative_to(plan.files)
        if find_backend(backend) is None:
            try:
                repository = self._repository
                folders = backend_folders(repository.paths, repository.backend_directory)
                own = python_backend(plan.config, folders)
            except Exception:
                own = None
            return None if own is not None else reasons.no_backend(name, backend, shown, there)
        if file is not None and shown is not None and (not there or is_pointer(file)):
            return reasons.missing_file(name, shown, there)
        return None

    def _real(self, plan: Plan) -> tuple[Reason | None, bool]:
        """Load a model itself; else why that failed, and whether it may be asked for its configuration."""
        failed = self._attempt(plan)
        if failed is None:
            return None, True
        if failed.kind == "gpu" and plan.runs_code and gpu_count() == 0:  # its code alone asks for one
            told = simulated_for(plan.name)
            again = self._attempt(plan)
            if again is None:
                self.notes += (told,)
                return None, True
            simulate_gpus(0)
        simulated = getattr(gpus(), "simulated", False)
        if failed.kind == "gpu" and simulated and plan.backend != "ensemble":
            self._preparing.on_cpu.add(plan.name)
            if self._attempt(plan) is None:
                return None, True
            self._preparing.on_cpu.discard(plan.name)
        return failed, failed.kind not in ("time", "package", "module")

    def _attempt(self, plan: Plan) -> Reason | None:
        name = plan.name
        pipeline = plan.fetches and bool(plan.named)  # what calls nobody has a stub that serves as well
        try:
            with byte_tokenizers(pipeline) as bytes_for, Deadline(self._seconds) as deadline:
                self._repository.load(name)
            if bytes_for:
                stood_in = f"single bytes stand in for the tokenizer {', '.join(bytes_for)}"
                notes = self._preparing.notes
                notes[name] = "; ".join(
                    filter(None, (notes.get(name), f"{stood_in}, which cannot be had here"))
                )
        except BLSError as error:
            if deadline.passed and error.__cause__ is not None and is_a(error.__cause__, Interrupted):
                return reasons.too_slow(name, self._seconds)
            given = {} if plan.config is None else plan.config.parameters
            parameters = {key: given[key].string_value for key in given}
            try:
                reason = reasons.of_error(name, error, plan.folder, self._top, _gpus(), parameters)
            except Exception:  # an exception of a model's may answer anything
                reason = Reason(first_line(str(error)), f"mend it, then `{reasons.again(name)}`", "error")
            pointers = pointers_in(plan.folder) if reason.kind in ("error", "file") else []
            if not pointers:
                return reason
            more = reasons.missing_file(name, pointers[0], True)
            return replace(more, why=f"{more.why}: {reason.why}")
        if deadline.passed and not self._repository.ready(name):
            return reasons.too_slow(name, self._seconds)
        return None

    def _stand_in(self, plan: Plan, config: ModelConfigMessage, reason: Reason, asks: bool) -> TriedModel:
        """Serve a model by its stub; where that cannot be either, say why."""
        name = plan.name
        own: OpenModel | None = open_python if plan.backend == "python" and asks else None
        if plan.backend != "python" and asks and not (config.input and config.output):
            own = find_backend(plan.backend)
        # An engine leaves its outputs on its GPU, which the code of its callers counts on.
        gpu = 0 if plan.backend == "tensorrt" and gpu_count() else None
        stub = replace(self._stub(name), reason=reason.why, asks=own, gpu=gpu)

        def stubbed(source: ModelSource) -> ModelSource:
            if source.name != name:
                return source
            stub_config = as_stub(config, plan.backend, list(version_folders(source.folder)))
            return replace(source, config=stub_config, stub=stub, config_is_json=False)

        absent = TriedModel(name, kind="absent", why=reason.why, remedy=reason.remedy)
        undo = self._host.before_load(stubbed)
        try:
            with Deadline(self._seconds):
                record = self._repository.load(name)
        except BLSError as error:
            return replace(
                absent, why=f"{reason.why}; nor can a stub take its place: {first_line(str(error))}"
            )
        finally:
            undo()
        if not record.outputs:
            self._repository.unload(name)
            unknown = "its configuration names no outputs, so there is nothing to stand in for"
            return replace(absent, why=f"{reason.why}; {unknown}")
        return TriedModel(name, kind="stub", why=reason.why, remedy=reason.remedy)


def _gpus() -> str:
    there = gpus()
    if there is None:
        return "there is none here"
    return f"{gpu_count()} simulated" if there.simulated else f"{gpu_count()} here"
