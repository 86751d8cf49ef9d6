"""``%tritonrepo connect`` and ``endpoint``."""

from __future__ import annotations

import argparse
import weakref
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

import bls_notebook as bls
from bls_notebook.magics.arguments import key_and_value, seconds
from bls_notebook.magics.cell_errors import debug_later, reported
from bls_notebook.magics.magic import Verb
from bls_notebook.magics.notebook import Notebook

from .commands import add_endpoint_options

if TYPE_CHECKING:
    from .connection import Connection
    from .endpoints.endpoint import Endpoint


def _connect(notebook: Notebook, arguments: argparse.Namespace) -> Connection | None:
    before: list[Connection] = notebook.state.setdefault("network.connections", [])
    before[:] = [each for each in before if each.connected]
    if arguments.disconnect:
        _disconnect(notebook, before, arguments)
        return None
    if arguments.url is None:
        for each in before[:-1]:
            notebook.show(each)
        if before:
            return before[-1]
        raise UsageError("%tritonrepo connect: expected an address, such as grpc://127.0.0.1:8001")
    with reported(notebook):
        made = bls.connect(
            arguments.url, *arguments.names, prefix=arguments.prefix, timeout=arguments.timeout,
            names=dict(arguments.name or ()), headers=dict(arguments.header or ()),
            root_certificates=arguments.root_certificates, private_key=arguments.private_key,
            certificate_chain=arguments.certificate_chain,
        )  # fmt: skip
    before.append(made)
    return made


def _disconnect(notebook: Notebook, before: list[Connection], arguments: argparse.Namespace) -> None:
    url = arguments.url
    which = [each for each in before if url is None or str(each.address) == url.rstrip("/")]
    if not which or arguments.names:
        there = ", ".join(str(each.address) for each in before) or "none"
        wrong = "takes no models" if arguments.names else f"no such connection; there is: {there}"
        raise UsageError(f"%tritonrepo connect --disconnect: {wrong}")
    with reported(notebook):
        for each in which:
            each.disconnect()
            before.remove(each)
    notebook.say(f"disconnected from {', '.join(str(each.address) for each in which)}")


CONNECT = Verb(
    "connect", "have models of a running server here, as models that are called like any other", _connect,
    "The server is a Triton, or any that speaks the KServe v2 protocol: its gRPC port (grpc://HOST:8001) or "
    "its HTTP port (http://HOST:8000; no streams), with TLS by grpcs:// and https://. Its models stay there "
    "and are shown as remote: requests of the notebook and of its BLS models go to the server, any number at "
    "a time. A server that is lost fails them with a clear error, and is here again by itself when it "
    "answers. Without an address: the connections there are. The value is the connection. In scripts: "
    "bls.connect(URL).",
    "  %tritonrepo connect grpc://gpu-server:8001\n"
    "  %tritonrepo connect grpc://127.0.0.1:8001 resnet50 --name resnet50=big_resnet\n"
    "  %tritonrepo connect https://triton.example.com --header authorization=$TOKEN\n"
    "  %tritonrepo connect --disconnect\n",
)  # fmt: skip
_add_to_connect = CONNECT.parser.add_argument
_add_to_connect("url", nargs="?", metavar="URL", help="where the server is")
_add_to_connect("names", nargs="*", metavar="MODEL", help="models there (default: all that are ready)")
_add_to_connect("--disconnect", action="store_true", help="take the models of a server, or of all, away again")
_add_to_connect("--prefix", default="", metavar="TEXT", help="put before each model's name here")
_add_to_connect(
    "--name", action="append", type=key_and_value, metavar="THERE=HERE",
    help="another name here for a model there",
)  # fmt: skip
_add_to_connect(
    "--header", action="append", type=key_and_value, metavar="NAME=VALUE",
    help="sent with every request, such as a token; $VARIABLE is one of the notebook's",
)  # fmt: skip
_add_to_connect("--timeout", type=seconds, metavar="TIME", help="how long one request may take (default: any time)")
_add_to_connect("--root-certificates", metavar="FILE", help="for TLS: whom to trust, in PEM form")
_add_to_connect("--private-key", metavar="FILE", help="for TLS: one's own key")
_add_to_connect("--certificate-chain", metavar="FILE", help="for TLS: one's own certificate")


def _endpoint(notebook: Notebook, arguments: argparse.Namespace) -> Endpoint:
    before: Endpoint | None = notebook.state.get("network.endpoint")
    if arguments.stop:
        if before is None:
            raise UsageError("%tritonrepo endpoint --stop: none runs; start one by %tritonrepo endpoint")
        before.stop()
        notebook.state.pop("network.endpoint", None)
        return before
    repository = bls.current_repository()
    token = "" if arguments.no_token else arguments.token
    asked = arguments.http_port or arguments.grpc_port or token is not None
    if before is not None and before.running and not asked and before.repository is repository:
        failure, error = repository.last_failure, before.record.error
        if failure is not None and error is not None and error.kind == type(failure).__name__:
            debug_later(notebook, failure)
            notebook.debugged = weakref.ref(before)
        return before
    with reported(notebook):
        if before is not None:  # first: it may have the ports
            before.stop()
            notebook.state.pop("network.endpoint", None)
            notebook.say("the endpoint before was stopped", "info")
        made = bls.endpoint(repository, http_port=arguments.http_port, grpc_port=arguments.grpc_port, token=token)
        notebook.state["network.endpoint"] = made
        return made


ENDPOINT = Verb(
    "endpoint", "answer clients of a Triton server with the models of this notebook", _endpoint,
    "The models stay cells: run one again while clients ask, stop at its breakpoints, watch it. Unmodified "
    "clients (tritonclient, perf_analyzer, curl) ask them over HTTP and gRPC on 127.0.0.1 alone, with the "
    "token that is shown. It needs pip install 'bls_notebook[network]', runs beside the notebook's own cells "
    "and ends with the kernel. Where one runs already, it is shown, with what was asked so far; %debug then "
    "opens where a model failed last. The value is the endpoint: endpoint.url, endpoint.grpc_url, "
    "endpoint.headers, endpoint.stop(). In scripts: bls.endpoint(); in a shell: python -m bls_notebook "
    "endpoint REPOSITORY.",
    "  %tritonrepo endpoint\n  endpoint = %tritonrepo endpoint --http-port 8000 --grpc-port 8001\n"
    "  %tritonrepo endpoint --stop\n",
)  # fmt: skip
ENDPOINT.parser.add_argument("--stop", action="store_true", help="stop the one that runs")
add_endpoint_options(ENDPOINT.parser)
