"""``%tritonrepo prove``: the same requests here and on a real server."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.magics.arguments import add_tolerance, counts, whole_number
from bls_notebook.magics.cell_errors import reported
from bls_notebook.magics.magic import Verb, serves
from bls_notebook.magics.notebook import Notebook

if TYPE_CHECKING:
    from .certificate import Certificate

_GENERATED = 100


def _prove(notebook: Notebook, arguments: argparse.Namespace) -> Certificate:
    given: list[Any] = [arguments.inputs] if arguments.inputs else []
    if arguments.requests:
        with reported(notebook):
            given.append(bls.load(arguments.requests))
    number = arguments.generate
    if number is None:
        number = 0 if given else _GENERATED
    with reported(notebook):
        return bls.prove(
            arguments.model, *given, generate=number, seed=arguments.seed,
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
    f"generated from the model's config ({_GENERATED} where nothing is given); generated ones take given "
    "inputs over at times. The smallest request that shows a difference is told. In scripts: "
    "bls.prove(); in a shell: python -m bls_notebook prove REPOSITORY.",
    "  %tritonrepo prove add_sub --generate 200\n"
    "  %tritonrepo prove add_sub INPUT0=[1, 2] INPUT1=[3, 4]\n"
    "  proof = %tritonrepo prove classify IMAGE=image --generate 50 --tolerance 1e-6\n"
    "  %tritonrepo prove classify IMAGE=image --instances 1,4\n",
    suggests=serves,
    takes_inputs=True,
)  # fmt: skip
PROVE.parser.usage = "%(prog)s MODEL [INPUT=EXPRESSION ...] [options]"
_add = PROVE.parser.add_argument
_add("model", metavar="MODEL", help="a model that serves")
_add("--generate", type=whole_number(0), metavar="N", help="make N requests from the model's config")
_add(
    "--seed", type=whole_number(0), default=0, metavar="N",
    help="the same makes the same requests, by the same hypothesis and where the same modules are imported",
)  # fmt: skip
add_tolerance(PROVE.parser)
_add(
    "--instances", type=counts, default=(), metavar="N,N",
    help="send requests once more, side by side, to so many instances here and there",
)  # fmt: skip
_add("--requests", default="", metavar="FILE", help="a recording (bls.record), whose requests are sent")
_add(
    "--server", default="", metavar="URL",
    help="compare with a server that runs: grpc://host:port or http://host:port",
)  # fmt: skip
