"""The second step of a trial: load each model, or a stub in its place, and report the reasons."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import TIMEOUT_MAX, Timer
from time import perf_counter
from typing import Any

from bls_notebook.backends import BackendError, environment_at, environment_path, find_backend
from bls_notebook.devices import MOST_GPUS, gpu_count, simulated_gpus
from bls_notebook.engine import BLSError, Operation, WaitInterruptedError, line_behind, place, requester
from bls_notebook.extending import Host
from bls_notebook.progress import progress
from bls_notebook.records import first_line, listed
from bls_notebook.repository import as_stub, gpus_in, main_file, members_of, reached, simulate_gpus
from bls_notebook.repository.config import ModelConfigMessage, environment_parameter, model_config_pb2
from bls_notebook.repository.source import ModelSource, pointers_in

from . import failure_reasons as reasons
from .failure_reasons import FailureReason
from .model_environment import ModelEnvironment
from .observations import MissingFiles, byte_tokenizers
from .trial_plan import ModelPlan, TrialPlan, prepare

log = logging.getLogger("bls_notebook")

_ON_CPU = "its instances are on the CPU, because it did not load on a simulated GPU"
_NO_GPU = "its instances are on the CPU, because GPUs are simulated only with `in_kernel=True` or `--in-kernel`"


@dataclass(frozen=True)
class LoadOutcome:
    """Outcome of loading a model: `kind` as in `TriedModel`; `reason` also describes the changes to a real one."""

    kind: str
    reason: FailureReason
    stub: ModelSource | None = None  # serves in the model's place
    note: str = ""  # about the repository
    seconds: float = 0.0


@dataclass(frozen=True)
class TrialLoad:
    """The outcomes by model; `left` are the models that were not tried because of Ctrl-C."""

    outcomes: Mapping[str, LoadOutcome]
    left: tuple[str, ...]
    notes: tuple[str, ...]


def load_models(host: Host, plan: TrialPlan, missing: MissingFiles) -> TrialLoad:
    """Load or stub the models of a plan; later loads by the user prepare them in the same way."""

    def prepared(source: ModelSource) -> ModelSource:
        source = prepare(source, plan.options, plan.private).source
        model = plan.models.get(source.name)
        uses_hub = model is not None and model.uses_hub
        prelude = None if plan.options.in_kernel else partial(missing.prelude, source, uses_hub)
        return replace(source, **_home(plan, model), prelude=prelude)

    host.before_load(prepared)
    notes = _simulate_missing_gpus(plan)
    outcomes: dict[str, LoadOutcome] = {}
    try:
        with progress("trying", len(plan.models), "model") as shown:
            for name, model in plan.models.items():
                began = perf_counter()
                try:
                    outcome = _load_or_stub(host, plan, model)
                except Exception as error:  # one model's failure does not stop the others
                    log.debug("%s could not be tried", name, exc_info=error)
                    outcome = LoadOutcome("absent", FailureReason(first_line(str(error)) or type(error).__name__, ""))
                outcomes[name] = replace(outcome, seconds=perf_counter() - began)
                shown.step()
    except KeyboardInterrupt:
        log.debug("interrupted: %d of %d models were tried", len(outcomes), len(plan.models))
    left = tuple(name for name in plan.models if name not in outcomes)
    return TrialLoad(outcomes, left, notes + tuple(outcome.note for outcome in outcomes.values() if outcome.note))


def _home(plan: TrialPlan, model: ModelPlan | None) -> dict[str, Any]:
    """Return the fields of a `ModelSource` that say where a model runs."""
    home = {"isolation": plan.options.isolation}
    if model is None or model.backend != "python" or environment_parameter(model.config):
        return home
    return home | {"environment": plan.options.environment}


def load_stub(host: Host, source: ModelSource, seconds: float) -> str:
    """Serve a stub until the model is reloaded; return the reason if that fails."""
    try:
        late = line_at_limit(seconds, partial(host.serve, source))
        if late is not None and not host.repository.ready(source.name):
            return "it did not load in time"
    except BLSError as error:
        return first_line(str(error))
    if not host.repository.model(source.name).outputs:
        host.repository.unload(source.name)
        return "its configuration names no outputs"
    return ""


def _load_or_stub(host: Host, plan: TrialPlan, model: ModelPlan) -> LoadOutcome:
    may_ask = model.may_run
    reason = model.obstacle or _missing_steps(host, plan, model)
    if reason is None:
        outcome = _load_real(host, plan, model)
        if isinstance(outcome, LoadOutcome):
            return outcome
        reason, may_ask = outcome, outcome.kind not in ("time", "package", "module")
    stub = _stub_source(plan, model, reason.why, may_ask)
    if problem := load_stub(host, stub, plan.options.load_timeout):
        more = "" if problem in reason.why else f"; a stub cannot replace it: {problem}"
        return LoadOutcome("absent", replace(reason, why=f"{reason.why}{more}"))
    if model.backend != "vllm" and not model.config.output and stub.parsed_config().output:
        reason = replace(reason, why=f"{reason.why}; its stub has the tensors that its ensembles name")
    return LoadOutcome("stub", reason, stub)


def _missing_steps(host: Host, plan: TrialPlan, model: ModelPlan) -> FailureReason | None:
    """Return the reason if steps of an ensemble are not loaded."""
    if model.backend != "ensemble":
        return None
    steps_of = {p.name: members_of(p.config) for p in plan.models.values() if p.backend == "ensemble"}
    missing = [step for step in members_of(model.config) if not host.repository.ready(step)]
    if not missing or model.name in reached(model.name, steps_of):
        return None  # the load explains a cycle
    steps = f"its step{'s' if len(missing) > 1 else ''} {', '.join(missing)} {'are' if len(missing) > 1 else 'is'}"
    return reasons.reason_of("steps", model.name, steps=steps, first=missing[0])


def _load_real(host: Host, plan: TrialPlan, model: ModelPlan) -> LoadOutcome | FailureReason:
    """Load the real model, if necessary with a simulated GPU or on the CPU; return the reason if that fails."""
    if model.runs_code and not plan.options.in_kernel:
        return _load_in_process(host, plan, model)
    failure = outcome = _attempt(host, plan, model)
    if isinstance(outcome, LoadOutcome) or outcome.kind != "gpu":
        return outcome
    if model.runs_code and gpu_count() == 0:  # its code needs a GPU, its config does not
        note = _simulated_for(model.name)
        outcome = _attempt(host, plan, model)
        if isinstance(outcome, LoadOutcome):
            return replace(outcome, note=note)
        simulate_gpus(0)
    if simulated_gpus() and model.backend != "ensemble":
        outcome = _attempt_on_cpu(host, plan, model, _ON_CPU)
        if isinstance(outcome, LoadOutcome):
            return outcome
    return failure


def _load_in_process(host: Host, plan: TrialPlan, model: ModelPlan) -> LoadOutcome | FailureReason:
    """Load the real model in a process, where no GPU is simulated."""
    if gpu_count() and not simulated_gpus():
        return _attempt(host, plan, model)
    if gpus_in(model.config):
        outcome = _attempt_on_cpu(host, plan, model, _NO_GPU)
    else:
        outcome = _attempt(host, plan, model)
    if isinstance(outcome, LoadOutcome) or outcome.kind != "gpu":
        return outcome
    return replace(reasons.reason_of("gpu:process", model.name), why=outcome.why)


def _attempt_on_cpu(host: Host, plan: TrialPlan, model: ModelPlan, change: str) -> LoadOutcome | FailureReason:
    undo = host.before_load(lambda source: _on_cpu(source) if source.name == model.name else source)
    outcome = _attempt(host, plan, model, change)
    if not isinstance(outcome, LoadOutcome):
        undo()
    return outcome


def _on_cpu(source: ModelSource) -> ModelSource:
    """Return a model's source with its instances on the CPU."""
    config = source.parsed_config()
    for group in config.instance_group or [config.instance_group.add()]:
        group.kind = model_config_pb2().ModelInstanceGroup.KIND_CPU
        group.ClearField("gpus")
    return replace(source, config=config)


