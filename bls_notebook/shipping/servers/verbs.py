"""``%tritonrepo serve``: models on the real tritonserver, beside the notebook."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

import bls_notebook as bls
from bls_notebook.magics.arguments import seconds
from bls_notebook.magics.cell_errors import reported
from bls_notebook.magics.magic import Verb, serves
from bls_notebook.magics.notebook import Notebook

if TYPE_CHECKING:
    from .serving import LocalServer


def _serve(notebook: Notebook, arguments: argparse.Namespace) -> LocalServer:
    before: LocalServer | None = notebook.state.get("shipping.server")
    if arguments.stop and (before is None or arguments.names):
        wrong = "takes no models" if arguments.names else "no server runs; start one by %tritonrepo serve"
        raise UsageError(f"%tritonrepo serve --stop: {wrong}")
    with reported(notebook):
        if arguments.stop and before is not None:
            before.stop()
            notebook.state.pop("shipping.server", None)
            return before
        made = bls.serve(*arguments.names, start_timeout=arguments.start_timeout, container=arguments.container)
        notebook.state["shipping.server"] = made
        if before is not None:
            before.stop(graceful=False)
            notebook.say("the server before was stopped", "info")
        return made


SERVE = Verb(
    "serve", "serve models by the real tritonserver, on a copy of what they are now", _serve,
    "Exports the models with all that they call, starts a tritonserver on the copy and waits until it is "
    "ready: the one on PATH, or else that of the wheel nvidia-pytriton, installed once into an environment "
    "of its own with what the models import (Linux on x86-64); with --container NVIDIA's "
    "image, by docker. It listens on 127.0.0.1 alone, and ends with the kernel. One runs at a time: a "
    "second one takes the place of the first once it is ready. The value "
    "is the server: server.infer(...), server.log(), server.stop(). In scripts: bls.serve(); in a shell: "
    "python -m bls_notebook serve REPOSITORY.",
    "  %tritonrepo serve\n  server = %tritonrepo serve digit_reader\n  %tritonrepo serve --stop\n"
    "  %tritonrepo serve --container --start-timeout 10m\n",
    suggests=serves,
)  # fmt: skip
SERVE.parser.add_argument("names", nargs="*", metavar="MODEL", help="models that serve (default: all)")
SERVE.parser.add_argument("--stop", action="store_true", help="stop the server that runs")
SERVE.parser.add_argument(
    "--start-timeout", type=seconds, default=120.0, metavar="TIME",
    help="how long loading all of them may take (default: 120s)",
)  # fmt: skip
SERVE.parser.add_argument(
    "--container", nargs="?", const=True, default=False, metavar="IMAGE",
    help="in a container, by docker (default: NVIDIA's image of the server)",
)  # fmt: skip
