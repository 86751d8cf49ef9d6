"""The verb ``%tritonrepo check``."""

from __future__ import annotations

import argparse

import bls_notebook as bls
from bls_notebook.magics import Notebook, Verb, reported

from .records import Findings


def _check(notebook: Notebook, arguments: argparse.Namespace) -> Findings:
    with reported(notebook):
        return bls.check(*arguments.names)


CHECK = Verb("check", "find problems that models will have on a server", _check, __file__, suggests=lambda record: True)
