"""One way to refuse a configuration."""

from __future__ import annotations

from typing import NoReturn

from bls_notebook.engine.errors import ConfigError

from .proto import ModelConfigMessage

__all__ = ["refuse"]


def refuse(config: ModelConfigMessage, why: str) -> NoReturn:
    """Raise a ConfigError that names the model and says why in one line."""
    raise ConfigError(f"model '{config.name}': {why}")
