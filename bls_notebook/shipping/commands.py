"""The commands ``export``, ``serve`` and ``prove`` of ``python -m bls_notebook``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout, suppress
from functools import partial
from typing import Any

import bls_notebook as bls
from bls_notebook.commands import Command, add_options, print_record
from bls_notebook.repository import load_with_callees

from .exports.deployment import TARGETS
from .records import Certificate


def add_target_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--for", dest="target", default="", choices=TARGETS, metavar="PLACE",
        help=f"also write the files to deploy the models: {', '.join(TARGETS)}",
    )  # fmt: skip


def target_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return these options as arguments of `export`."""
    return {name: getattr(arguments, name) for name in ("target", "replicas", "completed", "secrets", "keep_going")}


def add_container_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--container", nargs="?", const=True, default=False, metavar="IMAGE",
        help="serve in a docker container (default image: NVIDIA's tritonserver)",
    )  # fmt: skip


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, __file__, "a command", "a place", "models", "export")
    add_target_options(parser)


def _run_export(arguments: argparse.Namespace) -> int:
    with bls.ModelRepository(arguments.repository) as repository:
        every = arguments.models or [record.name for record in repository.index()]
        for names in [[name] for name in every] if arguments.keep_going else [arguments.models]:
            with suppress(*([bls.BLSError] * arguments.keep_going)):
                load_with_callees(repository, names)
        exported = bls.export(arguments.place, *arguments.models, repo=repository, **target_options(arguments))
    print_record(exported, arguments.json)
    return 0


EXPORT = Command("write models as a model repository for a server", _export_arguments, _run_export)


def _serve_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, __file__, "a command", "models")
    add_container_option(parser)


def _run_serve(arguments: argparse.Namespace) -> int:
    with redirect_stdout(sys.stderr), bls.ModelRepository(arguments.repository) as repository:
        load_with_callees(repository, arguments.models)
        server = bls.serve(*arguments.models, repo=repository, container=arguments.container)
    with server:
        try:
            print_record(server.record, arguments.json)
            sys.stdout.flush()  # a process that reads the addresses from a pipe needs them now
            print("Ctrl-C stops it.", file=sys.stderr)
            server.wait()
        except KeyboardInterrupt:
            return 0
        except bls.BLSError as error:
            print(error, file=sys.stderr)
    return 1


SERVE = Command("serve models with the real tritonserver until Ctrl-C", _serve_arguments, _run_serve)


def prove_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the given options of a proof as arguments of `prove`, without the server."""
    names = ("generate", "seed", "tolerance", "ulps", "instances", "timeout")
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def _prove_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, __file__, "a command", "models", "prove")
    parser.set_defaults(generate=100)


def _run_prove(arguments: argparse.Namespace) -> int:
    from .proof.prover import proving
    from .proof.requests import generator

    if arguments.generate:
        generator()
    all_equal = True
    with bls.ModelRepository(arguments.repository) as repository, redirect_stdout(sys.stderr) as messages:
        names = arguments.models or [record.name for record in repository.index()]
        load_with_callees(repository, names)
        with ExitStack() as stack:
            prove: Callable[..., Certificate]
            if arguments.server:
                prove = partial(bls.prove, repo=repository, server=arguments.server)
            else:
                prove = stack.enter_context(proving(repository, names)).prove
            for name in names:
                certificate = prove(name, **prove_options(arguments))
                all_equal = all_equal and certificate.equal
                with redirect_stdout(sys.__stdout__ or messages):
                    if arguments.json:
                        print(json.dumps(certificate.to_dict()))
                    else:
                        print_record(certificate, False)
    return int(not all_equal)


PROVE = Command("compare models with copies of them on a real tritonserver", _prove_arguments, _run_prove)
