"""The verb ``%tritonrepo check``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import bls_notebook as bls
from bls_notebook.magics.cell_errors import reported
from bls_notebook.magics.magic import Verb
from bls_notebook.magics.notebook import Notebook

if TYPE_CHECKING:
    from .records import Findings


def _check(notebook: Notebook, arguments: argparse.Namespace) -> Findings:
    with reported(notebook):
        return bls.check(*arguments.names)


CHECK = Verb(
    "check", "find problems that models will have on a server", _check,
    "Reads configurations, sources, folders, and records of loaded models. It runs no model's code, so it also "
    "checks models that do not load. Each finding names the place, the problem, its effect and the fix. In "
    "scripts: bls.check(); in a shell: python -m bls_notebook check FOLDER [--json].",
    "  %tritonrepo check\n  %tritonrepo check bls_sync\n  findings = %tritonrepo check\n",
    suggests=lambda record: True,
)  # fmt: skip
CHECK.parser.add_argument("names", nargs="*", metavar="MODEL", help="names of models (default: all)")
