"""The parameters of a configuration that the backend reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bls_notebook.backends.completed import truth, whole

# They set what all of a process's PyTorch does; on a server that process is Triton's own.
_OF_THE_PROCESS = {
    "ENABLE_TENSOR_FUSER": truth,
    "ENABLE_JIT_PROFILING": truth,
    "ENABLE_JIT_EXECUTOR": truth,
    "INTRA_OP_THREAD_COUNT": whole,
    "INTER_OP_THREAD_COUNT": whole,
    "NUM_THREADS": whole,  # these two for modules in Python
    "NUM_INTEROP_THREADS": whole,
}


@dataclass(frozen=True)
class Settings:
    """How a model is run; `warnings` say which parameters are not applied here."""

    optimized: bool
    cache_cleaning: bool
    inference_mode: bool
    cudnn: bool
    weight_sharing: bool
    warnings: tuple[str, ...]


def settings_of(config: dict[str, Any]) -> Settings:
    """Return the settings of a completed configuration; a BackendError for a text that is none."""
    given = [key for key, read in _OF_THE_PROCESS.items() if read(config, key) is not None]
    warning = (
        f"model '{config['name']}': not applied here: {', '.join(given)}. On a server it sets up the process "
        "that runs the model; here that is the notebook, whose own PyTorch it would change"
    )
    return Settings(
        optimized=not truth(config, "DISABLE_OPTIMIZED_EXECUTION"),
        cache_cleaning=bool(truth(config, "ENABLE_CACHE_CLEANING")),
        inference_mode=truth(config, "INFERENCE_MODE") is not False,
        cudnn=not truth(config, "DISABLE_CUDNN"),
        weight_sharing=bool(truth(config, "ENABLE_WEIGHT_SHARING")),
        warnings=(warning,) if given else (),
    )
