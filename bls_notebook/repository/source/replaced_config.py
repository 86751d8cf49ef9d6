"""The configuration that a cell keeps from the model on disk, or its stub, that the cell replaces."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bls_notebook.records.regular_file import MAX_CODE, read_file
from bls_notebook.repository.config import ModelConfigMessage, parse_config

_OF_ENGINES = ("platform", "cc_model_filenames", "runtime", "optimization", "ensemble_scheduling")


@dataclass(frozen=True)
class ReplacedConfig:
    """The configuration of a replaced model, for a Python model of one version.

    `folder` is the replaced model's, `origin` says where the configuration is written. A stub's `stays` for the next
    definitions of the model; that of a model on disk is read again.
    """

    config: ModelConfigMessage
    folder: Path
    origin: str
    stays: bool = False

    def changed(self, options: Mapping[str, Any]) -> ModelConfigMessage:
        """Return the configuration with the fields of `options` in place of its own."""
        config = deepcopy(self.config)
        for field in options:
            config.ClearField(field)
        config.MergeFrom(parse_config(options, model=config.name))
        return config

    def files(self) -> dict[str, bytes]:
        """Return the contents of the files that the configuration names, by path in the model's folder."""
        names = {tensor.label_filename for tensor in self.config.output}
        for sample in self.config.model_warmup:
            names |= {f"warmup/{given.input_data_file}" for given in sample.inputs.values() if given.input_data_file}
        for state in self.config.sequence_batching.state:
            names |= {f"initial_state/{initial.data_file}" for initial in state.initial_state if initial.data_file}
        inside = [name for name in names if name and (self.folder / name).resolve().is_relative_to(self.folder)]
        return {name: read_file(self.folder / name, MAX_CODE) for name in inside if (self.folder / name).is_file()}


def replaced_config(
    config: ModelConfigMessage, name: str, backend: str, folder: Path, origin: str, stays: bool = False
) -> ReplacedConfig:
    """Return what a cell keeps of a configuration: everything that does not belong to other versions or engines."""
    kept = deepcopy(config)
    kept.name = name
    kept.ClearField("version_policy")
    kept.ClearField("default_model_filename")
    if backend != "python":
        kept.backend = "python"
        for field in _OF_ENGINES:
            if field in kept.DESCRIPTOR.fields_by_name:
                kept.ClearField(field)
        for group in kept.instance_group:  # the devices of the engine
            for field in ("kind", "gpus", "profile", "secondary_devices"):
                group.ClearField(field)
        for tensor in (*kept.input, *kept.output):
            tensor.is_shape_tensor = tensor.is_non_linear_format_io = False
    return ReplacedConfig(kept, folder.resolve(), origin, stays)
