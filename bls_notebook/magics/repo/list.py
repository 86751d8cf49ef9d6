"""``%tritonrepo list``: every version of every model that is known."""

from __future__ import annotations

import argparse
from functools import cache

import bls_notebook as bls
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.output.results import Models
from bls_notebook.magics.parsing.arguments import Parser

from .verb import Verb

__all__ = ["LIST"]

_SUMMARY = "show every model that is known, its state and why"


@cache
def _parser() -> Parser:
    return Parser("%tritonrepo list", _SUMMARY)


def _run(notebook: Notebook, arguments: argparse.Namespace) -> Models:
    return Models(bls.current_repository().index())


LIST = Verb("list", _SUMMARY, _parser, _run)
