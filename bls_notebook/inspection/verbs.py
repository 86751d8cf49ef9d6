"""``%tritonrepo watch``: a live panel of what each model does now."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import bls_notebook as bls
from bls_notebook.magics.magic import Verb
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.shell.cell_errors import reported

if TYPE_CHECKING:
    from .repository_watch import Watch


def _watch(notebook: Notebook, arguments: argparse.Namespace) -> Watch:
    with reported(notebook):
        return bls.watch(arguments.seconds)


WATCH = Verb(
    "watch", "a live panel: what each model does now, its queue, rate and latency, and the memory", _watch,
    "It goes on while cells run, and ends when its output is cleared. A right click on it, then Create New "
    "View for Cell Output, docks it beside the notebook. Its buttons load, unload and reload models. In a "
    "terminal, or without anywidget, it is a table of this moment. In scripts: bls.watch().",
    "  %tritonrepo watch\n",
)  # fmt: skip
WATCH.parser.add_argument("--seconds", type=float, default=0.5, metavar="S", help="how often it looks (default: 0.5)")
