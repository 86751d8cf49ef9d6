"""Python-based backends: `<backend folder>/<name>/model.py` runs every model whose backend has that name.

Mirrors core/src/backend_model.cc (GetBackendLibraryProperties), which looks into ``--backend-directory``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bls_notebook.backends.errors import BackendError
from bls_notebook.backends.registry import backend_names, find_backend, has_runtime
from bls_notebook.engine.errors import ConfigError
from bls_notebook.repository.config import ModelConfigMessage
from bls_notebook.repository.source.layout import BACKENDS, folder_path, shown_path

RUNTIME = "model.py"  # also what `runtime` says in the configuration of a model of such a backend


def backend_path(path: str | Path | None) -> Path | None:
    """Return the whole path of a folder of backends, None where none is given."""
    hint = "give a folder that has the folders of backends in it"
    return None if path is None else folder_path(path, "backend_directory", hint)


def backend_folders(paths: Sequence[Path], given: Path | None) -> tuple[Path, ...]:
    """Return where backends are looked for: where given, else in `backends` beside and in the repository."""
    if given is not None:
        return (given,)
    return tuple(f / BACKENDS for path in paths for f in (path.parent, path)) or (Path.cwd() / BACKENDS,)


def python_backend(config: ModelConfigMessage, folders: Sequence[Path]) -> Path | None:
    """Return the folder of the Python-based backend of a model; None for another backend."""
    name, model, runtime = str(config.backend), config.name, config.runtime
    known = find_backend(name) is not None
    if known and runtime != RUNTIME:
        return None
    looked_for = [folder / name for folder in folders]
    if runtime not in ("", RUNTIME):
        words = f"unable to find backend library '{runtime}' for model '{model}'"
        raise _not_found(words, looked_for)
    # A name, and not a path that leads elsewhere.
    for folder in looked_for if Path(name).name == name else ():
        if (folder / RUNTIME).is_file():
            return folder
    if runtime and has_runtime(name, runtime):
        return None
    if runtime:
        words = f"unable to find Python backend based backend library '{runtime}' for model '{model}'"
        raise _not_found(words, [folder / RUNTIME for folder in looked_for])
    error = ConfigError(
        f"model {model!r}: backend {name!r} is not among the backends here: {', '.join(backend_names())}; "
        f"nor is there a Python-based one ({', '.join(shown_path(f / RUNTIME) for f in looked_for)}); change "
        'backend: "..." in its configuration, or give the folder of backends as backend_directory'
    )
    error.reason = (
        f"Invalid argument: unable to find backend library for backend '{name}', try specifying runtime on "
        "the model configuration."
    )
    raise error


def _not_found(words: str, paths: Sequence[Path]) -> BackendError:
    searched = " ".join(f"'{path}'" for path in paths)
    return BackendError(f"{words}, searched: {searched}", "Invalid argument")
