"""``%tritonrepo reload``: load models again, also where nothing has changed."""

from __future__ import annotations

import argparse
from functools import cache

import bls_notebook as bls
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.output.results import Models
from bls_notebook.magics.parsing.arguments import Parser
from bls_notebook.observe.records.repository import ModelRecord

from .each import each_model
from .verb import Verb

__all__ = ["RELOAD"]

_SUMMARY = "load models again, also where their files have not changed"


@cache
def _parser() -> Parser:
    parser = Parser("%tritonrepo reload", _SUMMARY)
    parser.add_argument("names", nargs="+", metavar="NAME", help="names of models")
    return parser


def _run(notebook: Notebook, arguments: argparse.Namespace) -> ModelRecord | Models:
    return each_model(notebook, arguments.names, bls.current_repository().reload)


RELOAD = Verb("reload", _SUMMARY, _parser, _run, lambda record: record.state == "READY")