def _attempt(host: Host, plan: TrialPlan, model: ModelPlan, *changes: str) -> LoadOutcome | FailureReason:
    """Load the real model once; `changes` are those beside the plan's."""
    name, seconds = model.name, plan.options.load_timeout
    try:
        with byte_tokenizers(model.uses_hub, plan.options.in_kernel) as replaced:
            late = line_at_limit(seconds, partial(host.repository.load, name))
            if late is not None and not host.repository.ready(name):
                return reasons.too_slow(name, seconds, late)
    except BLSError as error:
        return _why_failed(plan, model, error)
    if replaced:
        changes += (f"a tokenizer of single bytes replaces {', '.join(replaced)}, which is unavailable",)
    return LoadOutcome("real", FailureReason("; ".join((*model.prepared.changes, *changes)), ""))


def _why_failed(plan: TrialPlan, model: ModelPlan, error: BLSError) -> FailureReason:
    name, config = model.name, model.config
    parameters = {key: config.parameters[key].string_value for key in config.parameters}
    try:
        gpu = f"{gpu_count()} {'simulated' if simulated_gpus() else 'here'}" if gpu_count() else "there is none here"
        reason = reasons.of_error(name, error, places_of(plan, model), gpu, parameters)
    except Exception:  # the methods of a model's exception may fail
        reason = replace(reasons.reason_of("error", name), why=first_line(str(error)))
    if reason.kind == "error":
        wanted = 0 if model.backend in ("python", "ensemble") else gpus_in(config)
        if wanted > (0 if simulated_gpus() else gpu_count()):
            reason = replace(reason, kind="gpu", broken=False)
        else:  # a stub without declared tensors may explain it
            steps = [plan.models[step].config for step in members_of(config) if step in plan.models]
            reason = replace(reason, broken=all(c.input and c.output for c in steps))
    pointers = pointers_in(model.folder) if reason.kind in ("error", "file") else []
    if not pointers:
        return reason
    pointer = reasons.missing_file(name, pointers[0], True)
    return replace(pointer, why=f"{pointer.why}: {reason.why}")


