"""``%tritonrepo metrics``: the metrics of models, and Triton's own."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import cache

import bls_notebook as bls
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.output.results import Families
from bls_notebook.magics.parsing.arguments import Parser

from .verb import Verb

__all__ = ["METRICS"]

_SUMMARY = "show custom metrics of models, and Triton's own (nv_*)"


@cache
def _parser() -> Parser:
    parser = Parser(
        "%tritonrepo metrics",
        f"{_SUMMARY}. The value is a list of records. With --raw it is what Prometheus would read.",
        '  %tritonrepo metrics\n  %tritonrepo metrics latency\n  %tritonrepo metrics model="add_sub" --raw\n',
    )
    parser.add_argument(
        "filter",
        nargs="?",
        default="",
        metavar="FILTER",
        help='part of a name, of a help text or of a label (model="add_sub")',
    )
    parser.add_argument("--raw", action="store_true", help="print them in Prometheus's text format")
    return parser


def _run(notebook: Notebook, arguments: argparse.Namespace) -> Families | None:
    metrics = bls.current_repository().metrics
    if arguments.raw:
        text = metrics.text(arguments.filter)
        print(text, end="")
        found = bool(text)
    else:
        families = Families(metrics.families(arguments.filter))
        found = bool(families)
    if not found and arguments.filter:
        known = [family.name for family in metrics.families()]
        notebook.say(
            f"no metric has {arguments.filter!r} in its name, help or labels",
            "info",
            f"there are {', '.join(known)}" if known else "there are no metrics yet",
        )
        return None
    return None if arguments.raw else families


def _offers() -> Iterable[str]:
    return [family.name for family in bls.current_repository().metrics.families()]


METRICS = Verb("metrics", _SUMMARY, _parser, _run, offers=_offers)
