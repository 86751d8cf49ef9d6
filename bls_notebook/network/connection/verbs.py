"""``%tritonrepo connect``: models of a running server, called from here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

import bls_notebook as bls
from bls_notebook.magics.arguments import key_and_value, seconds
from bls_notebook.magics.cell_errors import reported
from bls_notebook.magics.magic import Verb
from bls_notebook.magics.notebook import Notebook

if TYPE_CHECKING:
    from .connection import Connection


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
_add = CONNECT.parser.add_argument
_add("url", nargs="?", metavar="URL", help="where the server is")
_add("names", nargs="*", metavar="MODEL", help="models there (default: all that are ready)")
_add("--disconnect", action="store_true", help="take the models of a server, or of all, away again")
_add("--prefix", default="", metavar="TEXT", help="put before each model's name here")
_add(
    "--name", action="append", type=key_and_value, metavar="THERE=HERE",
    help="another name here for a model there",
)  # fmt: skip
_add(
    "--header", action="append", type=key_and_value, metavar="NAME=VALUE",
    help="sent with every request, such as a token; $VARIABLE is one of the notebook's",
)  # fmt: skip
_add("--timeout", type=seconds, metavar="TIME", help="how long one request may take (default: any time)")
_add("--root-certificates", metavar="FILE", help="for TLS: whom to trust, in PEM form")
_add("--private-key", metavar="FILE", help="for TLS: one's own key")
_add("--certificate-chain", metavar="FILE", help="for TLS: one's own certificate")
