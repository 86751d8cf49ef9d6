"""`Listening`: the local addresses of a server that speaks the KServe v2 protocol."""

from __future__ import annotations

HOST = "127.0.0.1"


class Listening:
    """What takes requests of clients on this machine: its ports, and their addresses."""

    http_port = grpc_port = 0

    @property
    def url(self) -> str:
        """Where it takes requests over HTTP, as ``http://127.0.0.1:8000``."""
        return f"http://{HOST}:{self.http_port}"

    @property
    def grpc_url(self) -> str:
        """Where it takes requests over gRPC, as tritonclient wants it: ``127.0.0.1:8001``."""
        return f"{HOST}:{self.grpc_port}"
