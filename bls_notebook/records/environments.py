"""The record of an environment that `repo.environment` has made."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Record


@dataclass(frozen=True, slots=True, repr=False)
class EnvironmentRecord(Record):
    """A Python environment for models in processes; `path` can be the value of ``EXECUTION_ENV_PATH``.

    `packages` are the installed ones (``numpy==1.26.4``), `requests` the requirements that led to them. `users` are
    models in service here, and other processes that run models in it now.
    """

    name: str
    path: str
    python: str
    packages: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    bytes: int = 0
    users: tuple[str, ...] = ()
