"""``python -m bls_notebook try``: load any model repository, with stubs for models that cannot load."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

import bls_notebook as bls
from bls_notebook.commands import Command, key_and_value, names, print_record, seconds


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="a model repository, or a folder that contains one")
    parser.add_argument(
        "--real", type=names, metavar="MODEL,...", help="run only the code of these models; none: of no model"
    )
    parser.add_argument(
        "--fill", type=key_and_value, action="append", default=[], metavar="KEY=VALUE", help="fill a template"
    )
    parser.add_argument("--load-timeout", type=seconds, default=60.0, metavar="TIME", help="of each model, such as 60s")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def _run(arguments: argparse.Namespace) -> int:
    real = None if arguments.real is None else [name for name in arguments.real if name != "none"]
    with redirect_stdout(sys.stderr):  # keeps the models' output out of the report
        repository, report = bls.try_repository(
            arguments.folder, fill=dict(arguments.fill), real=real,
            load_timeout=arguments.load_timeout, tell=print,
        )  # fmt: skip
        repository.close()
    print_record(report, arguments.json)
    return int(any(model.kind == "absent" or model.broken for model in report.models) or bool(report.left))


TRY = Command("load any model repository, with stubs for what is missing here; fails if it is broken", _arguments, _run)
