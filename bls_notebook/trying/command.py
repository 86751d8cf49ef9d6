"""``python -m bls_notebook try``: load any model repository, with stubs for models that cannot load."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import replace

import bls_notebook as bls
from bls_notebook.commands import Command, add_options, print_record
from bls_notebook.records import on_surface

from .records import TrialReport


@on_surface("shell")
def _run(arguments: argparse.Namespace) -> int:
    real = None if arguments.real is None else [name for name in arguments.real if name != "none"]
    with redirect_stdout(sys.stderr):  # keeps the models' output out of the report
        repository, report = bls.try_repository(
            arguments.folder, fill=dict(arguments.fill), model_config_name=arguments.model_config_name, real=real,
            load_timeout=arguments.load_timeout, ask=not arguments.no_ask, tell=print,
        )  # fmt: skip
        repository.close()
    print_record(in_shell(report, arguments.folder), arguments.json)
    return int(any(m.kind == "absent" or m.broken or m.unknown for m in report.models) or bool(report.left))


def in_shell(report: TrialReport, folder: str) -> TrialReport:
    """Return a report whose remedies are text; example requests follow the lines that open the repository."""
    opens = "%load_ext bls_notebook", f"%tritonrepo try {shlex.quote(folder)}"
    models = tuple(replace(model, remedy=str(model.remedy)) for model in report.models)
    requests = tuple("\n".join(filter(None, (*opens, line))) for line in report.requests[:1]) + report.requests[1:]
    return replace(report, models=models, requests=requests)


_SUMMARY = "load any model repository, with stubs for what is missing here; fails if it is broken"
TRY = Command(_SUMMARY, lambda parser: add_options(parser, __file__, "try", "the command try"), _run)
