"""`Namespaces`: the models in a repository's folders, with Triton's `--model-namespacing` by folder and name.

Without it, a name in several folders is an error. With it, each folder is a namespace, and a model has the key
``name``, or ``folder::name`` if several folders have the name.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .model_folders import duplicates, find_model, model_names

_SEPARATOR = "::"  # which a model's name cannot contain


def identified(namespace: str, name: str) -> str:
    """Return a model's identifier in Triton's messages."""
    return f"{namespace}{_SEPARATOR}{name}" if namespace else name


def identified_anew(name: str) -> str:
    """Return the key of a model outside the folders whose name several folders have."""
    return f"{_SEPARATOR}{name}"


def model_of(key: str) -> str:
    """Return the name of the model with this key."""
    return key.rpartition(_SEPARATOR)[2]


class Namespaces:
    """The folders of a repository, each a namespace if `enabled`."""

    def __init__(self, paths: tuple[Path, ...], enabled: bool) -> None:
        self.paths = paths
        self.enabled = enabled

    def folders(self, name: str = "") -> list[tuple[str, Path]]:
        """Return keys and folders of the models with this name, by default of all models, folder by folder."""
        twice = duplicates(self.paths) if self.enabled else ()
        paths = ((path, each) for path in dict.fromkeys(self.paths) for each in model_names([path]))
        return [
            (identified(str(path), each) if each in twice else each, path / each)
            for path, each in paths if name in ("", each)
        ]  # fmt: skip

    def keys(self, name: str = "") -> list[str]:
        """Return the keys of the models with this name, by default of all models, each once."""
        return list(dict.fromkeys(key for key, _ in self.folders(name)))

    def find(self, key: str) -> Path:
        """Return the folder of a model; a ModelNotFoundError if there is none, a BLSError if there are several."""
        namespace, separator, name = key.rpartition(_SEPARATOR)
        return find_model([Path(namespace)] if separator else self.paths, name)

    def of(self, folder: Path) -> str:
        """Return the namespace of a model's folder; "" without namespaces."""
        return str(folder.parent) if self.enabled and folder.parent in self.paths else ""

    def duplicates(self) -> set[str]:
        """Return the names that several folders have, although there are no namespaces."""
        return set() if self.enabled else duplicates(self.paths)

    def steps(self, namespace: str, models: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return namespace and key of the models of an ensemble's steps, by name.

        They are models of the ensemble's own namespace, or else the only ones of their names.
        """
        out = {}
        for name in models if namespace else ():
            folders = self.folders(name)
            own = [(key, folder) for key, folder in folders if str(folder.parent) == namespace]
            for key, folder in own or (folders if len(folders) == 1 else ()):
                out[name] = str(folder.parent), key
        return out
