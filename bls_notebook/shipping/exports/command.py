"""``python -m bls_notebook export``: write models as a model repository for a server."""

from __future__ import annotations

import argparse

import bls_notebook as bls
from bls_notebook.commands import Command, print_record
from bls_notebook.repository.call_order import load_with_callees


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("place", help="a folder, or a file that ends with .zip, to write")
    parser.add_argument("models", nargs="*", default=[], metavar="MODEL", help="names of models (default: all)")
    parser.add_argument(
        "--for", dest="target", default="", metavar="PLACE",
        help="write what it takes to serve them there, too: docker, compose, kubernetes, kserve or dynamo",
    )  # fmt: skip
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="for compose: N servers behind HAProxy")
    parser.add_argument("--completed", action="store_true", help="write completed configurations")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def _run(arguments: argparse.Namespace) -> int:
    with bls.ModelRepository(arguments.repository) as repository:
        load_with_callees(repository, arguments.models)
        written = bls.export(
            arguments.place, *arguments.models,
            target=arguments.target, replicas=arguments.replicas, completed=arguments.completed,
            repo=repository,
        )  # fmt: skip
    print_record(written, arguments.json)
    return 0


EXPORT = Command("write models as a model repository for a server", _arguments, _run)
