"""``python -m bls_notebook drill``: run a model while its callees fail, and report how it reacts."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import redirect_stdout

import bls_notebook as bls
from bls_notebook.commands import Command, names, print_record, seconds
from bls_notebook.repository.call_order import load_with_callees


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("model", help="the model to drill; its callees fail")
    parser.add_argument(
        "inputs", nargs="*", metavar="INPUT=VALUE", help="inputs of a request that succeeds, as JSON or @FILE.npy"
    )
    parser.add_argument("--faults", type=names, metavar="FAULT,...", help="only these faults, such as error,stall,nan")
    parser.add_argument(
        "--load",
        type=names,
        default=[],
        metavar="MODEL,...",
        help="also load these models, such as callees that an input names",
    )
    parser.add_argument("--pairs", action="store_true", help="also let two callees fail at a time")
    parser.add_argument(
        "--timeout", type=seconds, default=1.0, metavar="TIME", help="how much later than usual a response may come"
    )
    parser.add_argument("--save", metavar="FILE", help="write tests for pytest, such as tests/test_drill_x.py")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def _run(arguments: argparse.Namespace) -> int:
    inputs = dict(_input(pair) for pair in arguments.inputs)
    with redirect_stdout(sys.stderr), bls.ModelRepository(arguments.repository) as repository:
        load_with_callees(repository, [arguments.model, *arguments.load])
        drilled = bls.drill(
            arguments.model, inputs, faults=arguments.faults, pairs=arguments.pairs, timeout=arguments.timeout,
            repo=repository, save=arguments.save,
        )  # fmt: skip
    print_record(drilled, arguments.json)
    return int(bool(drilled.of("bad")))


def _input(pair: str) -> tuple[str, object]:
    """Parse an input of the command line."""
    import numpy as np

    name, equals, value = pair.partition("=")
    try:
        if not (name and equals):
            raise ValueError("it has no name")
        return name, np.load(value[1:], allow_pickle=False) if value[:1] == "@" else json.loads(value)
    except (ValueError, OSError) as error:
        raise bls.BLSError(
            f"got {pair!r}, expected INPUT=VALUE with JSON or @FILE.npy, such as IN=[1,2]: {error}"
        ) from error


DRILL = Command("run a model while its callees fail, and report how it reacts", _arguments, _run)
