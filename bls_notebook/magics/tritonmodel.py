"""``%%tritonmodel``: define and load a model from a cell."""

from __future__ import annotations

import bls_notebook as bls
from bls_notebook.observe.records.repository import ModelRecord

from .failing import reported
from .notebook import Notebook
from .parsing.arguments import Parser, whole_number
from .parsing.expressions import Variables
from .parsing.model_options import add_config_options, config_of

__all__ = ["PARSER", "tritonmodel"]

PARSER = Parser(
    "%%tritonmodel",
    "Defines a Triton Python model: the cell is its model.py, the same that runs on Triton. It is loaded "
    "at once and replaces a model of this name; where it cannot be loaded, the old one goes on serving. "
    "Its configuration comes from --config or the other options here, else from %%tritonconfig, else "
    "from the model's own auto_complete_config.",
    """\
  %%tritonmodel add_sub
  %%tritonmodel add_sub --config my_config --version 2
  %%tritonmodel relay --input NAME STRING [1] --output SUM FP32 [-1] --instances 2
""",
)
_add = PARSER.add_argument
_add("name", metavar="NAME", help="the model's name")
_add("--version", type=whole_number(1), default=1, metavar="N", help="number of the version (default: 1)")
add_config_options(PARSER)
_add("-q", "--quiet", action="store_true", help="show nothing, unless it fails")


def tritonmodel(notebook: Notebook, line: str, cell: str, variables: Variables) -> ModelRecord | None:
    """Define and load a model from a cell."""
    arguments = PARSER.parse_line(line, variables)
    config = config_of(PARSER, arguments, variables)
    with reported(notebook, arguments.name):
        record = bls.current_repository().define(
            arguments.name, cell, config, arguments.version, notebook_names=variables.keys()
        )
    return None if arguments.quiet else record
