"""``%blsdrill``: run a model while its callees fail, and judge how it reacts."""

from __future__ import annotations

from typing import Any

import bls_notebook as bls
from bls_notebook.commands import add_options
from bls_notebook.magics import (
    Magic,
    Notebook,
    Parser,
    Variables,
    help_text,
    identifier,
    new_file,
    parameters_of,
    read_line,
    reported,
    sequence,
)

PARSER = Parser("%blsdrill", *help_text(__file__, "%blsdrill"))
PARSER.usage = "%(prog)s MODEL [INPUT=EXPRESSION ...] [options]"
add_options(PARSER, __file__, "drill", "%blsdrill", identifier=identifier, new_file=new_file, sequence=sequence)


def blsdrill(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
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
