"""``%tritonrepo unload``: take models out of service."""

from __future__ import annotations

import argparse
from functools import cache

import bls_notebook as bls
from bls_notebook.magics.failing import reported
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.arguments import Parser

from .verb import Verb

__all__ = ["UNLOAD"]

_SUMMARY = "take models out of service; requests under way are finished first"


@cache
def _parser() -> Parser:
    parser = Parser("%tritonrepo unload", _SUMMARY)
    parser.add_argument("names", nargs="+", metavar="NAME", help="names of models")
    parser.add_argument("--dependents", action="store_true", help="unload what depends on them as well")
    return parser


def _run(notebook: Notebook, arguments: argparse.Namespace) -> None:
    repository = bls.current_repository()
    for name in arguments.names:
        with reported(notebook):
            served = repository.ready(name)
            repository.unload(name, arguments.dependents)
        if served:
            notebook.say(f"{name!r} is unloaded")
        else:
            notebook.say(f"{name!r} was not loaded", "info")


UNLOAD = Verb("unload", _SUMMARY, _parser, _run, lambda record: record.state == "READY")
