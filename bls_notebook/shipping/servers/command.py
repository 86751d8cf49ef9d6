"""``python -m bls_notebook serve``: serve models by the real tritonserver until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

import bls_notebook as bls
from bls_notebook.commands import Command, print_record
from bls_notebook.repository.call_order import load_with_callees


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of models (default: all)")
    parser.add_argument(
        "--container", nargs="?", const=True, default=False, metavar="IMAGE", help="in a container, by docker"
    )
    parser.add_argument("--json", action="store_true", help="print the addresses and models as JSON")


def _run(arguments: argparse.Namespace) -> int:
    with redirect_stdout(sys.stderr), bls.ModelRepository(arguments.repository) as repository:
        load_with_callees(repository, arguments.models)
        server = bls.serve(*arguments.models, repo=repository, container=arguments.container)
    with server:
        print_record(server.record, arguments.json)
        sys.stdout.flush()  # whoever waits for the addresses may read from a pipe
        print("Ctrl-C stops it.", file=sys.stderr)
        try:
            server.wait()
        except KeyboardInterrupt:
            return 0
        except bls.BLSError as error:
            print(error, file=sys.stderr)
    return 1


SERVE = Command("serve models by the real tritonserver until Ctrl-C", _arguments, _run)
