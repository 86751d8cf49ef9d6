"""Validate a configuration as Triton does: reject the configurations that the server rejects, and no others but
those with over `MAX_DIMS` dimensions.

Covers tensors, reshapes, labels, batch inputs, warm-up samples, batching, sequences and the tensor flow of an ensemble.
(Whether an ensemble's members exist and agree is checked when they are loaded.) `validate_model` is the server's first
check, when it reads the configuration; `validate` is the complete check, after `auto_complete_config`. The checks are
generators of error messages with the wording of the server's log and a remedy; only the first message is raised.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bls_notebook.engine.errors import ConfigError
from bls_notebook.records.measurements import grouped
from bls_notebook.records.models import fits

from .protobuf_message import ModelConfigMessage, model_config_pb2

MAX_DIMS = 1000  # more would make work, and no array has as many; the server has no limit
_SIZES = "must be integer >= 1, or -1 to indicate a variable-size dimension"
_DIM_RULE = "use sizes of at least 1, or -1 for a variable size"


class Problem(str):
    """A problem of a configuration; `reason` is Triton's message."""

    reason: str

    def __new__(cls, problem: str, reason: str) -> Problem:
        new = super().__new__(cls, problem)
        new.reason = reason if ": " in reason else f"Invalid argument: {reason}"
        return new


def tensor_problems(config: ModelConfigMessage, folder: Path | None) -> Iterator[str]:
    """Yield the problems of a model's inputs and outputs that Triton rejects.

    Triton accepts duplicate names, and a model without inputs or outputs.
    """
    formats = model_config_pb2().ModelInput
    for tensor in config.input:
        yield from _of_tensor(config, tensor, "input")
        if tensor.format in (formats.FORMAT_NHWC, formats.FORMAT_NCHW) and len(tensor.dims) != 3:
            has = f"input '{tensor.name}' has an image format but {len(tensor.dims)} dims"
            yield Problem(f"{has}; give it 3, or no format", f"model input NHWC/NCHW require 3 dims for {config.name}")
    for tensor in config.output:
        yield from _of_tensor(config, tensor, "output")
        if tensor.label_filename and folder is not None:
            yield from _of_labels(f"output '{tensor.name}'", tensor.label_filename, folder)
    yield from _of_batch_tensors(config)


def _of_tensor(config: ModelConfigMessage, tensor: Any, direction: str) -> Iterator[str]:
    who, of = f"{direction} '{tensor.name}'", f"for {config.name}"
    if not tensor.name:
        yield Problem(f"an {direction} has no name; give it one", f"model {direction} must specify 'name' {of}")
    if tensor.data_type == 0:
        why = f"{who} has no data_type; set it, for instance to TYPE_FP32"
        yield Problem(why, f"model {who} must specify 'data_type' {of}")
    dims = list(tensor.dims)
    if (most := max(len(dims), len(tensor.reshape.shape))) > MAX_DIMS:
        yield f"{who} has {most:,} dims; NumPy's arrays have at most 64"
        return
    if not dims:
        why = f"{who} has no dims; set them, for instance to [ -1 ]"
        yield Problem(why, f"model {who} must specify 'dims' {of}")
    if any(dim < 1 and dim != -1 for dim in dims):
        yield Problem(f"{who} has dims {dims}; {_DIM_RULE}", f"model {who} dimension {_SIZES} {of}")
    if tensor.HasField("reshape"):
        yield from _of_reshape(config, who, dims, list(tensor.reshape.shape))
    if config.platform != "tensorrt_plan":
        if tensor.is_shape_tensor:
            why = f"{who} is a shape tensor, which only TensorRT models have; leave that out"
            yield Problem(why, f"shape tensors are only supported for TensorRT platform {of}")
        if tensor.is_non_linear_format_io:
            why = f"{who} has a non-linear format, which only TensorRT models have; leave that out"
            yield Problem(why, f"Non-linear IO format is only supported for the TensorRT platform {of}")


