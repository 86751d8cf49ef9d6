"""``%%tritonmodel`` and ``%%tritonconfig``: define a model by a cell, and give its config.pbtxt as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import bls_notebook as bls

from .magic import Magic
from .notebook import Notebook
from .parsing.arguments import Parser, whole_number
from .parsing.model_options import add_config_options, config_of
from .parsing.words import Variables
from .shell.cell_errors import reported, with_changes_to_show
from .shell.cell_place import place_of

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord

PARSER = Parser(
    "%%tritonmodel",
    "Defines a Triton Python model: the cell is its model.py, the same that runs on Triton. It is loaded "
    "at once and replaces a model of this name; where it cannot be loaded, the old one goes on serving. "
    "Its configuration comes from --config or the other options here, else from %%tritonconfig, else "
    "from the model's own auto_complete_config. What it changes of a model that a cell has defined before "
    "is folded below it; models that call this one are named if its inputs or outputs are others now. "
    "A breakpoint in the cell stops there when the model is called: in JupyterLab switch the debugger on "
    "(the bug above the notebook) and click beside a line.",
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

CONFIG_PARSER = Parser(
    "%%tritonconfig",
    "Gives a model's configuration: the cell is its config.pbtxt. It is checked at once. A model of this "
    "name that was defined by a cell is loaded again with it; otherwise the next %%tritonmodel uses it.",
    "  %%tritonconfig add_sub\n",
)
CONFIG_PARSER.add_argument("name", metavar="NAME", help="the model's name")
CONFIG_PARSER.add_argument("-q", "--quiet", action="store_true", help="show nothing, unless it fails")


def tritonmodel(notebook: Notebook, line: str, cell: str, variables: Variables) -> ModelRecord | None:
    """Define and load a model from a cell."""
    arguments = PARSER.parse_line(line, variables)
    config = config_of(PARSER, arguments, variables)
    place = place_of(notebook, cell)
    with reported(notebook, arguments.name):
        record = bls.current_repository().define(
            arguments.name, cell, config, arguments.version, variables.keys(), place
        )
    notebook.definition_lines[arguments.name] = line
    record = with_changes_to_show(notebook, (cell, repr(config)), record)
    return None if arguments.quiet else record


def tritonconfig(notebook: Notebook, line: str, cell: str, variables: Variables) -> ModelRecord | None:
    """Give a model's config.pbtxt as a cell."""
    arguments = CONFIG_PARSER.parse_line(line, variables)
    with reported(notebook, arguments.name):
        record = bls.current_repository().set_config(arguments.name, cell)
    if arguments.quiet:
        return None
    if record is None:
        notebook.say(f"config of {arguments.name!r} is noted; the next %%tritonmodel of this name uses it")
        return None
    return with_changes_to_show(notebook, ("", cell), record)


MAGIC = Magic(PARSER, tritonmodel)
CONFIG_MAGIC = Magic(CONFIG_PARSER, tritonconfig)
