"""``%tritonrepo export``: models as a model repository for a server."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

import bls_notebook as bls
from bls_notebook.magics.cell_errors import reported
from bls_notebook.magics.magic import Verb, serves
from bls_notebook.magics.notebook import Notebook

TARGETS = ("docker", "compose", "kubernetes", "kserve", "dynamo")

if TYPE_CHECKING:
    from .records import Exported


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
    "there is input data for perf_analyzer and a configuration for Model Analyzer. In scripts: "
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
EXPORT.parser.add_argument(
    "--for", dest="target", default="", choices=TARGETS, metavar="PLACE",
    help=f"write what it takes to serve them there, too: {', '.join(TARGETS)}",
)  # fmt: skip
EXPORT.parser.add_argument(
    "--replicas", type=int, default=1, metavar="N",
    help="for compose: N servers behind HAProxy, which shares the requests out",
)  # fmt: skip
EXPORT.parser.add_argument(
    "--completed", action="store_true",
    help="write each config.pbtxt with everything that is filled in (default: as it was given)",
)  # fmt: skip
EXPORT.parser.add_argument(
    "--requests", default="", metavar="FILE", help="a recording (bls.record), of which the requests are taken"
)
