"""``python -m bls_notebook prove``: compare models with copies of them on a real tritonserver."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from functools import partial

import bls_notebook as bls
from bls_notebook.commands import Command, print_record
from bls_notebook.repository.call_order import load_with_callees

from .certificate import Certificate


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of models (default: all)")
    parser.add_argument("--generate", type=int, default=100, metavar="N", help="requests a model")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N",
        help="the same makes the same requests, by one version of hypothesis",
    )  # fmt: skip
    parser.add_argument("--tolerance", type=float, default=0.0, metavar="X", help="that floats may differ by")
    parser.add_argument("--ulps", type=int, default=0, metavar="N", help="floats between two that may differ")
    parser.add_argument(
        "--instances", type=int, nargs="+", default=(), metavar="N", help="instance counts to try as well"
    )
    parser.add_argument("--server", default="", metavar="URL", help="one that runs: grpc://host:port")
    parser.add_argument("--json", action="store_true", help="print the certificates as JSON, one a line")


def _run(arguments: argparse.Namespace) -> int:
    from bls_notebook.shipping.proof.generating import generator
    from bls_notebook.shipping.proof.proving import proving

    if arguments.generate:
        generator()
    all_equal = True
    with bls.ModelRepository(arguments.repository) as repository, redirect_stdout(sys.stderr) as messages:
        names = arguments.models or [record.name for record in repository.index()]
        load_with_callees(repository, names)
        options = {
            "generate": arguments.generate, "seed": arguments.seed, "tolerance": arguments.tolerance,
            "ulps": arguments.ulps, "instances": arguments.instances,
        }  # fmt: skip
        with ExitStack() as stack:
            prove: Callable[..., Certificate]
            if arguments.server:
                prove = partial(bls.prove, repo=repository, server=arguments.server)
            else:
                prove = stack.enter_context(proving(repository, names)).prove
            for name in names:
                proven = prove(name, **options)
                all_equal = all_equal and proven.equal
                with redirect_stdout(sys.__stdout__ or messages):
                    print(json.dumps(proven.to_dict())) if arguments.json else print_record(proven, False)
    return int(not all_equal)


PROVE = Command("compare models with copies of them on a real tritonserver", _arguments, _run)
