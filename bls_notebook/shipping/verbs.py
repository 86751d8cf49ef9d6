"""``%tritonrepo export``, ``serve`` and ``prove``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

import bls_notebook as bls
from bls_notebook.magics.arguments import add_tolerance, counts, seconds, whole_number
from bls_notebook.magics.cell_errors import reported
from bls_notebook.magics.magic import Verb, serves
from bls_notebook.magics.notebook import Notebook

from .commands import add_container_option, add_target_options

if TYPE_CHECKING:
    from .records import Certificate, Exported
    from .servers.serving import LocalServer


def _export(notebook: Notebook, arguments: argparse.Namespace) -> Exported:
    names = arguments.names
    if arguments.inputs and len(names) != 1:
        raise UsageError("%tritonrepo export: inputs are of one model; name it before them.")
    if arguments.inputs and arguments.requests:
        raise UsageError("%tritonrepo export: give inputs or --requests, and not both.")
    with reported(notebook):
        requests: Any = {names[0]: [arguments.inputs]} if arguments.inputs else None
        if arguments.requests:
            requests = bls.load(arguments.requests)
        return bls.export(
            arguments.place, *names, target=arguments.target, replicas=arguments.replicas,
            completed=arguments.completed, requests=requests,
        )  # fmt: skip


EXPORT = Verb(
    "export", "write models as a model repository for a server, with all that they call", _export,
    "Each model as it serves here: its code and files, its config.pbtxt, the models that it calls, and "
    "beside them requirements.txt and a README.md with the commands to serve, test and measure it. A model "
    "that reads a notebook variable, or cannot ship for another reason, is refused, and nothing is written. "
    "A folder is replaced only where an export wrote all that is in it. With requests (INPUT=EXPRESSION, as "
    "in %bls, or --requests) it has their answers, too: prove.py proves them on a machine with a server, and "
    "there is input data for perf_analyzer. In scripts: "
    "bls.export(); in a shell: python -m bls_notebook export REPOSITORY FOLDER.",
    "  %tritonrepo export ../ship\n  %tritonrepo export ship.zip digit_reader\n"
    "  %tritonrepo export ../ship --for kubernetes\n"
    "  %tritonrepo export ../ship --for compose --replicas 3\n"
    "  %tritonrepo export ../ship digit_reader IMAGE=image\n"
    "  %tritonrepo export ../ship digit_reader --requests run.blsrec\n",
    suggests=serves,
    takes_inputs=True,
)  # fmt: skip
EXPORT.parser.usage = "%(prog)s FOLDER [MODEL ...] [INPUT=EXPRESSION ...] [options]"
EXPORT.parser.add_argument("place", metavar="FOLDER", help="a folder, or a file that ends with .zip")
EXPORT.parser.add_argument("names", nargs="*", metavar="MODEL", help="models that serve (default: all)")
add_target_options(EXPORT.parser)
EXPORT.parser.add_argument(
    "--requests", default="", metavar="FILE", help="a recording (bls.record), of which the requests are taken"
)


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
add_container_option(SERVE.parser)

_GENERATED = 100  # requests, if none are given


def _prove(notebook: Notebook, arguments: argparse.Namespace) -> Certificate:
    requests: list[Any] = [arguments.inputs] if arguments.inputs else []
    with reported(notebook):
        if arguments.requests:
            requests.append(bls.load(arguments.requests))
        number = arguments.generate
        if number is None:
            number = 0 if requests else _GENERATED
        return bls.prove(
            arguments.model, *requests, generate=number, seed=arguments.seed,
            tolerance=arguments.tolerance, ulps=arguments.ulps, instances=arguments.instances,
            server=arguments.server,
        )  # fmt: skip


PROVE = Verb(
    "prove", "send the same requests here and to a real server, and compare the answers", _prove,
    "A tritonserver runs a copy of the model and of all that it calls, as export writes them (the first time "
    "it is installed, in an environment of its own). Outputs are compared bit by bit, errors by text and "
    "code, of decoupled models the whole stream, rows of batches once more alone; then Triton's counts of "
    "requests and executions, those of the models that it calls included. Requests are given "
    "(INPUT=EXPRESSION, as in %bls), recorded (--requests), or "
    f"generated from the model's config ({_GENERATED} where nothing is given); generated ones sometimes reuse given "
    "inputs. The smallest request that shows a difference is reported. In scripts: "
    "bls.prove(); in a shell: python -m bls_notebook prove REPOSITORY.",
    "  %tritonrepo prove add_sub --generate 200\n"
    "  %tritonrepo prove add_sub INPUT0=[1, 2] INPUT1=[3, 4]\n"
    "  proof = %tritonrepo prove classify IMAGE=image --generate 50 --tolerance 1e-6\n"
    "  %tritonrepo prove classify IMAGE=image --instances 1,4\n",
    suggests=serves,
    takes_inputs=True,
)  # fmt: skip
PROVE.parser.usage = "%(prog)s MODEL [INPUT=EXPRESSION ...] [options]"
_add_to_prove = PROVE.parser.add_argument
_add_to_prove("model", metavar="MODEL", help="a model that serves")
_add_to_prove("--generate", type=whole_number(0), metavar="N", help="make N requests from the model's config")
_add_to_prove(
    "--seed", type=whole_number(0), default=0, metavar="N",
    help="the same seed makes the same requests, with the same version of hypothesis and the same imported modules",
)  # fmt: skip
add_tolerance(PROVE.parser)
_add_to_prove(
    "--instances", type=counts, default=(), metavar="N,...",
    help="send requests once more, side by side, to so many instances here and there",
)  # fmt: skip
_add_to_prove("--requests", default="", metavar="FILE", help="a recording (bls.record), whose requests are sent")
_add_to_prove(
    "--server", default="", metavar="URL",
    help="compare with a server that runs: grpc://host:port or http://host:port",
)  # fmt: skip
