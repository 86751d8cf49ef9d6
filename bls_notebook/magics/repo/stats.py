"""``%tritonrepo stats``: what models have done, and where the time of their requests went."""

from __future__ import annotations

import argparse
from functools import cache

import bls_notebook as bls
from bls_notebook.magics.failing import reported
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.output.results import Statistics
from bls_notebook.magics.parsing.arguments import Parser

from .verb import Verb

__all__ = ["STATS"]

_SUMMARY = "show what models have done: requests, executions, batches, times, cache"


@cache
def _parser() -> Parser:
    parser = Parser(
        "%tritonrepo stats",
        f"{_SUMMARY}. The figures are those of Triton's statistics extension; they count from when a version "
        "was loaded. The value is a list of records.",
        "  %tritonrepo stats\n  figures = %tritonrepo stats add_sub\n",
    )
    parser.add_argument(
        "names", nargs="*", metavar="MODEL", help="names of models that are loaded (default: all)"
    )
    return parser


def _run(notebook: Notebook, arguments: argparse.Namespace) -> Statistics:
    with reported(notebook):
        return Statistics(bls.current_repository().statistics_records(*arguments.names))


STATS = Verb("stats", _SUMMARY, _parser, _run, lambda record: record.state == "READY")
