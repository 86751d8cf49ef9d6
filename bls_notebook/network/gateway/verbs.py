"""``%tritonrepo endpoint``: the models of the notebook for clients of a Triton server."""

from __future__ import annotations

import argparse
import weakref
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

import bls_notebook as bls
from bls_notebook.magics.cell_errors import debug_later, reported
from bls_notebook.magics.magic import Verb
from bls_notebook.magics.notebook import Notebook

if TYPE_CHECKING:
    from .server import Endpoint


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
        failure, told = repository.last_failure, before.record.error
        if failure is not None and told is not None and told.kind == type(failure).__name__:
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
for _what in ("http", "grpc"):
    ENDPOINT.parser.add_argument(
        f"--{_what}-port", type=int, default=0, metavar="N", help="its port (default: a free one)"
    )
ENDPOINT.parser.add_argument("--token", metavar="TEXT", help="what clients send (default: made at random)")
ENDPOINT.parser.add_argument("--no-token", action="store_true", help="take requests of any program of this machine")