def _of_reshape(config: ModelConfigMessage, who: str, dims: list[int], shape: list[int]) -> Iterator[str]:
    if not shape and config.max_batch_size == 0:
        yield Problem(
            f"{who} has an empty reshape, which would make it a scalar in a model that does not batch; "
            "leave reshape out, or set max_batch_size",
            f"model {who} cannot have empty reshape for non-batching model as scalar tensors are not supported "
            f"for {config.name}",
        )
    if any(dim < 1 and dim != -1 for dim in shape):
        reason = f"model {who} reshape dimensions {_SIZES} for {config.name}"
        yield Problem(f"{who} has reshape {shape}; {_DIM_RULE}", reason)
    if _runs(dims) != _runs(shape):
        yield Problem(
            f"{who} has dims {dims} but reshape {shape}; both must have equally many elements, "
            "also between variable sizes",
            f"model {who} has different size for dims and reshape for {config.name}",
        )


def _runs(dims: Sequence[int]) -> list[int]:
    """Return the number of elements of each run of fixed sizes between variable ones."""
    runs = [1]
    for dim in dims:
        if dim == -1:
            runs.append(1)
        else:
            runs[-1] *= dim
    return runs


def _of_labels(who: str, filename: str, folder: Path) -> Iterator[str]:
    path = folder / filename
    if not path.resolve().is_relative_to(folder.resolve()):
        yield f"{who}: label file '{filename}' is outside the model's folder; put it inside"
    if not path.is_file():
        yield Problem(f"{who}: there is no label file {path}; add it, or leave label_filename out", _no_file(path))


def _of_batch_tensors(config: ModelConfigMessage) -> Iterator[str]:
    pb = model_config_pb2()
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for kind, kinds in ("batch_input", pb.BatchInput.Kind), ("batch_output", pb.BatchOutput.Kind):
        for number, batch in enumerate(getattr(config, kind)):
            who = f"{kind}[{number}]"
            if batch.kind not in kinds.values():
                yield f"{who} has kind {batch.kind}; use one of {', '.join(kinds.keys())}"
            if len(batch.source_input) != 1:
                count = f"expects 1 source input, got {len(batch.source_input)} for {config.name}"
                reason = f"{kind.replace('_', ' ')} kind '{kinds.Name(batch.kind)}' {count}"
                yield Problem(f"{who} needs exactly one source_input, got {len(batch.source_input)}", reason)
            elif batch.source_input[0] not in inputs:
                named = f"names source_input '{batch.source_input[0]}'"
                why = f"{who} {named}, which is not an input; use one of {_listed(inputs)}"
                yield Problem(why, f"unknown source input name '{batch.source_input[0]}' for {config.name}")
            if kind == "batch_input" and batch.data_type not in (pb.TYPE_INT32, pb.TYPE_FP32):
                reason = f"batch input data type must be TYPE_INT32 or TYPE_FP32 for {config.name}"
                yield Problem(f"{who} must be of data_type TYPE_INT32 or TYPE_FP32", reason)
            targets = list(batch.target_name) if kind == "batch_output" else []
            for target in targets:
                if target not in outputs:
                    why = f"{who} names '{target}', which is not an output; use one of {_listed(outputs)}"
                    yield Problem(why, f"unknown target output name '{target}' for {config.name}")
                if targets.count(target) > 1:
                    reason = f"target output name '{target}' can only be specified once for {config.name}"
                    yield Problem(f"{who} names output '{target}' twice; keep one of them", reason)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "(there are none)"


def warmup_problems(config: ModelConfigMessage, folder: Path | None) -> Iterator[str]:
    """Yield problems of warm-up samples; samples with batch size 0 are ignored."""
    for number, sample in enumerate(config.model_warmup):
        if sample.batch_size == 0:
            continue
        who = f"model_warmup '{sample.name}'" if sample.name else f"model_warmup[{number}]"
        most = max(1, config.max_batch_size)
        if sample.batch_size > most:
            yield f"{who} has batch_size {sample.batch_size}; the model takes at most {most}"
        inputs = {tensor.name: tensor for tensor in config.input}
        for name, tensor in inputs.items():
            if not tensor.optional and name not in sample.inputs:
                yield f"{who} has no data for input '{name}'; add it to its inputs"
        for name, given in sorted(sample.inputs.items()):
            yield from _of_warmup_input(f"{who}, input '{name}'", given, inputs.get(name), folder)


