"""`connect`: adds the models of a running server to a repository.

Guarantees: a `connect` that fails changes nothing. While a server is lost, its models report that; they serve
again as soon as it answers. Disconnecting, or closing the repository, removes the models, threads and sockets.
"""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.backends import BackendError
from bls_notebook.engine import BLSError, ModelLoadError, perform, start_in_thread
from bls_notebook.extending import Host, Registration, Scope, operation, undo
from bls_notebook.progress import progress
from bls_notebook.records import Printable, remedy
from bls_notebook.repository import ModelRepository, current_repository
from bls_notebook.repository.source import check_model_name

from .kserve.address import TLS, Address, AddressError, address_of
from .kserve.client import Client, ServerError
from .limits import CONNECT_SECONDS, REMOTE_MODELS
from .remote_models import RemoteServer, ServerModel

if TYPE_CHECKING:
    from bls_notebook.network.records import ConnectionRecord

_ACTIONS = {
    "name models": ("`bls.connect({address!r}, 'MODEL')`", "`%tritonrepo connect {address} MODEL`"),
    "rename": (
        "`bls.connect({address!r}, names={{{name!r}: 'remote_{name!s}'}})` or `prefix='remote_'`",
        "`%tritonrepo connect {address} --prefix remote_`",
    ),
}

log = logging.getLogger("bls_notebook")


class Connection(Scope, Printable):
    """The models of a server in a repository; a context manager that disconnects.

    Attributes
    ----------
    address : Address
        The server's address.
    models : dict of str to str
        The local name of each model, and its name on the server.
    server : str
        Name and version of the server, as it reports them.
    """

    def __init__(self, repository: ModelRepository, address: Address) -> None:
        self.address = address
        self.models: dict[str, str] = {}
        self.server = ""
        self._repository = weakref.ref(repository)
        self._link = RemoteServer(address, self._changed)  # closes once no model uses it
        self._registration: Registration | None = None

    @property
    def lost(self) -> str:
        """Why the server does not answer; empty while it does."""
        return self._link.lost

    @property
    def connected(self) -> bool:
        """Return whether any of the server's models is still loaded here."""
        return self._link.connected

    @property
    def record(self) -> ConnectionRecord:
        """The current state of the connection, which a notebook displays."""
        from bls_notebook.network.records import ConnectionRecord

        repository = self._repository()
        rows = [] if repository is None or repository.closed else repository.index()
        models = tuple(r for r in rows if r.name in self.models and r.remote == str(self.address))
        state = "LOST" if self.lost else "CONNECTED"
        return ConnectionRecord(
            address=str(self.address),
            state=state if self._link.connected else "DISCONNECTED",
            server=self.server,
            reason=self.lost,
            models=models,
            names=tuple((name, remote) for name, remote in self.models.items() if name != remote),
        )

    def disconnect(self) -> None:
        """Unload the server's models; requests in flight finish first."""
        if self._registration is not None:
            perform(self._registration.remove, interruptible=False)

    def _leave(self) -> None:
        self.disconnect()

    def __repr__(self) -> str:
        state = f"lost: {self.lost}" if self.lost else "connected" if self._link.connected else "closed"
        return f"<Connection {self.address} ({state}) {', '.join(self.models)}>"

    def _changed(self) -> None:
        """Report that the server was lost or is back; called on a thread of the connection."""
        if self._registration is None:
            return
        self._registration.lost(self.lost)
        if not self.lost:  # a restarted server may have other versions
            start_in_thread(self._registration.refresh)