def places_of(plan: TrialPlan, model: ModelPlan) -> reasons.ModelPlaces:
    """Return the places of a model's files."""
    file = main_file(model.config, model.backend, model.prepared.source.folder)
    source = (file or model.folder / "1" / "model.py").resolve()
    return reasons.ModelPlaces(source, plan.options.folder, plan.options.project, _environment_of(plan, model))


def _environment_of(plan: TrialPlan, model: ModelPlan) -> ModelEnvironment | None:
    """Return the environment of a model's process; None if it is the kernel's, or cannot be used."""
    if plan.options.in_kernel or model.backend != "python":
        return None
    path = environment_path(environment_parameter(model.config), model.folder)
    made = path is None
    if path is None and plan.options.environment:
        path = Path(plan.options.environment)
    with suppress(BackendError):
        return None if path is None else ModelEnvironment(environment_at(path).python, made)
    return None


def _stub_source(plan: TrialPlan, model: ModelPlan, why: str, may_ask: bool) -> ModelSource:
    """Return the source of a model's stub; `may_ask`: the model's `auto_complete_config` may run."""
    is_complete = model.backend != "python" and model.config.input and model.config.output
    own = find_backend(model.backend) if may_ask and not is_complete else None
    # A TensorRT engine's outputs are on its GPU, and its callers' code relies on that.
    gpu = 0 if model.backend == "tensorrt" and gpu_count() else None
    shapes = _shapes_for_next_steps(plan, model.name)
    config = as_stub(model.config, model.backend, list(model.prepared.source.versions))
    if not config.output and not own:
        _add_tensors_of_ensembles(plan, model.name, config)
    for output in config.output:
        if len(sizes := shapes.get(output.name, ())) == len(output.dims) and not output.HasField("reshape"):
            output.dims[:] = [size if dim == -1 else dim for dim, size in zip(output.dims, sizes, strict=True)]
    stub = replace(plan.options.stub(model.name), reason=why, asks=own, gpu=gpu)
    return replace(model.prepared.source, config=config, stub=stub, **_home(plan, model))


