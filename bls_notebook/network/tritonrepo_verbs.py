"""The verbs ``connect`` and ``endpoint`` of ``%tritonrepo``."""

from __future__ import annotations

import argparse
import weakref
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

import bls_notebook as bls
from bls_notebook.magics import Notebook, Verb, add_options, debug_later, reported

from .commands import header_arguments

if TYPE_CHECKING:
    from .connection import Connection
    from .endpoints.endpoint import Endpoint


def _connect(notebook: Notebook, arguments: argparse.Namespace) -> Connection | None:
    connections: list[Connection] = notebook.state.setdefault("network.connections", [])
    connections[:] = [connection for connection in connections if connection.connected]
    if arguments.disconnect:
        _disconnect(notebook, connections, arguments)
        return None
    if arguments.url is None:
        for connection in connections[:-1]:
            notebook.show(connection)
        if connections:
            return connections[-1]
        raise UsageError("%tritonrepo connect: expected an address, such as grpc://127.0.0.1:8001")
    with reported(notebook):
        connection = bls.connect(
            arguments.url, *arguments.names, prefix=arguments.prefix, timeout=arguments.timeout,
            names=dict(arguments.name), headers=dict(arguments.header),
            root_certificates=arguments.root_certificates, private_key=arguments.private_key,
            certificate_chain=arguments.certificate_chain,
        )  # fmt: skip
    connections.append(connection)
    return connection


def _disconnect(notebook: Notebook, connections: list[Connection], arguments: argparse.Namespace) -> None:
    url = arguments.url
    closing = [each for each in connections if url is None or str(each.address) == url.rstrip("/")]
    if not closing or arguments.names:
        known = ", ".join(str(each.address) for each in connections) or "none"
        wrong = "takes no models" if arguments.names else f"no such connection; connections: {known}"
        raise UsageError(f"%tritonrepo connect --disconnect: {wrong}")
    with reported(notebook):
        for connection in closing:
            connection.disconnect()
            connections.remove(connection)
    notebook.say(f"disconnected from {', '.join(str(each.address) for each in closing)}")


CONNECT = Verb("connect", "add models of a running server, to call them like local models", _connect, __file__)


def _endpoint(notebook: Notebook, arguments: argparse.Namespace) -> Endpoint:
    previous: Endpoint | None = notebook.state.get("network.endpoint")
    if arguments.stop:
        if previous is None:
            raise UsageError("%tritonrepo endpoint --stop: no endpoint runs; start one with %tritonrepo endpoint")
        previous.stop()
        notebook.state.pop("network.endpoint", None)
        return previous
    repository = bls.current_repository()
    token = "" if arguments.no_token else arguments.token
    about_headers = header_arguments(arguments)
    has_options = arguments.http_port or arguments.grpc_port or token is not None or any(about_headers.values())
    if previous is not None and previous.running and not has_options and previous.repository is repository:
        failure, error = repository.last_failure, previous.record.error
        if failure is not None and error is not None and error.kind == type(failure).__name__:
            debug_later(notebook, failure)
            notebook.debugged = weakref.ref(previous)
        return previous
    with reported(notebook):
        if previous is not None:  # stopped first, because the new one may need its ports
            previous.stop()
            notebook.state.pop("network.endpoint", None)
            notebook.say("the previous endpoint was stopped", "info")
        endpoint = bls.endpoint(
            repository, http_port=arguments.http_port, grpc_port=arguments.grpc_port, token=token, **about_headers
        )
        notebook.state["network.endpoint"] = endpoint
        return endpoint


ENDPOINT = Verb("endpoint", "serve the models of this notebook to Triton clients", _endpoint, __file__)
add_options(ENDPOINT.parser, __file__, "a listener")
