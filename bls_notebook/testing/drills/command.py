"""``python -m bls_notebook drill``: run a model while its callees fail, and report how it reacts."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import redirect_stdout

import bls_notebook as bls
from bls_notebook.commands import Command, add_options, print_record
from bls_notebook.repository import load_with_callees


def _run(arguments: argparse.Namespace) -> int:
    inputs = dict(_input(pair) for pair in arguments.inputs)
    with redirect_stdout(sys.stderr), bls.ModelRepository(arguments.repository) as repository:
        load_with_callees(repository, [arguments.model, *(arguments.load or ())])
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


_SUMMARY = "run a model while its callees fail, and report how it reacts"
DRILL = Command(_SUMMARY, lambda parser: add_options(parser, __file__, "the command drill", "drill"), _run)