def _add_tensors_of_ensembles(plan: TrialPlan, name: str, config: ModelConfigMessage) -> None:
    """Declare the tensors that ensembles map from and to a model, as the other ends of the maps declare them."""
    configs = {model.name: model.config for model in plan.models.values()}
    for ensemble in configs.values():
        steps = ensemble.ensemble_scheduling.step
        known = {tensor.name: (tensor, ensemble) for tensor in (*ensemble.input, *ensemble.output)}
        for step in steps:
            if (other := configs.get(step.model_name)) is not None:
                declared = {tensor.name: tensor for tensor in (*other.input, *other.output)}
                maps = (*step.input_map.items(), *step.output_map.items())
                known |= {tensor: (declared[key], other) for key, tensor in maps if key in declared}
        for step in (step for step in steps if step.model_name == name):
            for tensors, mapped in ((config.input, step.input_map), (config.output, step.output_map)):
                for key, (tensor, owner) in ((k, known[t]) for k, t in mapped.items() if t in known):
                    if key not in {own.name for own in tensors}:
                        shape = [-1, *tensor.dims] if owner.max_batch_size > 0 else list(tensor.dims)
                        dims = shape[1:] if config.max_batch_size > 0 else shape
                        tensors.add(name=key, data_type=tensor.data_type, dims=dims or [-1])


def _shapes_for_next_steps(plan: TrialPlan, name: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes that the next steps of ensembles declare for a model's outputs."""
    shapes: dict[str, tuple[int, ...]] = {}
    configs = {model.name: model.config for model in plan.models.values()}
    for config in configs.values():
        steps = config.ensemble_scheduling.step
        outputs = {t: out for step in steps if step.model_name == name for out, t in step.output_map.items()}
        for step in steps if outputs else ():
            if (following := configs.get(step.model_name)) is not None:
                batch, without = [1] if following.max_batch_size > 0 else [], int(configs[name].max_batch_size > 0)
                inputs = {i.name: tuple([*batch, *i.dims][without:]) for i in following.input}
                shapes |= {outputs[t]: inputs[i] for i, t in step.input_map.items() if t in outputs and i in inputs}
    return shapes


def _simulate_missing_gpus(plan: TrialPlan) -> tuple[str, ...]:
    """Simulate as many GPUs as the models need, if the machine has none; return a note."""
    wanted = {
        name: model.gpus for name, model in sorted(plan.models.items())
        if model.gpus and (plan.options.in_kernel or not model.runs_code)}  # fmt: skip
    count, before = min(MOST_GPUS, max(wanted.values(), default=0)), gpu_count()
    if count and before == 0:
        return (_simulated_for(listed(wanted, 6), count),)
    if count > before and simulated_gpus():
        simulate_gpus(count)
    return ()


def _simulated_for(models: str, count: int = 1) -> str:
    """Simulate GPUs on a machine without any; return a sentence that says so."""
    simulate_gpus(count)
    many = "a GPU is simulated" if count == 1 else f"{count} GPUs are simulated"
    return f"{many} in host memory for {models}: there is none here (`bls.simulate_gpus(0)` ends it)"


def line_at_limit(seconds: float, call: Callable[[], object]) -> str | None:
    """Call a function; return the line of model code that it waited for if the time limit interrupted it, else None.

    It is left at its next wait: code of a model that does not stop then is left behind, as are imports, which nothing
    interrupts. The user's Ctrl-C raises.
    """
    operation, thread, lines = Operation(), requester(), list[str]()

    def interrupt() -> None:
        line = line_behind(thread)
        lines.append("" if line is None else place(line))
        operation.interrupt()

    timer = Timer(min(seconds, TIMEOUT_MAX), interrupt)
    timer.daemon = True
    timer.start()
    try:
        operation.run(call)
    except WaitInterruptedError as error:
        if error.operation is not operation:
            raise
        return lines[0]
    finally:
        timer.cancel()
    return None
