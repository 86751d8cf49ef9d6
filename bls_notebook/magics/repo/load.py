"""``%tritonrepo load``: load models of the repository's folders."""

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

__all__ = ["LOAD"]

_SUMMARY = "load models; what is loaded and unchanged stays as it is"


@cache
def _parser() -> Parser:
    parser = Parser(
        "%tritonrepo load", _SUMMARY, "  %tritonrepo load add_sub bls_sync\n  %tritonrepo load --all\n"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of models")
    parser.add_argument("--all", action="store_true", help="every model that is known")
    return parser


def _run(notebook: Notebook, arguments: argparse.Namespace) -> ModelRecord | Models:
    repository = bls.current_repository()
    names = arguments.names
    if bool(names) == arguments.all:
        _parser().error("expected names of models, or --all")
    if arguments.all:
        names = [record.name for record in repository.index()]
    return each_model(notebook, names, repository.load)


LOAD = Verb("load", _SUMMARY, _parser, _run, lambda record: record.state != "READY")
