"""What Triton adds to a configuration before the model sees it.

The order is the server's: backend and file name, defaults, a first validation, instance groups; after
`auto_complete` the defaults once more. Values that are set are never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import deepcopy

from bls_notebook.engine.errors import ConfigError

from .instance_groups import complete_instance_groups
from .proto import ModelConfigMessage
from .validate import validate_model

__all__ = ["complete", "fill_defaults"]

_SEQUENCE_IDLE_MICROSECONDS = 1_000_000


# Backends that Triton recognises by their platform, their file name or a file in the version's folder: the
# default file name for each platform, "" for those that go without.
_KNOWN_BACKENDS: dict[str, dict[str, str]] = {
    "tensorrt": {"tensorrt_plan": "model.plan"},
    "onnxruntime": {"onnxruntime_onnx": "model.onnx"},
    "openvino": {"": "model.xml"},
    "pytorch": {"pytorch_libtorch": "model.pt", "torch_aoti": "model.pt2"},
    "python": {"": "model.py"},
}


def complete(
    config: ModelConfigMessage,
    *,
    model: str,
    files: Collection[str] = ("model.py",),
    gpus: int = 0,
    runs_on_gpu: Callable[[str], bool] = lambda backend: True,
) -> ModelConfigMessage:
    """Return a new configuration with everything that Triton fills in without asking the model.

    Parameters
    ----------
    model : str
        Name of the model's folder (or of its cell).
    files : collection of str
        Names in the first version's folder; they tell the backend where the configuration does not.
    gpus : int
        How many GPUs there are, numbered from 0. They decide `KIND_AUTO` and the default instance group.
    runs_on_gpu : callable
        Whether a backend can use them.
    """
    completed = deepcopy(config)
    completed.name = completed.name or model
    if completed.name != model:
        raise ConfigError(
            f"model '{model}': its configuration says name: \"{completed.name}\"; the two must be equal. "
            "Change the name, or leave it out"
        )
    _fill_backend(completed, files)
    fill_defaults(completed)
    validate_model(completed)
    complete_instance_groups(completed, gpus, gpus > 0 and runs_on_gpu(completed.backend))
    if completed.HasField("ensemble_scheduling"):
        # Triton overwrites the policy of an ensemble with that of its members.
        completed.model_transaction_policy.decoupled = False
    return completed


def fill_defaults(config: ModelConfigMessage) -> None:
    """Set, in place, the defaults of version policy, batching and optimization that are not set yet."""
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    batching = config.WhichOneof("scheduling_choice")
    if batching == "dynamic_batching":
        _prefer_full_batches(config.dynamic_batching.preferred_batch_size, config.max_batch_size)
    elif batching == "sequence_batching":
        sequence = config.sequence_batching
        if sequence.max_sequence_idle_microseconds == 0:
            sequence.max_sequence_idle_microseconds = _SEQUENCE_IDLE_MICROSECONDS
        if sequence.HasField("oldest"):
            _prefer_full_batches(sequence.oldest.preferred_batch_size, config.max_batch_size)
    if batching != "ensemble_scheduling":
        optimization = config.optimization
        for pinned in ("input_pinned_memory", "output_pinned_memory"):
            if not optimization.HasField(pinned):
                getattr(optimization, pinned).enable = True


def _prefer_full_batches(preferred: list[int], max_batch_size: int) -> None:
    if not preferred and max_batch_size > 0:
        preferred.append(max_batch_size)


def _fill_backend(config: ModelConfigMessage, files: Collection[str]) -> None:
    if config.platform == "ensemble":
        return
    for backend, filenames in _KNOWN_BACKENDS.items():
        if not config.backend and _recognised(filenames, config, files):
            config.backend = backend
        if config.backend == backend:
            first = next(iter(filenames))
            config.platform = config.platform or first
            named = config.default_model_filename or filenames.get(config.platform, filenames[first])
            config.default_model_filename = named
            return
    if config.backend or config.platform or config.default_model_filename:
        return
    _, dot, named = config.name.partition(".")
    if not dot:
        raise ConfigError(
            f"model '{config.name}': no backend is given and none can be told from its files"
            f"{' (' + ', '.join(sorted(files)) + ')' if files else ''}; "
            'add backend: "python", or platform: "ensemble", to its configuration'
        )
    # A model called model.<backend> names its backend itself.
    config.backend = named
    config.default_model_filename = f"model.{named}"


def _recognised(filenames: dict[str, str], config: ModelConfigMessage, files: Collection[str]) -> bool:
    platform, named = config.platform, config.default_model_filename
    if platform or named:
        return (platform != "" and platform in filenames) or named in filenames.values()
    return any(name in files for name in filenames.values())
