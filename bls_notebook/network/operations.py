"""``%tritonrepo connect``, ``%tritonrepo endpoint`` and ``python -m bls_notebook endpoint``."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.operations import (
    REPOSITORY,
    OperationSpec,
    Option,
    UsageProblem,
    flag,
    opened,
    option,
    pairs,
    serve_until_interrupt,
    timeout,
)

if TYPE_CHECKING:
    from bls_notebook.magics import MagicCall

    from .connection import Connection
    from .endpoints.endpoint import Endpoint


def _connect(
    call: MagicCall, url: str = "", models: Sequence[str] = (), stop: bool = False, **options: Any
) -> Connection | None:
    connections: list[Connection] = call.notebook.state.setdefault("network.connections", [])
    connections[:] = [connection for connection in connections if connection.connected]
    if stop:
        _disconnect(call, connections, url, models)
        return None
    if not url:
        for connection in connections[:-1]:
            call.notebook.show(connection)
        if connections:
            return connections[-1]
        raise UsageProblem("expected an address, such as grpc://127.0.0.1:8001")
    connection = bls.connect(url, *models, **options)
    connections.append(connection)
    return connection


def _disconnect(call: MagicCall, connections: list[Connection], url: str, models: Sequence[str]) -> None:
    closing = [each for each in connections if not url or str(each.address) == url.rstrip("/")]
    if not closing or models:
        known = ", ".join(str(each.address) for each in connections) or "none"
        wrong = "takes no models" if models else f"no such connection; connections: {known}"
        raise UsageProblem(f"--stop: {wrong}")
    for connection in closing:
        connection.disconnect()
        connections.remove(connection)
    call.notebook.say(f"disconnected from {', '.join(str(each.address) for each in closing)}")


CONNECT = OperationSpec(
    """Add models of a running server, to call them like local models. The server is a Triton or any other server of
    the KServe v2 protocol. Give its gRPC port (grpc://HOST:8001) or its HTTP port (http://HOST:8000; no streams);
    grpcs:// and https:// use TLS. Its models stay on it and are listed as remote: it runs requests of the notebook
    and of BLS models, any number at a time. While the server is lost, requests fail with an error; its models serve
    again when it answers. Without an address, the magic shows the open connections. The value is the connection. In
    scripts: bls.connect(URL). Guide: docs/guides/kserve.md.""",
    options=(
        option("url", "URL", "address of the server", nargs="?"),
        option("models", "MODEL", "models on the server (default: all that are ready)", nargs="*", state="elsewhere"),
        flag("--stop", "remove the models of a server, or of all servers"),
        option("--prefix", "TEXT", "put before the local name of each model"),
        pairs("--name", "REMOTE=LOCAL", "local name for a model of the server", dest="names"),
        pairs("--header", "NAME=VALUE", "header of each request; $VARIABLE inserts a variable", dest="headers"),
        timeout(),
        option("--root-certificates", "FILE", "PEM file of trusted root certificates, for TLS"),
        option("--private-key", "FILE", "PEM file of the client's key, for TLS"),
        option("--certificate-chain", "FILE", "PEM file of the client's certificate, for TLS"),
    ),
    examples="""
    %tritonrepo connect grpc://gpu-server:8001
    %tritonrepo connect grpc://127.0.0.1:8001 resnet50 --name resnet50=big_resnet
    %tritonrepo connect https://triton.example.com --header authorization=$TOKEN
    %tritonrepo connect --stop
    """,
    notebook=_connect,
)


def _endpoint(call: MagicCall, stop: bool = False, **options: Any) -> Endpoint:
    notebook = call.notebook
    previous: Endpoint | None = notebook.state.get("network.endpoint")
    if stop:
        if previous is None:
            raise UsageProblem("--stop: no endpoint runs; start one with %tritonrepo endpoint")
        previous.stop()
        notebook.state.pop("network.endpoint", None)
        return previous
    repository = bls.current_repository()
    if previous is not None and previous.running and not options and previous.repository is repository:
        failure, error = repository.last_failure, previous.record.error
        if failure is not None and error is not None and error.kind == type(failure).__name__:
            from bls_notebook.magics import debug_later

            debug_later(notebook, failure)
            notebook.debugged, notebook.debugged_process = weakref.ref(previous), False
        return previous
    if previous is not None:  # stopped first, because the new one may need its ports
        previous.stop()
        notebook.state.pop("network.endpoint", None)
        notebook.say("the previous endpoint was stopped", "info")
    endpoint = notebook.state["network.endpoint"] = bls.endpoint(repository, **options)
    return endpoint


_OF_REPOSITORY = "model_config_name", "metrics_config", "rate_limit", "rate_limit_resources"


def _serve(repository: str, models: Sequence[str] = (), **options: Any) -> Generator[Any, None, None]:
    of_repository = {name: options.pop(name) for name in _OF_REPOSITORY if name in options}
    with opened(repository, models, **of_repository) as repo:
        yield from serve_until_interrupt(bls.endpoint(repo, **options))


def _restriction(name: str, help: str) -> Option:
    return option(name, "NAMES:KEY=VALUE", help, action="append")


ENDPOINT = OperationSpec(
    """Serve the models of this notebook to Triton clients. The models stay in their cells: redefine one while clients
    call it, stop at its breakpoints, watch it. Unmodified clients (tritonclient, perf_analyzer, curl) call them over
    HTTP and gRPC, on 127.0.0.1 only, with the token that is shown. The endpoint needs pip install
    'bls_notebook[network]', runs while cells run, and ends with the kernel. If one runs already, the magic shows it
    with its requests so far, and %debug then opens where a model failed last. The value is the endpoint:
    endpoint.url, endpoint.grpc_url, endpoint.headers, endpoint.stop(). In scripts: bls.endpoint(); in a shell, until
    Ctrl-C: python -m bls_notebook endpoint REPOSITORY.""",
    options=(
        REPOSITORY,
        option("models", "MODEL", "models to load (default: all)", nargs="*", surface="shell"),
        option("--model-config-name", "CONFIG", "use configs/CONFIG.pbtxt of models that have it", surface="shell"),
        pairs(
            "--metrics-config", "SETTING=VALUE", "as Triton's option, such as summary_latencies=true", surface="shell"
        ),
        option("--rate-limit", "MODE", "as Triton's option: execution_count or off (default)", surface="shell"),
        option(
            "--rate-limit-resource",
            "NAME:COUNT",
            "as Triton's option, such as R1:4, or R1:4:0 for device 0",
            dest="rate_limit_resources",
            action="append",
            surface="shell",
        ),
        flag("--stop", "stop the endpoint", "notebook"),
        option("--http-port", "N", "default: a free one", int),
        option("--grpc-port", "N", "default: a free one", int),
        option("--token", "TEXT", "token that clients must send (default: random)"),
        flag("--no-token", "accept requests without a token", dest="token", action="store_const", const=""),
        option("--http-max-input-size", "BYTES", "as Triton's option (default: 64 MiB)", int),
        flag("--allow-client-shm", "as Triton's option: clients may register shared memory"),
        flag(
            "--no-strict-readiness",
            "as Triton's --strict-readiness=false: ready even if a model is not",
            dest="strict_readiness",
            action="store_const",
            const=False,
        ),
        option("--exit-timeout-secs", "N", "as Triton's option: stop waits so long for requests (default: 30)", float),
        _restriction("--http-restricted-api", "as Triton's option: these APIs need the header KEY: VALUE"),
        _restriction("--grpc-restricted-protocol", "as Triton's option: these need triton-grpc-protocol-KEY: VALUE"),
        option("--http-header-forward-pattern", "REGEX", "as Triton's option: matching headers become parameters"),
        option("--grpc-header-forward-pattern", "REGEX", "as Triton's option: the same for gRPC"),
    ),
    examples="""
    %tritonrepo endpoint
    endpoint = %tritonrepo endpoint --http-port 8000 --grpc-port 8001
    %tritonrepo endpoint --stop
    """,
    notebook=_endpoint,
    shell=_serve,
)
