"""``%tritonrepo devices``: the devices that there are, and who uses their memory."""

from __future__ import annotations

import argparse
from functools import cache

import bls_notebook as bls
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.arguments import Parser
from bls_notebook.observe.records.repository import DeviceTable

from .verb import Verb

__all__ = ["DEVICES"]

_SUMMARY = "show the devices and who uses their memory"


@cache
def _parser() -> Parser:
    return Parser("%tritonrepo devices", _SUMMARY)


def _run(notebook: Notebook, arguments: argparse.Namespace) -> DeviceTable:
    return bls.list_devices()


DEVICES = Verb("devices", _SUMMARY, _parser, _run)
