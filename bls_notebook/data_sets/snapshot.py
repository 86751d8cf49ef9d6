"""`Snapshot`: a model with everything that it calls, as source text that other processes open.

Guarantees: a snapshot does not change when models are redefined. A process opens it once, on first use, and closes it
at exit; `opened` may be called from several threads. Of a folder, only paths and hashes travel, and a file that has
changed is refused. Secrets do not travel: neither the files that `export` leaves out nor the headers of remote servers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bls_notebook.engine import BLSError
from bls_notebook.extending import host_of
from bls_notebook.network.connection import connect
from bls_notebook.network.kserve.address import Address
from bls_notebook.network.remote_models import ServerModel
from bls_notebook.records import size
from bls_notebook.repository import ModelRepository, in_order
from bls_notebook.shipping.exporter import export
from bls_notebook.shipping.exports.folder_writer import exported_hashes, file_hash
from bls_notebook.shipping.records import Exported

LIMIT = 64 << 20
"""Most bytes of files that travel with a function."""


@dataclass(frozen=True)
class RemoteServerModels:
    """Models of a remote server: its URL, their names here by their names there, headers, and options of `connect`."""

    url: str
    names: Mapping[str, str]
    headers: tuple[str, ...]
    options: Mapping[str, Any]

    def connect(self, repository: ModelRepository) -> None:
        headers = {}
        for header in self.headers:
            variable = "BLS_NOTEBOOK_" + re.sub(r"\W", "_", f"{self.url.partition('//')[2]}_{header}").upper()
            if variable not in os.environ:
                raise BLSError(
                    f"{self.url}: its header {header!r} does not travel with the function; set the environment "
                    f"variable {variable} in each worker process"
                )
            headers[header] = os.environ[variable]
        connect(self.url, *self.names, repo=repository, names=self.names, headers=headers, **self.options)


@dataclass(frozen=True)
class Snapshot:
    """Models and their files; `take` makes one.

    `models` are loaded in this order, with their isolation. `files` have the contents, or `folder` contains them;
    `hashes` are known. Plain types only: another version of Python opens the pickle.
    """

    digest: str
    models: tuple[tuple[str, str | None], ...]
    hashes: Mapping[str, str]
    remotes: tuple[RemoteServerModels, ...]
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    folder: str = ""
    warnings: tuple[str, ...] = ()

    def open(self) -> ModelRepository:
        """Return a new repository with the loaded models."""
        repository = ModelRepository()
        try:
            host = host_of(repository)
            folder = Path(self.folder) if self.folder else host.add_folder()
            for path, content in self.files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
            self._verify(folder)
            host.add_folder(folder)
            for remote in self.remotes:
                remote.connect(repository)
            for name, isolation in self.models:
                repository.load(name, isolation=isolation)
        except BaseException:
            repository.close()
            raise
        return repository

    def _verify(self, folder: Path) -> None:
        for path, expected in self.hashes.items():
            try:
                found = file_hash(folder / path)
            except OSError as error:
                raise BLSError(
                    f"{folder / path} cannot be read here: {error.strerror}; folder= must be a folder that every "
                    "worker has under the same path"
                ) from error
            if found != expected:
                raise BLSError(f"{folder / path} has changed since the function was made; make the function again")


def take(name: str, repo: ModelRepository | None, folder: str | Path | None = None, limit: int = LIMIT) -> Snapshot:
    """Return a snapshot of a loaded model and of everything that it calls.

    Without `folder`, which all workers share, the files travel, at most `limit` bytes.

    Raises
    ------
    BLSError
        The model cannot be exported, or is larger than `limit` and no `folder` was given.
    """
    host = host_of(repo)
    host.ready(name)
    is_remote = isinstance(host.source(name, loaded=True).remote, ServerModel)
    if folder is not None and not Path(folder).is_dir():
        raise BLSError(f"folder: got {str(folder)!r}, expected a folder that exists and that all workers share")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".bls-") as place:
        target = Path(place) / "models"
        record = Exported("") if is_remote else export(target, name, repo=host.repository)
        hashes = {path: digest for path, digest in exported_hashes(target).items() if "/" in path}  # of models
        total = sum(os.path.getsize(target / path) for path in hashes)
        if folder is None and total > limit:
            raise BLSError(
                f"model {name!r} and the models that it calls have {size(total)} of files, and at most {size(limit)} "
                "travel with a function (limit=); give folder=, a folder that all workers share"
            )
        needs = {model.name: (*model.calls, *model.loads) for model in record.models if model.at_start}
        here = [each for each in in_order(needs) if host.find(each) is not None]
        models = tuple((each, host.source(each, loaded=True).isolation or None) for each in here)
        servers: list[tuple[Address, dict[str, str]]] = []
        for each in [name] if is_remote else dict.fromkeys(name for name, _ in record.elsewhere):
            model = host.source(each, loaded=True).remote
            assert isinstance(model, ServerModel)
            names = next((names for address, names in servers if address == model.server.address), None)
            if names is None:
                servers.append((model.server.address, names := {}))
            names[model.name] = each
        remotes = tuple(_remote_models(address, names) for address, names in servers)
        digest = hashlib.sha256(json.dumps([hashes, models, [asdict(each) for each in remotes]]).encode()).hexdigest()
        snapshot = Snapshot(digest, models, hashes, remotes, warnings=record.warnings)
        if folder is None or is_remote:
            return replace(snapshot, files={path: (target / path).read_bytes() for path in hashes})
        kept = Path(folder).resolve() / f"{name}-{digest[:16]}"
        if not kept.exists():
            target.rename(kept)
        return replace(snapshot, folder=str(kept))


def _remote_models(address: Address, names: dict[str, str]) -> RemoteServerModels:
    files = {option: str(file) for option, file in asdict(address.tls).items() if file}
    return RemoteServerModels(str(address), names, tuple(address.headers), {"timeout": address.timeout, **files})


_opened: dict[str, ModelRepository] = {}
_lock = threading.Lock()


def _forget() -> None:
    """In a forked child, the repositories belong to the parent."""
    global _lock
    _lock = threading.Lock()
    _opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def opened(snapshot: Snapshot) -> ModelRepository:
    """Return the repository of a snapshot, which this process opens once."""
    with _lock:
        repository = _opened.get(snapshot.digest)
        if repository is None or repository.closed:
            repository = _opened[snapshot.digest] = snapshot.open()
        return repository