@operation
def connect(
    url: str,
    *models: str,
    repo: ModelRepository | None = None,
    names: Mapping[str, str] | None = None,
    prefix: str = "",
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    root_certificates: str | Path | None = None,
    private_key: str | Path | None = None,
    certificate_chain: str | Path | None = None,
) -> Connection:
    """Add models of a running server to a repository; the notebook and BLS models call them like local models.

    The server is a Triton or any other server of the KServe v2 protocol. The models stay on it: it runs their
    requests, any number at a time. Decoupled models need gRPC.

    Parameters
    ----------
    url : str
        ``grpc://HOST:PORT`` or ``http://HOST:PORT``; ``grpcs://`` or ``https://`` for TLS. The default port is
        8001 for gRPC, 8000 for HTTP and 443 for HTTPS.
    *models : str
        Names of models on the server; by default all that are ready.
    repo : ModelRepository, optional
        Default: `current_repository`.
    names : mapping of str to str, optional
        Local names by names on the server, for example because the repository has a model of that name.
    prefix : str
        Put before the local names of models that are not in `names`.
    headers : mapping of str to str, optional
        Sent with every request, such as ``{"authorization": "Bearer ..."}``. No display shows them.
    timeout : float, optional
        Timeout of a request in seconds. Without it a request may take any time; Ctrl-C ends the wait, and a
        lost server ends the request with an error.
    root_certificates, private_key, certificate_chain : path, optional
        PEM files for TLS. By default the system's root certificates, and no client certificate.

    Returns
    -------
    Connection
        Its `disconnect` removes the models again.

    Raises
    ------
    BLSError
        The server does not answer or has no such model, or a local name is taken. Nothing has changed then.

    Examples
    --------
    >>> bls.connect("grpc://gpu-server:8001", "resnet50")  # doctest: +SKIP
    """
    repository = current_repository() if repo is None else repo
    try:
        files = (None if f is None else Path(f) for f in (root_certificates, private_key, certificate_chain))
        address = address_of(url, headers, TLS(*files), timeout)
    except AddressError as error:
        raise BLSError(f"connect: {error}") from error
    connection = Connection(repository, address)
    with progress(f"connecting to {address}"):
        try:
            link = connection._link.take()
        except BackendError as error:
            raise BLSError(f"connect: {error}") from error
        try:
            link.deadline = time.monotonic() + CONNECT_SECONDS
            _name_models(connection, link, models, dict(names or {}), prefix)
            link.deadline += len(connection.models)
            host = Host(repository)
            _refuse_taken(connection, host)
            local = {name: ServerModel(connection._link, remote) for name, remote in connection.models.items()}
            connection._registration = host.register(local)
            undo(connection.disconnect)
        finally:
            link.deadline = math.inf
            link.release()
    return connection


def _name_models(
    connection: Connection, link: Client, wanted: tuple[str, ...], names: dict[str, str], prefix: str
) -> None:
    """Set the server of a connection, and the local and remote names of its models."""
    try:
        link.describe()
        connection.server = link.server
        remote_names = tuple(dict.fromkeys(wanted)) or _ready_models(link, connection.address)
    except ServerError as error:
        raise BLSError(f"connect: {link.address}: {_no_answer(error, link.address)}") from error
    unknown = [name for name in names if name not in remote_names]
    if unknown:
        raise BLSError(f"connect: names: {unknown[0]!r} is not one of the models to connect: {', '.join(remote_names)}")
    for remote in remote_names:
        local = names.get(remote, prefix + remote)
        check_model_name(local)
        if local in connection.models:
            raise BLSError(f"connect: two models would have the local name {local!r}; choose others with names=")
        connection.models[local] = remote


def _no_answer(error: ServerError, address: Address) -> str:
    if not error.lost:
        hint = "; pass a token with headers= (--header authorization=...)" if "nauthor" in str(error) else ""
        return f"{error}{hint}"
    kind, other = ("HTTP", "gRPC") if address.scheme.startswith("http") else ("gRPC", "HTTP")
    return (
        f"no answer ({error.lost}); check that a server runs there, and that {address.port} is its port for {kind}, "
        f"not {other} (Triton's defaults: 8000 for HTTP, 8001 for gRPC)"
    )


def _ready_models(link: Client, address: Address) -> tuple[str, ...]:
    try:
        index = link.index()
    except ServerError as error:
        if error.lost:
            raise
        why = "the server does not list its models; name the ones to connect: {name models}"
        raise BLSError(f"connect: {address}: {remedy(why, _ACTIONS, address=address)}") from error
    ready = tuple(dict.fromkeys(name for name, _, state in index if state == "READY"))
    if len(ready) > REMOTE_MODELS:
        raise BLSError(f"connect: {address}: {len(ready):,} models are ready; name the ones to connect")
    if not ready:
        known = ", ".join(dict.fromkeys(name for name, _, _ in index))
        words = f"no model is ready ({known}); load one on the server" if known else "the server has no models"
        raise BLSError(f"connect: {address}: {words}")
    return ready


def _refuse_taken(connection: Connection, host: Host) -> None:
    """Raise ModelLoadError if a local model, or another server that still answers, has one of the names."""
    taken: list[str] = []
    gone: set[str] = set()
    for name in connection.models:
        serving = host.find(name)
        if serving is None or serving.seen.remote in (str(connection.address), *gone):
            continue
        remote = host.source(name, loaded=True).remote
        if remote is not None and remote.is_gone():
            gone.add(serving.seen.remote)
        else:
            taken.append(name)
    if taken:
        rename = remedy("{rename}", _ACTIONS, address=connection.address, name=taken[0])
        raise ModelLoadError(
            f"connect: {', '.join(taken)}: a loaded model has this name; choose another local name: {rename}", taken[0]
        )