def _of_warmup_input(where: str, sample: Any, declared: Any, folder: Path | None) -> Iterator[str]:
    types = model_config_pb2().DataType
    dims = list(sample.dims)
    if any(dim < 0 for dim in dims):
        reason = f"warmup setting expects all variable-size dimensions are specified for {where.rpartition(', ')[2]}"
        yield Problem(f"{where} has dims {dims}; a warm-up needs fixed sizes, none of them -1", reason)
    if sample.WhichOneof("input_data_type") is None:
        yield f"{where} has no data; set zero_data: true, random_data: true or input_data_file"
    if sample.input_data_file and folder is not None:
        yield from _of_file(where, folder / "warmup" / sample.input_data_file)
    # A name that is not an input is a control input of a sequence model.
    if declared is None:
        return
    datatype, expected = sample.data_type, declared.data_type
    if datatype != expected:
        yield f"{where} has data_type {types.Name(datatype)}, but the model expects {types.Name(expected)}"
    if not fits(dims, declared.dims):
        yield f"{where} has dims {dims}, but the model expects {list(declared.dims)}"


def _of_file(who: str, path: Path) -> Iterator[str]:
    if not path.is_file():
        yield Problem(f"{who}: there is no file {path}; put the data there", _no_file(path))


def _no_file(path: Path) -> str:
    return f"Internal: failed to open text file for read {path}: No such file or directory"


_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_CORRELATION_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")


def _of_preferred_sizes(config: ModelConfigMessage, sizes: Iterable[int], where: str) -> Iterator[str]:
    for size in sizes:
        if not 0 < size <= config.max_batch_size:
            limit = (
                f"use sizes from 1 to max_batch_size ({config.max_batch_size})"
                if config.max_batch_size > 0
                else "the model does not batch: set max_batch_size, or leave the sizes out"
            )
            yield f"{where}.preferred_batch_size has {size}; {limit}"


def dynamic_batching_problems(config: ModelConfigMessage) -> Iterator[str]:
    """Yield problems of preferred sizes, priorities and queue policies."""
    batching = config.dynamic_batching
    yield from _of_preferred_sizes(config, batching.preferred_batch_size, "dynamic_batching")
    levels = batching.priority_levels
    if levels and not 1 <= batching.default_priority_level <= levels:
        yield (
            f"dynamic_batching.default_priority_level is {batching.default_priority_level}; "
            f"with priority_levels: {levels} it must be from 1 to {levels}"
        )
    for level in batching.priority_queue_policy if levels else ():
        if not 1 <= level <= levels:
            yield (
                f"dynamic_batching.priority_queue_policy has a policy for level {level}; "
                f"with priority_levels: {levels} the levels are 1 to {levels}"
            )
    if not batching.preserve_ordering:
        return
    if levels > 1:
        yield (f"dynamic_batching.preserve_ordering allows one priority level, got {levels}; leave one of the two out")
    delay = model_config_pb2().ModelQueuePolicy.DELAY
    for policy in batching.default_queue_policy, *batching.priority_queue_policy.values():
        if policy.timeout_action == delay and policy.default_timeout_microseconds:
            yield (
                "dynamic_batching.preserve_ordering excludes a queue policy that delays requests; "
                "use timeout_action: REJECT, or leave one of the two out"
            )


def sequence_batching_problems(config: ModelConfigMessage) -> Iterator[str]:
    """Yield problems of control inputs and strategies."""
    sequence = config.sequence_batching
    yield from _of_controls(sequence.control_input)
    if sequence.HasField("oldest"):
        yield from _of_preferred_sizes(config, sequence.oldest.preferred_batch_size, "sequence_batching.oldest")
    utilization = sequence.direct.minimum_slot_utilization
    if utilization < 0.0 or utilization > 1.0:
        yield f"sequence_batching.direct.minimum_slot_utilization is {utilization:g}; it must be from 0 to 1"


def _of_controls(control_inputs: Any) -> Iterator[str]:
    kinds = model_config_pb2().ModelSequenceBatching.Control.Kind
    names: set[str] = set()
    seen: dict[str, str] = {}
    for control_input in control_inputs:
        name = control_input.name
        if not name:
            yield "a sequence_batching.control_input has no name; give it one"
        if name in names:
            yield f"control input '{name}' is listed twice; give each control input its own name"
        names.add(name)
        for control in control_input.control:
            if control.kind not in kinds.values():
                continue
            kind = kinds.Name(control.kind)
            if kind in seen:
                yield f"{kind} is set for control inputs '{seen[kind]}' and '{name}'; keep one"
            seen[kind] = name
            yield from _of_control(f"{kind} of control input '{name}'", kind, control)


