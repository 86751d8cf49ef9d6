"""``python -m bls_notebook endpoint``: serve the models of a repository from this process until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

import bls_notebook as bls
from bls_notebook.commands import Command, print_record
from bls_notebook.repository.call_order import load_with_callees


def add_endpoint_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the ports and the token of an endpoint."""
    for protocol in ("http", "grpc"):
        parser.add_argument(f"--{protocol}-port", type=int, default=0, metavar="N", help="default: a free one")
    parser.add_argument("--token", metavar="TEXT", help="token that clients must send (default: random)")
    parser.add_argument("--no-token", action="store_true", help="accept requests without a token")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", help="a folder with one sub-folder for each model; their code runs")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="models to load (default: all)")
    add_endpoint_options(parser)
    parser.add_argument("--json", action="store_true", help="print the addresses and models as JSON")


def _run(arguments: argparse.Namespace) -> int:
    with bls.ModelRepository(arguments.repository) as repository:
        with redirect_stdout(sys.stderr):
            load_with_callees(repository, arguments.models)
        endpoint = bls.endpoint(
            repository, http_port=arguments.http_port, grpc_port=arguments.grpc_port,
            token="" if arguments.no_token else arguments.token,
        )  # fmt: skip
        try:
            with endpoint:
                print_record(endpoint.record, arguments.json)
                sys.stdout.flush()  # a process that reads the addresses from a pipe needs them now
                print("Ctrl-C stops it.", file=sys.stderr)
                endpoint.wait()
        except KeyboardInterrupt:
            return 0
    return 1


ENDPOINT = Command("serve models to Triton clients from this process until Ctrl-C", _arguments, _run)
