"""What Triton refuses of a completed configuration, and nothing that it accepts but files of other folders.

`validate_model` is the server's check when it reads the configuration; `validate` is the whole, once
the model has had its say. Each error is one line with the remedy.
"""

from __future__ import annotations

from pathlib import Path

from .proto import ModelConfigMessage
from .refuse import refuse
from .validate_batching import validate_dynamic_batching
from .validate_ensemble import validate_ensemble
from .validate_paths import validate_paths
from .validate_sequence import validate_initial_states, validate_sequence_batching
from .validate_tensors import validate_tensors
from .validate_warmup import validate_warmup

__all__ = ["cache_refused", "validate", "validate_model"]

_PLATFORMS = {
    "onnxruntime": {"onnxruntime_onnx"},
    "tensorrt": {"tensorrt_plan"},
    "pytorch": {"pytorch_libtorch", "torch_aoti"},
}
_PYTHON_RUNTIMES = frozenset({"", "libtriton_python.so", "triton_python.dll", "model.py"})
_NO_CACHE = "; leave response_cache out"


def validate(config: ModelConfigMessage, *, folder: Path | None = None) -> None:
    """Raise for whatever Triton refuses to load.

    Parameters
    ----------
    config : ModelConfig
        Completed, with the model's own completion merged in.
    folder : Path, optional
        The model's folder, in which label, warm-up and initial state files are looked for.
        Without it such files are not checked.

    Raises
    ------
    ConfigError
        One line: what is wrong, and what to do.
    """
    validate_model(config)
    validate_tensors(config, folder)
    if config.backend == "python" or config.runtime == "model.py":
        _validate_python_backend(config)
    if config.HasField("sequence_batching"):
        validate_initial_states(config, folder)
    validate_warmup(config, folder)


def validate_model(config: ModelConfigMessage) -> None:
    """Raise for what Triton refuses of a configuration before it looks at inputs and outputs."""
    _validate_backend(config)
    validate_paths(config)
    if config.max_batch_size < 0:
        refuse(
            config, f"max_batch_size is {config.max_batch_size}; use 0 for no batching, or the largest batch"
        )
    if config.model_repository_agents.agents:
        names = ", ".join(f"'{agent.name}'" for agent in config.model_repository_agents.agents)
        refuse(config, f"there is no repository agent {names} here; leave model_repository_agents out")
    scheduling = config.WhichOneof("scheduling_choice")
    caching = config.response_cache.enable
    if scheduling == "dynamic_batching":
        validate_dynamic_batching(config)
    elif scheduling == "sequence_batching":
        if caching:
            refuse(config, cache_refused(config.name, "sequence batching scheduler") + _NO_CACHE)
        validate_sequence_batching(config)
    elif scheduling == "ensemble_scheduling":
        validate_ensemble(config)
    elif config.platform == "ensemble":
        refuse(config, "its platform is ensemble, but it has no ensemble_scheduling; add its steps")
    if caching and config.model_transaction_policy.decoupled:
        refuse(config, cache_refused(config.name, "'decoupled' transaction policy") + _NO_CACHE)
    _validate_metrics(config)


def cache_refused(model: str, what: str) -> str:
    """Return Triton's words for a model whose responses cannot be cached."""
    return f"Response Cache does not currently support model {model} with {what}"


def _validate_backend(config: ModelConfigMessage) -> None:
    if config.platform == "ensemble":
        if config.backend:
            refuse(config, f"an ensemble has no backend, but backend is '{config.backend}'; leave it out")
        return
    if not config.backend:
        what = f"unknown platform '{config.platform}'" if config.platform else "no backend is given"
        refuse(config, f'{what}; name the backend, for instance backend: "python"')
    allowed = _PLATFORMS.get(config.backend)
    if allowed is not None and config.platform not in allowed:
        refuse(
            config,
            f"platform '{config.platform}' does not belong to backend '{config.backend}'; "
            f"expected {' or '.join(sorted(allowed))}",
        )


def _validate_python_backend(config: ModelConfigMessage) -> None:
    if config.runtime not in _PYTHON_RUNTIMES:
        refuse(config, f"the python backend has no runtime '{config.runtime}'; leave runtime out")
    if "FORCE_CPU_ONLY_INPUT_TENSORS" in config.parameters:
        value = config.parameters["FORCE_CPU_ONLY_INPUT_TENSORS"].string_value
        if value not in ("yes", "no"):
            refuse(config, f'parameter FORCE_CPU_ONLY_INPUT_TENSORS is \'{value}\'; use "yes" or "no"')
    if "TRITON_BATCH_STRATEGY_PATH" in config.parameters:
        refuse(
            config,
            "parameter TRITON_BATCH_STRATEGY_PATH names a compiled batching library of the server, "
            "which cannot run here; leave it out",
        )


def _validate_metrics(config: ModelConfigMessage) -> None:
    # Older releases of the message have no model_metrics.
    if "model_metrics" not in config.DESCRIPTOR.fields_by_name:
        return
    for number, control in enumerate(config.model_metrics.metric_control):
        where = f"model_metrics.metric_control[{number}]"
        if not control.metric_identifier.family:
            refuse(config, f"{where} names no metric; set metric_identifier {{ family: ... }}")
        if not control.histogram_options.buckets:
            refuse(config, f"{where} has no buckets; set histogram_options {{ buckets: [ ... ] }}")