def _of_control(who: str, kind: str, control: Any) -> Iterator[str]:
    given = [value for value in _VALUES if len(getattr(control, value))]
    if kind == "CONTROL_SEQUENCE_CORRID":
        if given:
            yield f"{who} takes no {given[0]}; give it a data_type instead"
        types = model_config_pb2().DataType
        named = types.Name(control.data_type) if control.data_type in types.values() else str(control.data_type)
        if named not in _CORRELATION_TYPES:
            yield f"{who} has data_type {named}; use one of {', '.join(_CORRELATION_TYPES)}"
        return
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        yield f"{who} needs exactly one of {', '.join(_VALUES)}; got {got}"
    values = list(getattr(control, given[0]))
    if len(values) != 2:
        yield f"{who}: {given[0]} is {values}; give two values, the one for false and the one for true"


def initial_state_problems(config: ModelConfigMessage, folder: Path | None) -> Iterator[str]:
    """Yield implicit states with an initial state that does not fit."""
    named: set[str] = set()
    for state in config.sequence_batching.state:
        who = f"sequence_batching.state '{state.input_name}'"
        if len(state.initial_state) > 1:
            yield f"{who} has {len(state.initial_state)} initial states; keep one of them"
        for initial in state.initial_state:
            yield from _of_initial_state(who, state, initial, folder)
            if state.input_name in named:
                yield f"{who} is listed twice; give each state its own input_name"
            named.add(state.input_name)


def _of_initial_state(who: str, state: Any, initial: Any, folder: Path | None) -> Iterator[str]:
    if initial.data_type != state.data_type:
        used = f"The data type used for 'initial_state' field of state '{state.input_name}'"
        why = f"{who}: the data_type of its initial_state differs from its own; make them equal"
        yield Problem(why, f"{used} does not match the state data type.")
    if not initial.name:
        reason = f"Field 'name' must be set when using initial_state for state input '{state.input_name}'."
        yield Problem(f"{who}: its initial_state has no name; give it one", reason)
    if min(initial.dims, default=0) < 0 or not fits(initial.dims, state.dims):
        yield (
            f"{who}: dims {list(initial.dims)} of its initial_state do not fit its dims {list(state.dims)}; "
            "use as many, equal where fixed, and none of them -1"
        )
    if initial.WhichOneof("state_data") is None:
        yield f"{who}: its initial_state has no data; set zero_data: true, or data_file"
    if initial.data_file and folder is not None:
        yield from _of_file(who, folder / "initial_state" / initial.data_file)


def ensemble_problems(config: ModelConfigMessage) -> Iterator[str]:
    """Yield problems of an ensemble's steps: each tensor must be written once and used."""
    steps = config.ensemble_scheduling.step
    if config.platform != "ensemble":
        yield 'ensemble_scheduling is only for ensembles; set platform: "ensemble", and no backend'
    if config.instance_group:
        yield (
            f"instance group should not be specified for ensemble '{config.name}'; leave it out (its members "
            "have their own)"
        )
    for name, given in (("optimization", config.HasField("optimization")), ("model_warmup", len(config.model_warmup))):
        if given:
            yield f"an ensemble has no {name}; leave it out (its members have their own)"
    if not steps:
        yield f"must specify 'step' for ensemble '{config.name}'; add one for each model"
    writers: dict[str, int] = {}  # the step that writes each tensor
    for number, step in enumerate(steps):
        where = f"step {number} of ensemble '{config.name}'"
        if not step.model_name:
            yield f"must specify 'model_name' in {where}; name the model that it runs"
        for which in ("input", "output"):
            if not getattr(step, f"{which}_map"):
                yield (
                    f"must specify '{which}_map' in {where}; map the {which}s of '{step.model_name}' to "
                    "tensors of the ensemble"
                )
        for tensor in step.output_map.values():
            if tensor in writers:
                yield (
                    f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble "
                    f"'{config.name}' step {number}; step {writers[tensor]} writes it too: give each output "
                    "a name of its own"
                )
            writers[tensor] = number
    yield from _of_flow(config, writers)


