"""``%tritonrepo export``: models as a model repository for a server."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import bls_notebook as bls
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.shell.failing import reported

from .verb import Verb, serves

TARGETS = ("docker", "compose", "kubernetes", "kserve", "dynamo")

if TYPE_CHECKING:
    from bls_notebook.observe.records.shipping.exported import Exported


def _export(notebook: Notebook, arguments: argparse.Namespace) -> Exported:
    with reported(notebook):
        return bls.current_repository().export(
            arguments.place, *arguments.names,
            target=arguments.target, replicas=arguments.replicas, completed=arguments.completed,
        )  # fmt: skip


EXPORT = Verb(
    "export", "write models as a model repository for a server, with all that they call", _export,
    "Each model as it serves here: its code and files, its config.pbtxt, the models that it calls, and "
    "beside them requirements.txt and a README.md with the commands to serve, test and measure it. A model "
    "that reads a notebook variable, or cannot ship for another reason, is refused, and nothing is written. "
    "A folder is replaced only where an export wrote all that is in it. In scripts: repo.export(); in a "
    "shell: python -m bls_notebook export REPOSITORY FOLDER.",
    "  %tritonrepo export ../ship\n  %tritonrepo export ship.zip digit_reader\n"
    "  %tritonrepo export ../ship --for kubernetes\n"
    "  %tritonrepo export ../ship --for compose --replicas 3\n",
    suggests=serves,
)  # fmt: skip
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
