"""``%blsdrill``: run a model while its callees fail, and judge how it reacts."""

from __future__ import annotations

from typing import Any

import bls_notebook as bls
from bls_notebook.magics.arguments import (
    Parser,
    Variables,
    help_text,
    identifier,
    names,
    new_file,
    parameters_of,
    read_line,
    seconds,
    sequence,
)
from bls_notebook.magics.cell_errors import reported
from bls_notebook.magics.magic import Magic
from bls_notebook.magics.notebook import Notebook

PARSER = Parser("%blsdrill", *help_text(__file__, "%blsdrill"))
PARSER.usage = "%(prog)s MODEL [INPUT=EXPRESSION ...] [options]"
_add = PARSER.add_argument
_add("model", metavar="MODEL", help="a model that serves")
_add(
    "--faults", type=names, metavar="FAULT,...",
    help="only these faults (default: all that a callee can have)",
)  # fmt: skip
_add(
    "--pairs", action="store_true",
    help="also let two callees fail at a time; shows pairs with a worse verdict than each of the two alone",
)  # fmt: skip
_add(
    "--timeout", type=seconds, default=1.0, metavar="TIME",
    help="how much later than usual a response may come, and how long a caller has to reach its own time limit "
    "(default: 1s); time limits of event loops expire at once",
)  # fmt: skip
_add("--parameters", metavar="NAME=VALUE,...", help="parameters of the request: name=value,... or a dict expression")
_add("--sequence", type=sequence, metavar="ID[:start,end]", help="the sequence of the request")
_add("--into", type=identifier, metavar="NAME", help="store the report in this variable")
_add(
    "--save", type=new_file, metavar="FILE",
    help="write a pytest file, such as tests/test_drill_x.py, with a test for each case with an error or a problem",
)  # fmt: skip
_add("-q", "--quiet", action="store_true", help="show nothing")


def blsdrill(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Drill a model."""
    parsed_line = read_line(PARSER, line, variables)
    arguments = PARSER.parse(parsed_line.words)

    inputs = parsed_line.values(variables, "%blsdrill")
    options: dict[str, Any] = {}
    if arguments.parameters is not None:
        options["parameters"] = parameters_of(arguments.parameters, variables)
    if arguments.sequence is not None:
        options["correlation_id"], options["flags"] = arguments.sequence
    with reported(notebook):
        drilled = bls.drill(
            arguments.model, inputs, faults=arguments.faults, pairs=arguments.pairs,
            timeout=arguments.timeout, save=arguments.save, **options,
        )  # fmt: skip
    notebook.assign(arguments.into, drilled)
    if arguments.save:
        notebook.say(f"saved to {arguments.save}", hint=f"python -m pytest {arguments.save} runs it")
    return None if arguments.quiet else drilled


MAGIC = Magic(PARSER, blsdrill, takes_inputs=True)