def _of_flow(config: ModelConfigMessage, writers: dict[str, int]) -> Iterator[str]:
    steps = config.ensemble_scheduling.step
    read = {tensor for step in steps for tensor in step.input_map.values()}
    inputs = [tensor.name for tensor in config.input]
    outputs = [tensor.name for tensor in config.output]
    unused = f"for ensemble {config.name}' is not used"  # with one quote, as in Triton's message
    for name in inputs:
        if name not in read and name not in writers:
            yield f"ensemble input '{name}' {unused}; use it in an input_map, or leave it out"
    for name in outputs:
        if name not in read and name not in writers:
            yield f"ensemble output '{name}' {unused}: no step writes it; add it to an output_map"
    lacks = [set(step.input_map.values()) for step in steps]
    readers = grouped((tensor, number) for number, tensors in enumerate(lacks) for tensor in tensors)
    ready: set[str] = set()
    arriving = [*inputs, *(tensor for step in steps if not step.input_map for tensor in step.output_map.values())]
    for tensor in arriving:  # the loop extends `arriving`
        for number in () if tensor in ready else readers.get(tensor, ()):
            lacks[number].discard(tensor)
            arriving += () if lacks[number] else steps[number].output_map.values()
        ready.add(tensor)
    for name in outputs:
        if name not in ready:
            lacking = _lacking(config, name, writers, ready)
            cause = f": at least one of its depending tensors, '{lacking}', is not connected"
            cause = cause if lacking != name else ""
            yield (
                f"output '{name}' for ensemble '{config.name}' is not written{cause}; "
                "connect it to an input or to a step's output"
            )
    for name in sorted((read | writers.keys()) - set(outputs)):
        if name not in ready or name not in read:
            what = "is written but never used" if name in ready else "is never written"
            yield (
                f"ensemble tensor '{name}' is unused in ensemble '{config.name}': it {what}; connect it, or "
                "leave it out"
            )


def _lacking(config: ModelConfigMessage, name: str, writers: dict[str, int], ready: set[str]) -> str:
    """Return the first missing tensor on the way from the inputs to a tensor that is never written."""
    seen = {name}
    while name in writers:
        step = config.ensemble_scheduling.step[writers[name]]
        back = [t for t in sorted(step.input_map.values()) if t not in ready and t not in seen]
        if not back:
            break
        name = back[0]
        seen.add(name)
    return name


# Backends that Triton recognizes by the platform, the file name or a file in the version's folder, with the default
# file name of each platform; the platform "" means none.
KNOWN_BACKENDS: dict[str, dict[str, str]] = {
    "tensorrt": {"tensorrt_plan": "model.plan"},
    "onnxruntime": {"onnxruntime_onnx": "model.onnx"},
    "openvino": {"": "model.xml"},
    "pytorch": {"pytorch_libtorch": "model.pt", "torch_aoti": "model.pt2"},
    "python": {"": "model.py"},
}
_PYTHON_RUNTIMES = frozenset({"", "libtriton_python.so", "triton_python.dll", "model.py"})
_NO_CACHE = "; leave response_cache out"


def refuse(config: ModelConfigMessage, *problems: Iterator[str]) -> None:
    """Raise a ConfigError for the first problem, if there is any."""
    for each in problems:
        for why in each:
            error = ConfigError(f"model '{config.name}': {why}")
            error.reason = why.reason if isinstance(why, Problem) else ""
            raise error


def validate(config: ModelConfigMessage, *, folder: Path | None = None) -> None:
    """Raise a ConfigError if Triton rejects a completed configuration.

    Label, warm-up and initial state files must be in the model's `folder`; without `folder` they are not checked.
    """
    validate_model(config)
    refuse(
        config,
        tensor_problems(config, folder),
        _of_python_backend(config),
        initial_state_problems(config, folder),
        warmup_problems(config, folder),
    )


def validate_model(config: ModelConfigMessage) -> None:
    """Raise a ConfigError if Triton rejects a configuration before it checks the inputs and outputs."""
    refuse(config, _of_backend(config), _of_paths(config), _of_scheduling(config), _of_metrics(config))


def cache_refused(model: str, what: str) -> str:
    """Return Triton's message for a model whose responses cannot be cached."""
    return f"Response Cache does not currently support model {model} with {what}"


