"""Addresses: of remote servers, with TLS and headers, and of local servers with two ports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

_SCHEMES = {"grpc": 8001, "grpcs": 8001, "http": 8000, "https": 443}
_EXPECTED = "expected one such as grpc://127.0.0.1:8001, http://host:8000, grpcs:// or https:// for TLS"
PLAIN = "!$&'()*+,:;=@"
"""Characters not quoted when a model's name is put in a URL: Triton does not unquote paths."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class AddressError(ValueError):
    """The arguments do not describe a server that can be reached; the message is one line."""


@dataclass(frozen=True)
class TLS:
    """PEM files; None means the system's root certificates, or no client key or certificate."""

    root_certificates: Path | None = None
    private_key: Path | None = None
    certificate_chain: Path | None = None


@dataclass(frozen=True)
class Address:
    """A server's address, and the settings of every request to it.

    `scheme`: ``grpc``, ``grpcs``, ``http`` or ``https``.
    `path`: the URL's path before ``/v2``, for HTTP; may be empty.
    `headers`: sent with every request; never shown, because they may contain tokens.
    `timeout`: of a request, in seconds; None for no timeout.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: TLS = TLS()
    timeout: float | None = None

    @property
    def encrypted(self) -> bool:
        """Return whether the connection uses TLS."""
        return self.scheme in ("grpcs", "https")

    @property
    def target(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.target}{self.path}"


def address_of(
    url: str, headers: Mapping[str, str] | None = None, tls: TLS | None = None, timeout: float | None = None
) -> Address:
    """Return the address in a URL.

    Raises AddressError: the URL is invalid, or the headers, certificates or timeout are.
    """
    if not isinstance(url, str):
        raise AddressError(f"url: got {url!r}, {_EXPECTED}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressError(f"url {url!r}: {error}; {_EXPECTED}") from error
    if parts.scheme not in _SCHEMES or not parts.hostname or re.search(r"\s", url):
        raise AddressError(f"url {url!r}: {_EXPECTED}")
    path = parts.path.rstrip("/")
    if parts.username is not None or parts.query or parts.fragment or (path and "grpc" in parts.scheme):
        raise AddressError(
            f"url {parts.scheme}://{parts.hostname}: expected a host, a port and, for HTTP, a path; "
            "pass tokens and passwords as headers={'authorization': ...}"
        )
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < 1e9
    ):
        raise AddressError(f"timeout: got {timeout!r}, expected seconds above 0, or None for no timeout")
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            raise AddressError(f"headers: {name!r} is not the name of a header, such as 'authorization'")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise AddressError(f"headers: the value of {name!r} must be printable ASCII text")
    if (tls is not None and tls != TLS()) and parts.scheme in ("grpc", "http"):
        raise AddressError(f"url {url!r}: certificates were given, so use {parts.scheme}s://")
    port = _SCHEMES[parts.scheme] if port is None else port
    return Address(parts.scheme, parts.hostname, port, path, dict(headers or {}), tls or TLS(), timeout)


HOST = "127.0.0.1"


class Listening:
    """Base class of local servers: their ports on 127.0.0.1, and the addresses for clients."""

    http_port = grpc_port = 0

    @property
    def url(self) -> str:
        """The URL for HTTP, such as ``http://127.0.0.1:8000``."""
        return f"http://{HOST}:{self.http_port}"

    @property
    def grpc_url(self) -> str:
        """The address for gRPC in tritonclient's form, such as ``127.0.0.1:8001``."""
        return f"{HOST}:{self.grpc_port}"
