"""What the rest asks of a backend. Adding a backend is one module with an `open_model`.

The order at load, as on Triton: `open_model` finds the files of one version; `auto_complete_config` fills
in its configuration; `make_instance` is called for each instance of the completed configuration. Then
the engine calls `execute`, on any thread, never twice at a time in one instance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from bls_notebook.pb_utils.model_config import ModelConfig
from bls_notebook.pb_utils.request import InferenceRequest


class Modules(Protocol):
    """A private import system, in which one instance's Python files live."""

    def load(self, name: str, file: Path) -> ModuleType:
        """Import a file as a module of that name."""

    def forget(self) -> None:
        """Let go of the modules."""


@dataclass(frozen=True)
class VersionFiles:
    """Where one version of a model is.

    Attributes
    ----------
    name : str
        Of the model.
    version : int
    model_folder, folder : Path
        The model's folder, and its version's.
    filename : str
        `default_model_filename` of the configuration; may be empty.
    new_modules : callable
        Returns a new import system, for backends that run Python files.
    backend_folder : Path or None
        Of a Python-based backend: its folder, whose model.py runs the model.
    runtime : str
        What the configuration names as the backend's runtime; may be empty.
    """

    name: str
    version: int
    model_folder: Path
    folder: Path
    filename: str
    new_modules: Callable[[], Modules]
    backend_folder: Path | None = None
    runtime: str = ""


class BackendInstance(Protocol):
    """One loaded instance of a model.

    One that has `takes_gpu`, and it is true, gets inputs where they are, be that a GPU; all others, those of
    Python models apart, get them on the CPU.
    """

    is_async: bool

    def execute(self, requests: list[InferenceRequest]) -> Any:
        """Return a list of responses, None where they are sent another way, or a coroutine of these."""

    def finalize(self) -> None:
        """Let go of everything; called once, when no request is in flight."""

    def ready(self) -> bool:
        """Whether the instance says that it can serve."""


class BackendModel(Protocol):
    """One version of a model while it is being loaded.

    It may have `warnings`, a tuple of lines that are shown with the model once it is loaded: what its
    configuration asks for and is not done here.
    """

    @property
    def auto_complete_config(self) -> Callable[[ModelConfig], ModelConfig] | None:
        """Completes a configuration, and returns it; None where there is nothing to ask.

        Only the largest batch size, inputs, outputs, a scheduler and the transaction policy count.
        """

    def make_instance(self, arguments: dict[str, str]) -> BackendInstance:
        """Return a new instance, initialized.

        Parameters
        ----------
        arguments : dict of str to str
            What a Python model's `initialize` gets: ``model_config`` is the completed configuration as
            JSON, ``model_instance_kind`` is ``CPU``, ``GPU`` or ``MODEL``.
        """


class OpenModel(Protocol):
    """A backend's `open_model`."""

    def __call__(self, files: VersionFiles) -> BackendModel:
        """Open one version of a model.

        Raises
        ------
        BackendError
            The files are not there, or something that the backend needs is not installed.
        """