def _of_backend(config: ModelConfigMessage) -> Iterator[str]:
    if config.platform == "ensemble":
        if config.backend:
            yield f"an ensemble has no backend, but backend is '{config.backend}'; leave it out"
        return
    if not config.backend:
        problem = f"unknown platform '{config.platform}'" if config.platform else "no backend is given"
        yield f'{problem}; name the backend, for instance backend: "python"'
    allowed = KNOWN_BACKENDS.get(config.backend, {"": ""})
    if "" not in allowed and config.platform not in allowed:
        yield (
            f"platform '{config.platform}' does not belong to backend '{config.backend}'; "
            f"expected {' or '.join(sorted(allowed))}"
        )


def _of_scheduling(config: ModelConfigMessage) -> Iterator[str]:
    if config.max_batch_size < 0:
        yield f"max_batch_size is {config.max_batch_size}; use 0 for no batching, or the largest batch"
    if config.model_repository_agents.agents:
        names = ", ".join(f"'{agent.name}'" for agent in config.model_repository_agents.agents)
        yield f"repository agent {names} is not available here; leave model_repository_agents out"
    scheduling = config.WhichOneof("scheduling_choice")
    caching = config.response_cache.enable
    if scheduling == "dynamic_batching":
        yield from dynamic_batching_problems(config)
    elif scheduling == "sequence_batching":
        if caching:
            yield cache_refused(config.name, "sequence batching scheduler") + _NO_CACHE
        yield from sequence_batching_problems(config)
    elif scheduling == "ensemble_scheduling":
        yield from ensemble_problems(config)
    elif config.platform == "ensemble":
        yield "its platform is ensemble, but it has no ensemble_scheduling; add its steps"
    if caching and config.model_transaction_policy.decoupled:
        yield cache_refused(config.name, "'decoupled' transaction policy") + _NO_CACHE


def _of_python_backend(config: ModelConfigMessage) -> Iterator[str]:
    if config.backend != "python" and config.runtime != "model.py":
        return
    if config.runtime not in _PYTHON_RUNTIMES:
        yield f"the python backend has no runtime '{config.runtime}'; leave runtime out"
    if "FORCE_CPU_ONLY_INPUT_TENSORS" in config.parameters:
        value = config.parameters["FORCE_CPU_ONLY_INPUT_TENSORS"].string_value
        if value not in ("yes", "no"):
            yield f'parameter FORCE_CPU_ONLY_INPUT_TENSORS is \'{value}\'; use "yes" or "no"'
    if "TRITON_BATCH_STRATEGY_PATH" in config.parameters:
        yield (
            "parameter TRITON_BATCH_STRATEGY_PATH names a compiled batching library of the server, "
            "which cannot run here; leave it out"
        )


def _of_metrics(config: ModelConfigMessage) -> Iterator[str]:
    for name in config.metric_tags:
        if not re.fullmatch(r"(?!_)\w*", name, re.ASCII):
            yield f"metric_tags has the name {name!r}, of which a server dies; use letters, digits and, inside, _"
    # Older releases of the message have no model_metrics.
    if "model_metrics" not in config.DESCRIPTOR.fields_by_name:
        return
    for number, control in enumerate(config.model_metrics.metric_control):
        where = f"model_metrics.metric_control[{number}]"
        if not control.metric_identifier.family:
            yield f"{where} names no metric; set metric_identifier {{ family: ... }}"
        if not control.histogram_options.buckets:
            yield f"{where} has no buckets; set histogram_options {{ buckets: [ ... ] }}"


def _of_paths(config: ModelConfigMessage) -> Iterator[str]:
    """Yield paths of files outside the model's folder. (The server accepts them.)"""
    # Of each file: its description, the subfolder in which it is searched, and its name.
    files = [("default_model_filename", "1", config.default_model_filename)]
    files += [(f"cc_model_filenames[{kind!r}]", "1", name) for kind, name in config.cc_model_filenames.items()]
    for sample in config.model_warmup:
        inputs = sample.inputs.items()
        files += [(f"input_data_file of warm-up input '{n}'", "warmup", given.input_data_file) for n, given in inputs]
    for state in config.sequence_batching.state:
        for initial in state.initial_state:
            files.append((f"data_file of state '{state.input_name}'", "initial_state", initial.data_file))
    for what, folder, name in files:
        plain = name.replace("\\", "/")
        whole = posixpath.normpath(posixpath.join(folder, plain))
        if plain.startswith("/") or plain[1:2] == ":" or "\0" in plain or whole.partition("/")[0] == "..":
            yield f"{what} {name!r} leads out of the model's folder; put the file into that folder"
