"""Limits of everything that another program sends: to an endpoint, or as the answer of a remote server.

HTTP, gRPC, shared memory and the remote clients check them before they read, unpack, parse or allocate. Limits of files
are in `records.regular_file`, whose functions read nothing without one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

DIMENSIONS = 32  # of a tensor: NumPy 1's limit
ELEMENTS = 1 << 62  # of a tensor: far beyond any memory
PATH_CHARACTERS = 4000  # of a URL; Python refuses integers of more digits
HEADERS = 256  # of an HTTP request: their parsing takes 1 ms
TENSORS = 4096  # inputs, requested outputs, or parameters of a request
VALUES = 4 << 20  # of a JSON document: below 200 MB as Python objects
STRINGS = 16 << 20  # elements of a BYTES tensor
JSON_CONTAINERS = 2 << 20  # lists and objects of a JSON document
JSON_DEPTH = 100  # of an element in nested lists; this limit and the next two are Triton's
CHUNKS = 1 << 16  # of a chunked HTTP body, without empty ones
CLASSIFIED = 1_000_000  # elements of a row whose largest values are requested
CONTENTS_BYTES = 64 << 20  # of a tensor in a gRPC message, outside the raw contents
ANSWER_BYTES = 16 << 20  # of a remote server's metadata, configurations and statistics
INFER_BYTES = (1 << 31) - 1  # of an inference response, as over gRPC
REMOTE_MODELS = 1000  # models that one `connect` adds without their names
CONNECT_SECONDS = 60.0  # of a whole `connect`; it adds a second for each model
OPEN_SECONDS = 5.0  # until a connection to a remote server is open
QUERY_SECONDS = 10.0  # of a query of a remote server
PROBE_SECONDS = 5.0  # between probes of a remote server with requests in flight, and timeout of a probe
IDLE_SECONDS = 3600  # that an idle connection of an endpoint stays open; clients pool connections
METADATA_BYTES = 64 << 10  # of a gRPC call
UNREAD_ANSWERS = 64  # of a gRPC stream whose client does not read
INLINE_BYTES = 1 << 14  # of JSON, texts or compressed data that an event loop decodes itself: well below 1 ms
RETURNED_BYTES = 1 << 20  # of large bodies: after as many, an endpoint returns freed memory, up to 50 times of JSON
RETURN_SECONDS = 1.0  # until it does so
DECODERS = 4  # larger bodies that are decoded or encoded at a time
_PIECE = 1 << 20  # bytes that are counted without releasing the GIL


def _connections() -> int:
    """Return how many connections a server may have open: at most a quarter of the files of this process."""
    if sys.platform == "win32":
        return 1024
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1024 if files < 0 else max(16, min(1024, files // 4))


@dataclass(frozen=True)
class Limits:
    """Limits of an endpoint.

    ``body`` and ``headers``: bytes of a request, the body compressed or not, or its inputs in shared memory.
    ``http_input``: bytes of the JSON, the raw input, or the decompressed body of an HTTP request.
    ``bodies``: bytes of all HTTP requests in flight, in bodies. ``requests``: requests in flight. ``connections``:
    open connections of each protocol. ``patience``: seconds for the headers, again for the body, and until an idle
    connection without the token is closed.
    """

    body: int = 256 << 20
    http_input: int = 64 << 20
    bodies: int = 4
    requests: int = 1024
    connections: int = field(default_factory=_connections)
    headers: int = 64 << 10
    patience: float = 60.0


def check_json(document: bytes | bytearray | memoryview) -> None:
    """Raise ValueError if a JSON document has more values than the limits allow; commas in texts count too."""
    size = len(document)
    if size <= JSON_CONTAINERS:
        return
    values = containers = 0
    for start in range(0, size, _PIECE):
        piece = bytes(document[start : start + _PIECE])
        values += piece.count(b",")
        containers += piece.count(b"[") + piece.count(b"{")
        if values > VALUES or containers > JSON_CONTAINERS:
            most, kind = (VALUES, "values") if values > VALUES else (JSON_CONTAINERS, "lists and objects")
            raise ValueError(f"the JSON has more than {most:,} {kind}; send large tensors in the binary format")
