"""One version of an ONNX model while it loads: its file, its sessions, its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bls_notebook.backends.errors import BackendError
from bls_notebook.backends.protocol import VersionFiles
from bls_notebook.pb_utils.model_config import ModelConfig

from .check import check
from .complete import complete, needs_completing
from .instance import OnnxInstance
from .session import new_session, run_options
from .signature import signature_of

_FILE = "model.onnx"


def open_model(files: VersionFiles) -> OnnxModel:
    """Return a model whose file has been found."""
    path = files.folder / (files.filename or _FILE)
    if path.is_dir():  # a graph with files of weights beside it
        path = path / _FILE
    if not path.is_file():
        raise BackendError(f"unable to find '{path}' for model instance '{files.name}'", "Unavailable")
    return OnnxModel(path)


class OnnxModel:
    """One version of an ONNX model.

    Instances of the same kind and device share a session, whose `run` may be called from several threads
    at once: the weights are in memory once, and loading does not take longer with more instances.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._sessions: dict[tuple[str, int], Any] = {}

    def auto_complete_config(self, model_config: ModelConfig) -> ModelConfig:
        """Complete a configuration from the graph, where its inputs or outputs are missing."""
        config = model_config.as_dict()
        if needs_completing(config):
            groups = config.get("instance_group", ())
            gpu = any(group.get("kind") == "KIND_GPU" for group in groups)
            complete(config, signature_of(self._session(config, "GPU" if gpu else "CPU", 0)))
        return model_config

    def make_instance(self, arguments: dict[str, str]) -> OnnxInstance:
        """Return a new instance, its configuration checked against the graph."""
        config = json.loads(arguments["model_config"])
        kind, device = arguments["model_instance_kind"], int(arguments["model_instance_device_id"])
        session = self._session(config, kind, device)
        signature = signature_of(session)
        check(config, signature)
        gpu = device if kind == "GPU" else None
        return OnnxInstance(session, run_options(config), config, signature, gpu)

    def _session(self, config: dict[str, Any], kind: str, device: int) -> Any:
        key = ("GPU", device) if kind == "GPU" else ("CPU", 0)
        if key not in self._sessions:
            self._sessions[key] = new_session(self._file, config, *key)
        return self._sessions[key]
