"""``%tritonrepo check``: what will bite, before it does."""

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
    "check", "say what will bite on a server, before it does", _check,
    "Reads configurations, sources and folders, and what was recorded of models that are loaded; runs no "
    "model's code, so models that do not load are checked too. Each finding says where, what, why it bites "
    "and how to mend it. In scripts: bls.check(); in a shell: python -m bls_notebook check FOLDER [--json].",
    "  %tritonrepo check\n  %tritonrepo check bls_sync\n  found = %tritonrepo check\n",
    suggests=lambda record: True,
)  # fmt: skip
CHECK.parser.add_argument("names", nargs="*", metavar="MODEL", help="names of models (default: all)")
