"""``%%tritonconfig``: give a model's config.pbtxt as a cell."""

from __future__ import annotations

import bls_notebook as bls
from bls_notebook.observe.records.repository import ModelRecord

from .failing import reported
from .notebook import Notebook
from .parsing.arguments import Parser
from .parsing.expressions import Variables

__all__ = ["PARSER", "tritonconfig"]

PARSER = Parser(
    "%%tritonconfig",
    "Gives a model's configuration: the cell is its config.pbtxt. It is checked at once. A model of this "
    "name that was defined by a cell is loaded again with it; otherwise the next %%tritonmodel uses it.",
    "  %%tritonconfig add_sub\n",
)
PARSER.add_argument("name", metavar="NAME", help="the model's name")
PARSER.add_argument("-q", "--quiet", action="store_true", help="show nothing, unless it fails")


def tritonconfig(notebook: Notebook, line: str, cell: str, variables: Variables) -> ModelRecord | None:
    """Give a model's config.pbtxt as a cell."""
    arguments = PARSER.parse_line(line, variables)
    with reported(notebook, arguments.name):
        record = bls.current_repository().set_config(arguments.name, cell)
    if arguments.quiet:
        return None
    if record is None:
        notebook.say(f"config of {arguments.name!r} is noted; the next %%tritonmodel of this name uses it")
    return record
