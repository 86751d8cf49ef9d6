"""``python -m bls_notebook endpoint``: answer clients with the models, in this process, until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

import bls_notebook as bls
from bls_notebook.commands import Command, print_record
from bls_notebook.repository.call_order import load_with_callees


def add_endpoint_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of an endpoint: its ports and its token."""
    for protocol in ("http", "grpc"):
        parser.add_argument(f"--{protocol}-port", type=int, default=0, metavar="N", help="default: a free one")
    parser.add_argument("--token", metavar="TEXT", help="what clients send (default: made at random)")
    parser.add_argument("--no-token", action="store_true", help="take requests of any program of this machine")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of models (default: all)")
    add_endpoint_options(parser)
    parser.add_argument("--json", action="store_true", help="print the addresses and models as JSON")


def _run(arguments: argparse.Namespace) -> int:
    with bls.ModelRepository(arguments.repository) as repository:
        with redirect_stdout(sys.stderr):
            load_with_callees(repository, arguments.models)
        made = bls.endpoint(
            repository, http_port=arguments.http_port, grpc_port=arguments.grpc_port,
            token="" if arguments.no_token else arguments.token,
        )  # fmt: skip
        try:
            with made:
                print_record(made.record, arguments.json)
                sys.stdout.flush()  # whoever waits for the addresses may read from a pipe
                print("Ctrl-C stops it.", file=sys.stderr)
                made.wait()
        except KeyboardInterrupt:
            return 0
    return 1


ENDPOINT = Command("answer clients with the models, in this process, until Ctrl-C", _arguments, _run)
