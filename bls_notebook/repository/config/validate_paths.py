"""Files that a configuration names lie in the model's folder. (The server takes them from anywhere.)"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from .proto import ModelConfigMessage
from .refuse import refuse

__all__ = ["validate_paths"]


def validate_paths(config: ModelConfigMessage) -> None:
    """Raise for a file name that leads out of the model's folder."""
    for what, folder, name in _named(config):
        if _leads_out(folder, name):
            refuse(config, f"{what} {name!r} leads out of the model's folder; put the file into that folder")


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


def _leads_out(folder: str, name: str) -> bool:
    plain = name.replace("\\", "/")
    if plain.startswith("/") or plain[1:2] == ":" or "\0" in plain:
        return True
    return posixpath.normpath(posixpath.join(folder, plain)).partition("/")[0] == ".."
