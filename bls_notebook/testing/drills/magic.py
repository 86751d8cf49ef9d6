"""``%blsdrill``: what a model does while the models that it calls misbehave."""

from __future__ import annotations

from typing import Any

import bls_notebook as bls
from bls_notebook.magics.arguments import (
    Parser,
    Variables,
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

PARSER = Parser(
    "%blsdrill",
    "Sends MODEL one request as it is, and keeps what the models that it calls answer. Then each of these in "
    "turn misbehaves: error, cancelled, raises, not-ready, unloaded, out-of-memory; missing-output, empty, "
    "shape, data-type, nan, inf, huge; of streams no-response, early-end, duplicate, error-midway, "
    "no-final-flag; stall, slow, other-order. A table says what MODEL did: told of it clearly, answered "
    "without it, lost the error in another one, passed rubbish on, did not answer, left something behind; "
    "and where in the code. Nothing waits for long: a callee that stalls is let go once it is known that "
    "nobody would have given up. INPUT=EXPRESSION is an input by its name, as for %bls. In scripts: "
    "bls.drill(); in a shell: python -m bls_notebook drill.",
    """\
  %blsdrill digit_reader IMAGE=image
  %blsdrill digit_reader IMAGE=image --faults error,stall,nan --pairs
  found = %blsdrill pipeline IN=x --timeout 3s --save tests/test_drill_pipeline.py
""",
)
PARSER.usage = "%(prog)s MODEL [INPUT=EXPRESSION ...] [options]"
_add = PARSER.add_argument
_add("model", metavar="MODEL", help="a model that serves")
_add(
    "--faults", type=names, metavar="FAULT,...",
    help="these faults alone (default: all that a callee can have)",
)  # fmt: skip
_add(
    "--pairs", action="store_true",
    help="try two models at a time too; pairs are told that are worse than each of the two",
)  # fmt: skip
_add(
    "--timeout", type=seconds, default=1.0, metavar="TIME",
    help="that an answer may take more than when all is well, and in which a caller reaches a time limit of "
    "its own (default: 1s); time limits of event loops need none",
)  # fmt: skip
_add("--parameters", metavar="NAME=VALUE,...", help="of the request: name=value,... or an expression for a dict")
_add("--sequence", type=sequence, metavar="ID[:start,end]", help="the sequence that the request belongs to")
_add("--into", type=identifier, metavar="NAME", help="a variable for what was found")
_add(
    "--save", type=new_file, metavar="FILE",
    help="a file to write with a test for pytest for each fault that showed something, such as "
    "tests/test_drill_x.py",
)  # fmt: skip
_add("-q", "--quiet", action="store_true", help="show nothing")


def blsdrill(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Drill a model."""
    read = read_line(PARSER, line, variables)
    arguments = PARSER.parse(read.words)

    inputs = read.values(variables, "%blsdrill")
    options: dict[str, Any] = {}
    if arguments.parameters is not None:
        options["parameters"] = parameters_of(arguments.parameters, variables)
    if arguments.sequence is not None:
        options["correlation_id"], options["flags"] = arguments.sequence
    with reported(notebook):
        found = bls.drill(
            arguments.model, inputs, faults=arguments.faults, pairs=arguments.pairs,
            timeout=arguments.timeout, save=arguments.save, **options,
        )  # fmt: skip
    notebook.assign(arguments.into, found)
    if arguments.save:
        notebook.say(f"saved to {arguments.save}", hint=f"python -m pytest {arguments.save} runs it")
    return None if arguments.quiet else found


MAGIC = Magic(PARSER, blsdrill, takes_inputs=True)
