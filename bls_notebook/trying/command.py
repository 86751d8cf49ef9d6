"""``python -m bls_notebook try``: load anybody's model repository, with stubs for what cannot be loaded."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

import bls_notebook as bls
from bls_notebook.commands import Command, print_record
from bls_notebook.records.quantities import seconds_in


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="a model repository, or a folder that holds one")
    parser.add_argument("--real", metavar="A,B", help="run the code of these models alone; none for nobody's")
    parser.add_argument("--fill", action="append", default=[], metavar="KEY=VALUE", help="fill a template")
    parser.add_argument("--load-timeout", default="60s", metavar="TIME", help="of each model, such as 60s")
    parser.add_argument("--json", action="store_true", help="print what came of it as JSON")


def _run(arguments: argparse.Namespace) -> int:
    pairs = [pair.partition("=") for pair in arguments.fill]
    wrong = next((key for key, equals, _ in pairs if not key or not equals), None)
    if wrong is not None:
        raise bls.BLSError(f"--fill: got {wrong!r}, expected KEY=VALUE, such as max_batch_size=8")
    real = None if arguments.real is None else [name for name in arguments.real.split(",") if name != "none"]
    seconds = seconds_in(arguments.load_timeout)
    if seconds is None:
        raise bls.BLSError(f"--load-timeout: got {arguments.load_timeout!r}, expected a time such as 60s")
    with redirect_stdout(sys.stderr):  # what models print is no part of the report
        repository, report = bls.try_repository(
            arguments.folder, fill={key: value for key, _, value in pairs}, real=real,
            load_timeout=seconds, tell=print,
        )  # fmt: skip
        repository.close()
    print_record(report, arguments.json)
    return int(any(model.kind == "absent" for model in report.models) or bool(report.left))


TRY = Command("load anybody's model repository, with stubs for what cannot be loaded", _arguments, _run)
