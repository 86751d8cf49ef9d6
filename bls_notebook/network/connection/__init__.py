"""Models of a running server: a Triton, or any that speaks the KServe v2 protocol.

`link.py` is the connection, `grpc_link.py` and `network/kserve/http_client.py` are its two protocols;
`instance.py` is the engine's proxy for a remote model.
"""

from __future__ import annotations

from bls_notebook.network.kserve.address import TLS, Address, AddressError, address_of
from bls_notebook.network.kserve.client import Client, ServerError

from .instance import RemoteInstance
from .opening import RemoteServer, ServerModel, take_link

__all__ = [
    "TLS",
    "Address",
    "AddressError",
    "Client",
    "RemoteInstance",
    "RemoteServer",
    "ServerError",
    "ServerModel",
    "address_of",
    "take_link",
]
