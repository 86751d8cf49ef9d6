"""What Triton refuses of a completed configuration, and nothing that it accepts but files of other folders.

`validate_model` is the server's check when it reads the configuration; `validate` is the whole, once
the model has had its say. What is wrong is told by generators, a line each with the remedy; the first counts.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import Path

from bls_notebook.engine.errors import ConfigError

from .proto import ModelConfigMessage
from .validate_batching import (
    dynamic_batching_problems,
    initial_state_problems,
    sequence_batching_problems,
)
from .validate_ensemble import ensemble_problems
from .validate_tensors import tensor_problems, warmup_problems

_PLATFORMS = {
    "onnxruntime": {"onnxruntime_onnx"},
    "tensorrt": {"tensorrt_plan"},
    "pytorch": {"pytorch_libtorch", "torch_aoti"},
}
_PYTHON_RUNTIMES = frozenset({"", "libtriton_python.so", "triton_python.dll", "model.py"})
_NO_CACHE = "; leave response_cache out"


def refuse(config: ModelConfigMessage, *problems: Iterator[str]) -> None:
    """Raise a ConfigError that names the model for the first of its problems, if there is any."""
    for each in problems:
        for why in each:
            raise ConfigError(f"model '{config.name}': {why}")


def validate(config: ModelConfigMessage, *, folder: Path | None = None) -> None:
    """Raise a ConfigError for whatever Triton refuses to load of a completed configuration.

    Label, warm-up and initial state files are looked for in the model's `folder`; without it they are not
    checked.
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
    """Raise for what Triton refuses of a configuration before it looks at inputs and outputs."""
    refuse(config, _of_backend(config), _of_paths(config), _of_scheduling(config), _of_metrics(config))


def cache_refused(model: str, what: str) -> str:
    """Return Triton's words for a model whose responses cannot be cached."""
    return f"Response Cache does not currently support model {model} with {what}"


def _of_backend(config: ModelConfigMessage) -> Iterator[str]:
    if config.platform == "ensemble":
        if config.backend:
            yield f"an ensemble has no backend, but backend is '{config.backend}'; leave it out"
        return
    if not config.backend:
        what = f"unknown platform '{config.platform}'" if config.platform else "no backend is given"
        yield f'{what}; name the backend, for instance backend: "python"'
    allowed = _PLATFORMS.get(config.backend)
    if allowed is not None and config.platform not in allowed:
        yield (
            f"platform '{config.platform}' does not belong to backend '{config.backend}'; "
            f"expected {' or '.join(sorted(allowed))}"
        )


def _of_scheduling(config: ModelConfigMessage) -> Iterator[str]:
    if config.max_batch_size < 0:
        yield f"max_batch_size is {config.max_batch_size}; use 0 for no batching, or the largest batch"
    if config.model_repository_agents.agents:
        names = ", ".join(f"'{agent.name}'" for agent in config.model_repository_agents.agents)
        yield f"there is no repository agent {names} here; leave model_repository_agents out"
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
    # Older releases of the message have no model_metrics.
    if "model_metrics" not in config.DESCRIPTOR.fields_by_name:
        return
    for number, control in enumerate(config.model_metrics.metric_control):
        where = f"model_metrics.metric_control[{number}]"
        if not control.metric_identifier.family:
            yield f"{where} names no metric; set metric_identifier {{ family: ... }}"
        if not control.histogram_options.buckets:
            yield f"{where} has no buckets; set histogram_options {{ buckets: [ ... ] }}"


# -- files lie in the model's folder; the server takes them from anywhere ------------------------------


def _of_paths(config: ModelConfigMessage) -> Iterator[str]:
    for what, folder, name in _named(config):
        plain = name.replace("\\", "/")
        whole = posixpath.normpath(posixpath.join(folder, plain))
        if plain.startswith("/") or plain[1:2] == ":" or "\0" in plain or whole.partition("/")[0] == "..":
            yield f"{what} {name!r} leads out of the model's folder; put the file into that folder"


def _named(config: ModelConfigMessage) -> Iterator[tuple[str, str, str]]:
    """What each file is, the folder below the model's that it is looked for in, and its name."""
    yield "default_model_filename", "1", config.default_model_filename
    for capability, name in config.cc_model_filenames.items():
        yield f"cc_model_filenames[{capability!r}]", "1", name
    for sample in config.model_warmup:
        for name, given in sample.inputs.items():
            yield f"input_data_file of warm-up input '{name}'", "warmup", given.input_data_file
    for state in config.sequence_batching.state:
        for initial in state.initial_state:
            yield f"data_file of state '{state.input_name}'", "initial_state", initial.data_file
