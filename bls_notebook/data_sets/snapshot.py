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
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bls_notebook.engine import BLSError
from bls_notebook.extending import Host, host_of
from bls_notebook.network.connection import connect
from bls_notebook.network.kserve.address import Address
from bls_notebook.network.remote_models import ServerModel
from bls_notebook.records import size
from bls_notebook.repository import ModelRepository, in_order
from bls_notebook.repository.source import ModelSource
from bls_notebook.shipping.exporter import export
from bls_notebook.shipping.exports.folder_writer import exported_hashes, file_hash
from bls_notebook.shipping.records import Exported

LIMIT = 64 << 20
"""Most bytes of files that travel with a function."""

MOST_OPEN = 4
"""Snapshots that stay open in a process besides those that serve a call."""


@dataclass(frozen=True)
class RemoteServerModels:
    """Models of a remote server: its URL, their names there by their names here, and the names of its headers."""

    url: str
    names: tuple[tuple[str, str], ...]
    headers: tuple[str, ...]
    timeout: float | None
    tls: tuple[str, ...]

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
        root, key, chain = (file or None for file in self.tls)
        remotes = [remote for _, remote in self.names]
        connect(
            self.url, *remotes, repo=repository, names={remote: name for name, remote in self.names},
            headers=headers, timeout=self.timeout, root_certificates=root, private_key=key, certificate_chain=chain,
        )  # fmt: skip


@dataclass(frozen=True)
class Snapshot:
    """Models and their files; `take` makes one.

    `models` are loaded in this order. `files` have the contents, or `folder` contains them and `hashes` are known.
    """

    digest: str
    models: tuple[str, ...]
    isolations: tuple[tuple[str, str], ...]
    hashes: tuple[tuple[str, str], ...]
    remotes: tuple[RemoteServerModels, ...]
    files: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    folder: str = ""
    warnings: tuple[str, ...] = ()

    def open(self) -> ModelRepository:
        """Return a new repository with the loaded models."""
        repository = ModelRepository()
        try:
            host = host_of(repository)
            folder = self._verified_folder() if self.folder else self._written(host.add_folder())
            host.add_folder(folder)
            isolations = dict(self.isolations)

            def isolated(source: ModelSource) -> ModelSource:
                return replace(source, isolation=isolations.get(source.name, source.isolation))

            host.before_load(isolated)
            for remote in self.remotes:
                remote.connect(repository)
            for name in self.models:
                repository.load(name)
        except BaseException:
            repository.close()
            raise
        return repository

    def _written(self, folder: Path) -> Path:
        for path, content in self.files:
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return folder

    def _verified_folder(self) -> Path:
        folder = Path(self.folder)
        for path, expected in self.hashes:
            try:
                found = file_hash(folder / path)
            except OSError as error:
                raise BLSError(
                    f"{folder / path} cannot be read here: {error.strerror}; folder= must be a folder that every "
                    "worker has under the same path"
                ) from error
            if found != expected:
                raise BLSError(f"{folder / path} has changed since the function was made; make the function again")
        return folder


def take(name: str, repo: ModelRepository | None, folder: str | Path | None = None, limit: int = LIMIT) -> Snapshot:
    """Return a snapshot of a loaded model and of everything that it calls.

    Parameters
    ----------
    name : str
    repo : ModelRepository, optional
        Default: the current repository.
    folder : str or Path, optional
        A folder that all workers share: the files are written into a sub-folder of it and do not travel.
    limit : int
        Most bytes of files that travel.

    Raises
    ------
    BLSError
        The model cannot be exported, or is larger than `limit` and no `folder` was given.
    """
    host = host_of(repo)
    host.ready(name)
    source = host.source(name, loaded=True)
    if isinstance(source.remote, ServerModel):
        return _of(Exported(""), (), host, (name,))
    if folder is not None and not Path(folder).is_dir():
        raise BLSError(f"folder: got {str(folder)!r}, expected a folder that exists and that all workers share")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".bls-") as place:
        target = Path(place) / "models"
        record = export(target, name, repo=host.repository)
        paths = sorted(path for path in target.glob("*/**/*") if path.is_file())
        contents = {path.relative_to(target).as_posix(): path for path in paths}
        total = sum(path.stat().st_size for path in paths)
        if folder is None and total > limit:
            raise BLSError(
                f"model {name!r} and the models that it calls have {size(total)} of files, and at most {size(limit)} "
                "travel with a function (limit=); give folder=, a folder that all workers share"
            )
        written = exported_hashes(target)
        snapshot = _of(record, [(path, written[path]) for path in contents], host)
        if folder is None:
            return replace(snapshot, files=tuple((path, file.read_bytes()) for path, file in contents.items()))
        kept = Path(folder).resolve() / f"{name}-{snapshot.digest[:16]}"
        if not kept.exists():
            target.rename(kept)
        return replace(snapshot, folder=str(kept))


def _of(record: Exported, written: Sequence[tuple[str, str]], host: Host, remote: tuple[str, ...] = ()) -> Snapshot:
    hashes = tuple(written)
    needs = {model.name: (*model.calls, *model.loads) for model in record.models if model.at_start}
    models = tuple(name for name in in_order(needs) if host.find(name) is not None)
    chosen = ((name, host.source(name, loaded=True).isolation) for name in models)
    isolations = tuple((name, isolation) for name, isolation in chosen if isolation)
    servers: list[tuple[Address, list[tuple[str, str]]]] = []
    for name in dict.fromkeys((*remote, *(name for name, _ in record.elsewhere))):
        model = host.source(name, loaded=True).remote
        assert isinstance(model, ServerModel)
        known = next((names for address, names in servers if address == model.server.address), None)
        if known is None:
            servers.append((model.server.address, known := []))
        known.append((name, model.name))
    remotes = tuple(_remote_models(address, names) for address, names in servers)
    told = json.dumps([hashes, models, isolations, [(each.url, each.names) for each in remotes]])
    digest = hashlib.sha256(told.encode()).hexdigest()
    return Snapshot(digest, models, isolations, hashes, remotes, warnings=record.warnings)


def _remote_models(address: Address, names: list[tuple[str, str]]) -> RemoteServerModels:
    tls = address.tls
    files = tuple(str(each or "") for each in (tls.root_certificates, tls.private_key, tls.certificate_chain))
    return RemoteServerModels(str(address), tuple(names), tuple(address.headers), address.timeout, files)


class _Open:
    """An open snapshot of this process, and the number of calls that use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.repository: ModelRepository | None = None
        self.calls = 0


_opened: OrderedDict[str, _Open] = OrderedDict()  # the last used one at the end
_lock = threading.Lock()


def _forget() -> None:
    """In a forked child, the repositories belong to the parent."""
    global _lock
    _lock = threading.Lock()
    _opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def opened(snapshot: Snapshot) -> Iterator[ModelRepository]:
    """Open a snapshot in this process, unless it is open; it stays open after the block."""
    with _lock:
        entry = _opened.setdefault(snapshot.digest, _Open())
        _opened.move_to_end(snapshot.digest)
        entry.calls += 1
        idle = [(digest, each) for digest, each in _opened.items() if not each.calls]
        old = [_opened.pop(digest) for digest, _ in idle[: max(0, len(idle) - MOST_OPEN)]]
    for each in old:
        if each.repository is not None:
            each.repository.close()
    try:
        with entry.lock:
            if entry.repository is None or entry.repository.closed:
                entry.repository = snapshot.open()
        yield entry.repository
    finally:
        with _lock:
            entry.calls -= 1
