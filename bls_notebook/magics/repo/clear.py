"""``%tritonrepo clear``: unload everything and forget the models of cells."""

from __future__ import annotations

import argparse
from functools import cache

import bls_notebook as bls
from bls_notebook.magics.failing import reported
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.arguments import Parser

from .verb import Verb

__all__ = ["CLEAR"]

_SUMMARY = "unload every model and forget those defined by cells"


@cache
def _parser() -> Parser:
    return Parser("%tritonrepo clear", _SUMMARY)


def _run(notebook: Notebook, arguments: argparse.Namespace) -> None:
    with reported(notebook):
        bls.current_repository().clear()
    notebook.say("every model is unloaded")


CLEAR = Verb("clear", _SUMMARY, _parser, _run)
