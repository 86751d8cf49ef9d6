"""`connect`: models of a running server, as models of a repository here.

Guarantees: a connection that fails changes nothing; while a server is lost, its models say so, and they work
again as soon as it answers; a closed connection leaves nothing, nor does one whose repository is closed.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.backends.protocol import BackendError
from bls_notebook.engine.errors import BLSError, ModelLoadError
from bls_notebook.engine.waiting.threads import start_in_thread
from bls_notebook.extending import Host, Registration, critical
from bls_notebook.progress import progress
from bls_notebook.repository.repository import ModelRepository, current_repository
from bls_notebook.repository.source.names import check_model_name

from .kserve.address import TLS, Address, AddressError, address_of
from .kserve.client import Client, ServerError
from .remote_models import RemoteServer, ServerModel

if TYPE_CHECKING:
    from bls_notebook.network.records import ConnectionRecord

_NONE = (
    "it does not tell which models it has; name those that you want: bls.connect({url!r}, 'MODEL'), or "
    "%tritonrepo connect {url} MODEL"
)

log = logging.getLogger("bls_notebook")


class Connection:
    """Models of a server as models of a repository; a context manager.

    Attributes
    ----------
    address : Address
    models : dict of str to str
        Names here, and there.
    """

    def __init__(self, repository: ModelRepository, address: Address) -> None:
        self.address = address
        self.models: dict[str, str] = {}
        self.server = ""
        self._notes: tuple[str, ...] = ()
        self._repository = weakref.ref(repository)
        self._link = RemoteServer(address, self._changed)  # whose models keep the connection
        self._registration: Registration | None = None

    @property
    def lost(self) -> str:
        """Why the server does not answer, while it does not; else empty."""
        return self._link.lost

    @property
    def connected(self) -> bool:
        """Whether any of its models is still here."""
        return self._link.connected

    @property
    def record(self) -> ConnectionRecord:
        """The state of the connection now; what a notebook shows."""
        from bls_notebook.network.records import ConnectionRecord

        repository = self._repository()
        rows = [] if repository is None or repository.closed else repository.index()
        here = tuple(r for r in rows if r.name in self.models and r.remote == str(self.address))
        state = "LOST" if self.lost else "CONNECTED"
        return ConnectionRecord(
            address=str(self.address),
            state=state if self._link.connected else "DISCONNECTED",
            server=self.server,
            reason=self.lost,
            models=here,
            names=tuple((name, there) for name, there in self.models.items() if name != there),
            notes=self._notes,
        )

    def disconnect(self) -> None:
        """Take the server's models out of service; requests finish first."""
        if self._registration is not None:
            self._registration.remove()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        self.disconnect()

    def __repr__(self) -> str:
        state = f"lost: {self.lost}" if self.lost else "connected" if self._link.connected else "closed"
        return f"<Connection {self.address} ({state}) {', '.join(self.models)}>"

    def _changed(self) -> None:
        """Note that the server was lost or is back; called on a thread of the connection."""
        if self._registration is None:
            return
        self._registration.lost(self.lost)
        if not self.lost:  # it may have other models now
            start_in_thread(self._registration.refresh)


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
    """Have models of a running server as models here, which BLS models and the notebook call like any other.

    The server is a Triton, or anything that speaks the KServe v2 protocol. Its models stay there: requests go
    to it, any number at a time, and what they may be is for the server to say. Decoupled models need gRPC.

    Parameters
    ----------
    url : str
        ``grpc://HOST:PORT`` or ``http://HOST:PORT``; ``grpcs://`` or ``https://`` for TLS. Without a port it
        is 8001 for gRPC, 8000 for HTTP and 443 for HTTPS.
    *models : str
        Their names there; by default all that are ready there.
    repo : ModelRepository, optional
        Default: `current_repository`.
    names : mapping of str to str, optional
        Other names for models here, by those there, where a model here has the name already.
    prefix : str
        Put before the name of each other model.
    headers : mapping of str to str, optional
        Sent with every request, such as ``{"authorization": "Bearer ..."}``. They are shown nowhere.
    timeout : float, optional
        Seconds that one request may take. Without it there is no limit: Ctrl-C ends the wait, and a lost
        server is noticed.
    root_certificates, private_key, certificate_chain : path, optional
        Files in PEM form, for TLS; without them, what the system trusts.

    Returns
    -------
    Connection
        Its `disconnect` is the way back.

    Raises
    ------
    BLSError
        The server does not answer, has no such model, or a name is taken here; nothing has changed then.

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
    with critical(), progress(f"connecting to {address}"):
        try:
            link = connection._link.take()
        except BackendError as error:
            raise BLSError(f"connect: {error}") from error
        try:
            _look(connection, link, models, dict(names or {}), prefix)
            host = Host(repository)
            _refuse_taken(connection, host)
            models_here = {name: ServerModel(connection._link, there) for name, there in connection.models.items()}
            connection._registration = host.register(models_here)
        finally:
            link.release()
    return connection


def _look(connection: Connection, link: Client, wanted: tuple[str, ...], names: dict[str, str], prefix: str) -> None:
    """Set the server, and the names of its models here and there."""
    try:
        link.describe()
        connection.server = link.server
        found = tuple(dict.fromkeys(wanted)) or _ready_there(link, connection.address)
    except ServerError as error:
        raise BLSError(f"connect: {link.address}: {_no_answer(error, link.address)}") from error
    unknown = [name for name in names if name not in found]
    if unknown:
        raise BLSError(f"connect: names: {unknown[0]!r} is none of the models there: {', '.join(found)}")
    for there in found:
        here = names.get(there, prefix + there)
        check_model_name(here)
        if here in connection.models:
            raise BLSError(f"connect: two models would have the name {here!r} here; give others by names=")
        connection.models[here] = there


def _no_answer(error: ServerError, address: Address) -> str:
    if not error.lost:
        hint = "; give it by headers= (--header authorization=...)" if "nauthor" in str(error) else ""
        return f"{error}{hint}"
    kind, other = ("HTTP", "gRPC") if address.scheme.startswith("http") else ("gRPC", "HTTP")
    return (
        f"no answer ({error.lost}); is a server running there, and is {address.port} its port for {kind}, "
        f"not {other}? (Triton's are 8000 for HTTP and 8001 for gRPC)"
    )


def _ready_there(link: Client, address: Address) -> tuple[str, ...]:
    try:
        index = link.index()
    except ServerError as error:
        if error.lost:
            raise
        raise BLSError(f"connect: {address}: {_NONE.format(url=str(address))}") from error
    found = tuple(dict.fromkeys(name for name, _, state in index if state == "READY"))
    if not found:
        known = ", ".join(dict.fromkeys(name for name, _, _ in index))
        words = f"none of its models is ready ({known}); load one there" if known else "it has no models"
        raise BLSError(f"connect: {address}: {words}")
    return found


def _refuse_taken(connection: Connection, host: Host) -> None:
    """Raise if a name is taken here, except by the same server or by one that is gone."""
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
        first, address = taken[0], connection.address
        raise ModelLoadError(
            f"connect: {', '.join(taken)}: a model that serves here has this name; take another "
            f"name here: bls.connect({str(address)!r}, names={{{first!r}: 'there_{first}'}}) or "
            f"prefix='there_' (%tritonrepo connect {address} --prefix there_)",
            first,
        )
