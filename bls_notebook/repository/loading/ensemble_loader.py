"""Loads a version of an ensemble: no code and no instances, but steps that must fit together."""

from __future__ import annotations

from pathlib import Path

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.schedulers.choose import scheduler_for
from bls_notebook.repository.config import ModelConfigMessage, model_spec

from .ensembles import check_members

__all__ = ["load_ensemble"]


def load_ensemble(server: Server, config: ModelConfigMessage, version: int, folder: Path) -> LoadedModel:
    """Return a version of an ensemble whose members are loaded.

    Parameters
    ----------
    config : ModelConfig
        Completed and validated; its transaction policy becomes that of its members.

    Raises
    ------
    ModelLoadError
        The steps do not fit together.
    """

    def find(name: str, number: int) -> ModelSpec | None:
        model = server.find(name, number)
        return None if model is None else model.spec

    spec = model_spec(config)
    if check_members(spec, find):
        config.model_transaction_policy.decoupled = True
        spec = model_spec(config)
    model = LoadedModel(server, spec, version, str(folder), [])
    model.scheduler = scheduler_for(model)
    return model
