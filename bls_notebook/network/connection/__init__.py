"""Models of a running server: a Triton, or any that speaks the KServe v2 protocol.

`link.py` is the connection, `grpc_link.py` and `network/kserve/http_client.py` are its two protocols;
`instance.py` is the engine's proxy for a remote model.
"""

from __future__ import annotations

from .address import TLS, Address, AddressError, address_of
from .instance import RemoteInstance
from .link import Link, RemoteError
from .opening import RemoteServer, ServerModel, take_link

__all__ = [
    "TLS",
    "Address",
    "AddressError",
    "Link",
    "RemoteError",
    "RemoteInstance",
    "RemoteServer",
    "ServerModel",
    "address_of",
    "take_link",
]
