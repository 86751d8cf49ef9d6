"""Load the models of a repository: the real model if possible, else a stub; report the reasons."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter

from bls_notebook.backends.protocol import OpenModel
from bls_notebook.backends.python import open_model as open_python
from bls_notebook.backends.registry import find_backend
from bls_notebook.devices.registry import MOST_GPUS, gpu_count, gpus
from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host
from bls_notebook.progress import progress
from bls_notebook.records.grouping import grouped
from bls_notebook.records.units import listed
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.call_order import calls_of, in_order, reached, runs_python, sources_in
from bls_notebook.repository.config import ModelConfigMessage
from bls_notebook.repository.gpus import gpus_in, simulate_gpus
from bls_notebook.repository.loading.ensembles import members_of
from bls_notebook.repository.loading.instances import python_backend
from bls_notebook.repository.source import model_folders
from bls_notebook.repository.source.model_source import ModelSource
from bls_notebook.repository.substitution.made_up_responses import Stub, Values
from bls_notebook.repository.substitution.stub_config import as_stub, backend_of, main_file

from . import failure_reasons as reasons
from .failure_reasons import FailureReason
from .hub_offline import byte_tokenizers, offline_if_unreachable, uses_hub
from .load_deadline import finished_within
from .model_preparation import ModelPreparation, template_notes
from .records import TriedModel

log = logging.getLogger("bls_notebook")


_OWN_SERVER = re.compile(r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0):800[01]\b")
_CUDA = re.compile(r"""["']cuda(:\d)?["']|\.cuda\(\)""")


@dataclass
class ModelPlan:
    """Facts about a model from its files, without running code."""

    name: str
    folder: Path  # on disk
    files: Path  # the folder to load from: the same, or a private copy with links
    config: ModelConfigMessage | None = None  # as written
    problem: str = ""  # why there is no configuration
    backend: str = ""
    calls: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)  # callees in its requests, including unknown models
    may_run: bool = True
    runs_code: bool = False  # has Python code that runs in this process
    takes_cuda: bool = False  # uses CUDA without testing that it is available
    sources: tuple[str, ...] = ()
    uses_hub: bool = False  # its sources fetch from Hugging Face's hub


def plan_model(host: Host, name: str, known: Collection[str], real: Collection[str] | None) -> ModelPlan:
    """Read a model's configuration and sources; run nothing."""
    folder = model_folders.find_model(host.repository.paths, name).resolve()
    plan = ModelPlan(name, folder, folder, may_run=real is None or name in real)
    try:
        source = host.source(name)
        plan.files, plan.config = source.folder, source.parsed_config()
    except (BLSError, OSError) as error:
        plan.problem = first_line(str(error), 400).removeprefix(f"model '{name}': ")
    if plan.config is not None:
        plan.backend = backend_of(plan.config, plan.files)
    if runs_python(plan.backend):
        plan.sources = sources = tuple(sources_in(plan.folder))
        plan.uses_hub = any(map(uses_hub, sources))
        plan.takes_cuda = any(_CUDA.search(s) is not None and "is_available" not in s for s in sources)
        plan.runs_code = plan.may_run and bool(sources)
    if plan.config is not None:
        plan.named, plan.calls = calls_of(name, plan.config, plan.backend, plan.sources, known)
    return plan


