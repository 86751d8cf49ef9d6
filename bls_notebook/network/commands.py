"""``python -m bls_notebook endpoint``: serve the models of a repository from this process until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from typing import Any

import bls_notebook as bls
from bls_notebook.commands import Command, add_options, print_record
from bls_notebook.repository import load_with_callees


def header_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `bls.endpoint` from the options of the same names."""
    names = "http_restricted_api grpc_restricted_protocol http_header_forward_pattern grpc_header_forward_pattern"
    return {name: getattr(arguments, name) for name in names.split()}


def _run(arguments: argparse.Namespace) -> int:
    with bls.ModelRepository(arguments.repository) as repository:
        with redirect_stdout(sys.stderr):
            load_with_callees(repository, arguments.models)
        endpoint = bls.endpoint(
            repository, http_port=arguments.http_port, grpc_port=arguments.grpc_port,
            token="" if arguments.no_token else arguments.token, **header_arguments(arguments),
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


_SUMMARY = "serve models to Triton clients from this process until Ctrl-C"
ENDPOINT = Command(_SUMMARY, lambda parser: add_options(parser, __file__, "the command endpoint", "a listener"), _run)
