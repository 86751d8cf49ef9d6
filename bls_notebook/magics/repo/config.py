"""``%tritonrepo config``: a model's configuration, with everything that Triton fills in."""

from __future__ import annotations

import argparse
from functools import cache

import bls_notebook as bls
from bls_notebook.display import Display, render_config
from bls_notebook.magics.failing import reported
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.arguments import Parser

from .verb import Verb

__all__ = ["CONFIG"]

_SUMMARY = "show a model's completed configuration as config.pbtxt"


@cache
def _parser() -> Parser:
    parser = Parser("%tritonrepo config", _SUMMARY)
    parser.add_argument("name", metavar="NAME", help="name of a model that is loaded")
    return parser


def _run(notebook: Notebook, arguments: argparse.Namespace) -> Display:
    from bls_notebook.repository.config import to_pbtxt

    with reported(notebook):
        config = bls.current_repository().config(arguments.name)
    return render_config(arguments.name, to_pbtxt(config), width=notebook.settings.width)


CONFIG = Verb("config", _SUMMARY, _parser, _run, lambda record: record.state == "READY")