class ModelLoader:
    """Loads the models `names` of a repository, callees first; only Ctrl-C stops it.

    `project` is the outermost folder that belongs to the project, `seconds` the limit for one model. `fill` and
    `config_name` are those of `ModelPreparation`.
    """

    def __init__(
        self,
        host: Host,
        names: Collection[str],
        make_stub: Callable[[str], Stub],
        *,
        fill: Mapping[str, object],
        config_name: str,
        real: Collection[str] | None,
        seconds: float,
        project: Path,
    ) -> None:
        self._host, self._repository = host, host.repository
        self._make_stub = make_stub
        self._stubbed: dict[str, tuple[ModelPlan, ModelConfigMessage, FailureReason, bool]] = {}
        self._seconds = seconds
        self._project = project
        self._preparation = ModelPreparation(host.add_folder, fill, config_name)
        host.before_load(self._preparation)
        self.plans = {name: plan_model(host, name, names, real) for name in names}
        why, remedy = "no model can have the folder's name:", "rename it: use letters, digits, '_', '-' and '.'"
        misnamed = model_folders.misnamed_folders(host.repository.paths).items()
        self._reports = {name: TriedModel(name, "", "absent", f"{why} {problem}", remedy) for name, problem in misnamed}
        self._notes = template_notes((plan.folder for plan in self.plans.values()), fill)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about all models: changes made to load them, and what a server needs."""
        real = [report.name for report in self.reports if report.kind == "real"]
        callers = [name for name in real if any(map(_OWN_SERVER.search, self.plans[name].sources))]
        served = (
            f"the code of {listed(callers, 6)} names a server on this machine, at Triton's port: if it is the server "
            "of these models, `bls.endpoint(http_port=8000, grpc_port=8001, token='')` runs one here, for any program",
        )
        return self._notes + self._preparation.missing_folders(real) + served * bool(callers)

    @property
    def reports(self) -> tuple[TriedModel, ...]:
        """Reports of the models so far, by name."""
        return tuple(self._reports[name] for name in sorted(self._reports))

    def load_all(self, then: Callable[[Sequence[TriedModel]], Iterable[TriedModel]]) -> tuple[str, ...]:
        """Load or stub every model; return the models that were not tried because of Ctrl-C.

        Without Ctrl-C, `then` gets the reports and returns new ones, under the same conditions for the network.
        """
        self._simulate_missing_gpus()
        left = in_order({name: plan.calls for name, plan in self.plans.items()})
        with offline_if_unreachable(any(plan.uses_hub and plan.may_run for plan in self.plans.values())) as note:
            self._notes += (note,) if note else ()
            try:
                with progress("trying", len(left), "model") as shown:
                    for name in tuple(left):
                        self.load(name)
                        left.remove(name)
                        shown.step()
                self._ask(then)
            except KeyboardInterrupt:
                log.debug("interrupted: %d models were not tried", len(left))
        self._report_missing()
        return tuple(left)

    def _ask(self, then: Callable[[Sequence[TriedModel]], Iterable[TriedModel]]) -> None:
        """Send the generated requests; if a model fails because of a stub's zeros, stubs answer random numbers."""
        reports = {report.name: report for report in then(self.reports)}
        calls = {name: plan.calls for name, plan in self.plans.items()}
        failed = [name for name, r in reports.items() if r.problem and reached(name, calls) & self._stubbed.keys()]
        if failed and self._restub("zeros", "random"):
            others = {report.name: report for report in then(self.reports)}
            if sum(bool(r.problem) for r in others.values()) < sum(bool(r.problem) for r in reports.values()):
                reports = others
                cured = listed([name for name in failed if not others[name].problem], 6)
                self._notes += (f"the stubs answer random numbers, because {cured} fails with zeros",)
            else:
                self._restub("random", "zeros")
        self._reports |= reports

    def _restub(self, old: Values, new: Values) -> bool:
        """Load the stubs again with other values; return whether there are any with the old ones."""
        make = self._make_stub
        self._make_stub = lambda name: replace(make(name), values=new)
        again = [arguments for name, arguments in self._stubbed.items() if make(name).values == old]
        for arguments in again:
            self._repository.unload(arguments[0].name)  # a load keeps a version whose files are unchanged
            self._load_stub(*arguments)
        return bool(again)

    def load(self, name: str) -> None:
        """Load or stub one model."""
        began = perf_counter()
        plan = self.plans[name]
        try:
            report = self._load(plan)
        except Exception as error:  # one model's failure does not stop the others
            log.debug("%s could not be tried", name, exc_info=error)
            report = TriedModel(name, kind="absent", why=first_line(str(error)) or type(error).__name__)
        self._reports[name] = replace(
            report, backend=plan.backend, seconds=perf_counter() - began, calls=tuple(sorted(plan.calls))
        )

    def _simulate_missing_gpus(self) -> None:
        """Simulate as many GPUs as the models need, if the machine has none."""
        wanted = {
            plan.name: max(gpus_in(plan.config), int(plan.takes_cuda))
            for plan in self.plans.values()
            if plan.config is not None and plan.may_run and (plan.runs_code or find_backend(plan.backend) is not None)
        }
        models = [name for name, count in wanted.items() if count]
        if not models:
            return
        most = min(MOST_GPUS, max(wanted.values()))
        existing = gpus()
        if gpu_count() == 0:
            self._notes += (simulated_for(listed(models, 6), most),)
        elif existing is not None and existing.simulated and existing.count < most:
            simulate_gpus(most)

    def _report_missing(self) -> None:
        """Report models that requests name but that have no folder."""
        missing = grouped((name, plan.name) for plan in self.plans.values() for name in plan.named - self.plans.keys())
        for name, callers in missing.items():
            why = f"there is no folder with this name; called by {', '.join(sorted(callers))}"
            remedy = f"write a model in its place: `%%tritonmodel {name}`"
            self._reports[name] = TriedModel(name, "", "absent", why, remedy)

    def _load(self, plan: ModelPlan) -> TriedModel:
        name = plan.name
        if plan.config is None:
            self._host.failed(name, plan.problem)
            remedy = f"correct it, then `%tritonrepo load {name}`"
            return TriedModel(name, kind="absent", why=plan.problem, remedy=remedy)
        reason = self._known_obstacle(plan)
        reason, may_ask = self._load_real(plan) if reason is None else (reason, plan.may_run)
        if reason is None:
            return TriedModel(name, kind="real", why=self._preparation.notes.get(name, ""))
        return self._load_stub(plan, plan.config, reason, may_ask)

    def _known_obstacle(self, plan: ModelPlan) -> FailureReason | None:
        """Return the reason, known from its files, why a model cannot load; None if it may."""
        assert plan.config is not None
        name, backend = plan.name, plan.backend
        if backend == "ensemble":
            steps_of = {
                p.name: members_of(p.config) for p in self.plans.values() if p.backend == "ensemble" and p.config
            }
            if name in reached(name, steps_of):
                return None  # the load explains the cycle
            missing = [step for step in members_of(plan.config) if not self._repository.ready(step)]
            steps = f"its step{'s' * (len(missing) > 1)} {', '.join(missing)} {'are' if len(missing) > 1 else 'is'}"
            return reasons.reason_of("steps", name, steps=steps, first=missing[0]) if missing else None
        if not plan.may_run:
            return reasons.reason_of("kept out", name)
        file = main_file(plan.config, backend, plan.files)
        exists = file is not None and file.exists()
        shown = None if file is None else plan.folder / file.relative_to(plan.files)
        if find_backend(backend) is None:
            try:
                repository = self._repository
                own = python_backend(
                    plan.config, model_folders.backend_folders(repository.paths, repository.backend_directory)
                )
            except Exception:
                own = None
            lacks = "" if exists or shown is None else f", and {shown.parent.name}/{shown.name} is missing"
            case = "backend" if backend else "backend:unknown"
            return None if own is not None else reasons.reason_of(case, name, backend=backend, lacks=lacks)
        if file is not None and shown is not None and (not exists or model_folders.is_pointer(file)):
            return reasons.missing_file(name, shown, exists, backend == "python")
        return None

    def _load_real(self, plan: ModelPlan) -> tuple[FailureReason | None, bool]:
        """Load the real model; return the reason if that failed, and whether its stub may run auto_complete_config."""
        failed = self._attempt(plan)
        if failed is None:
            return None, True
        if failed.kind == "gpu" and plan.runs_code and gpu_count() == 0:  # its code needs a GPU, its config does not
            note = simulated_for(plan.name)
            if self._attempt(plan) is None:
                self._notes += (note,)
                return None, True
            simulate_gpus(0)
        if failed.kind == "gpu" and _simulated() and plan.backend != "ensemble":
            self._preparation.on_cpu.add(plan.name)
            if self._attempt(plan) is None:
                return None, True
            self._preparation.on_cpu.discard(plan.name)
        return failed, failed.kind not in ("time", "package", "module")

    def _attempt(self, plan: ModelPlan) -> FailureReason | None:
        name = plan.name
        pipeline = plan.uses_hub and bool(plan.named)  # without callees, a stub serves as well
        try:
            with byte_tokenizers(pipeline) as bytes_for:
                if not self._load_in_time(name):
                    return reasons.too_slow(name, self._seconds)
            if bytes_for:
                substitute = f"a tokenizer of single bytes replaces {', '.join(bytes_for)}, which is unavailable"
                notes = self._preparation.notes
                notes[name] = "; ".join(filter(None, (notes.get(name), substitute)))
        except BLSError as error:
            fields = {} if plan.config is None else plan.config.parameters
            parameters = {key: fields[key].string_value for key in fields}
            try:
                file = None if plan.config is None else main_file(plan.config, plan.backend, plan.files)
                source = (file or plan.folder / "1" / "model.py").resolve()
                gpu = f"{gpu_count()} {'simulated' if _simulated() else 'here'}" if gpus() else "there is none here"
                reason = reasons.of_error(name, error, source, self._project, gpu, parameters)
            except Exception:  # the methods of a model's exception may fail
                reason = replace(reasons.reason_of("error", name), why=first_line(str(error)))
            reason = self._blameless(plan, reason)
            pointers = model_folders.pointers_in(plan.folder) if reason.kind in ("error", "file") else []
            if not pointers:
                return reason
            pointer = reasons.missing_file(name, pointers[0], True)
            return replace(pointer, why=f"{pointer.why}: {reason.why}")
        return None

    def _load_in_time(self, name: str) -> bool:
        load = partial(self._repository.load, name)
        return finished_within(self._seconds, load) or self._repository.ready(name)

    def _blameless(self, plan: ModelPlan, reason: FailureReason) -> FailureReason:
        """Return the reason; not `broken` if a missing GPU, or a stub without declared tensors, explains the error."""
        if reason.kind != "error" or plan.config is None:
            return reason
        if plan.backend not in ("python", "ensemble") and gpus_in(plan.config) > (0 if _simulated() else gpu_count()):
            return replace(reason, kind="gpu", broken=False)
        steps = [self.plans[step].config for step in members_of(plan.config) if step in self.plans]
        return replace(reason, broken=all(c is not None and c.input and c.output for c in steps))

    def _shapes_for_next_steps(self, name: str) -> dict[str, tuple[int, ...]]:
        """Return the shapes that the next steps of ensembles declare for a model's outputs."""
        shapes: dict[str, tuple[int, ...]] = {}
        configs = {plan.name: plan.config for plan in self.plans.values() if plan.config is not None}
        for config in configs.values():
            steps = config.ensemble_scheduling.step
            outputs = {t: out for step in steps if step.model_name == name for out, t in step.output_map.items()}
            for step in steps if outputs else ():
                if (following := configs.get(step.model_name)) is not None:
                    batch, without = [1] * (following.max_batch_size > 0), int(configs[name].max_batch_size > 0)
                    inputs = {i.name: tuple([*batch, *i.dims][without:]) for i in following.input}
                    shapes |= {outputs[t]: inputs[i] for i, t in step.input_map.items() if t in outputs and i in inputs}
        return shapes

    def _load_stub(
        self, plan: ModelPlan, config: ModelConfigMessage, reason: FailureReason, may_ask: bool
    ) -> TriedModel:
        """Load a model's stub, or report why there is none."""
        name = plan.name
        self._stubbed[name] = plan, config, reason, may_ask
        own: OpenModel | None = open_python if plan.backend == "python" and may_ask else None
        if plan.backend != "python" and may_ask and not (config.input and config.output):
            own = find_backend(plan.backend)
        # A TensorRT engine's outputs are on its GPU, and its callers' code relies on that.
        gpu = 0 if plan.backend == "tensorrt" and gpu_count() else None
        stub = replace(self._make_stub(name), reason=reason.why, asks=own, gpu=gpu)
        shapes = self._shapes_for_next_steps(name)

        def stubbed(source: ModelSource) -> ModelSource:
            if source.name != name:
                return source
            stub_config = as_stub(config, plan.backend, list(model_folders.version_folders(source.folder)))
            for output in stub_config.output:
                if len(sizes := shapes.get(output.name, ())) == len(output.dims) and not output.HasField("reshape"):
                    output.dims[:] = [size if dim == -1 else dim for dim, size in zip(output.dims, sizes, strict=True)]
            return replace(source, config=stub_config, stub=stub, config_is_json=False)

        absent = TriedModel(
            name, kind="absent", why=reason.why, remedy=reason.remedy, broken=reason.broken, unknown=reason.unknown
        )
        undo = self._host.before_load(stubbed)
        try:
            if not self._load_in_time(name):
                return replace(absent, why=f"{reason.why}; a stub cannot replace it: it did not load in time")
        except BLSError as error:
            return replace(absent, why=f"{reason.why}; a stub cannot replace it: {first_line(str(error))}")
        finally:
            undo()
        if not self._repository.record(name).outputs:
            self._repository.unload(name)
            return replace(absent, why=f"{reason.why}; a stub cannot replace it: its configuration names no outputs")
        return replace(absent, kind="stub")


def _simulated() -> bool:
    return getattr(gpus(), "simulated", False)


def simulated_for(who: str, count: int = 1) -> str:
    """Simulate GPUs for models on a machine without any; return a sentence that says so."""
    simulate_gpus(count)
    many = "a GPU is simulated" if count == 1 else f"{count} GPUs are simulated"
    return f"{many} in host memory for {who}: there is none here (`bls.simulate_gpus(0)` ends it)"
