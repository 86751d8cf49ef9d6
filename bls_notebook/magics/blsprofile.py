"""``%blsprofile``: sync against async, and why; ``%%blsprofile``: profile a cell."""

from __future__ import annotations

import argparse
from functools import cache

import bls_notebook as bls

from .cell_body import cell_body
from .failing import reported
from .notebook import Notebook
from .parsing.arguments import Parser, identifier, whole_number, words_of
from .parsing.expressions import Variables, evaluate, expanded
from .parsing.request_line import read_line
from .saving import check_file, save

__all__ = ["blsprofile_cell", "blsprofile_line", "cell_parser", "parser"]

_EXAMPLES = """\
  %blsprofile digit_reader IMAGE=image -n 8
  %blsprofile resize IN=x --instances 1,2,4 --verify
  found = %blsprofile add_sub INPUT0=a INPUT1=a + b --repeat 9
"""
_CELL_EXAMPLES = """\
  %%blsprofile
  answers = %bls digit_reader IMAGE=image -n 4 --async

  %%blsprofile --into before --save before.json
  for image in images:
      %bls digit_reader IMAGE=image -q
"""


@cache
def parser() -> Parser:
    """Return the parser of ``%blsprofile``."""
    parser = Parser(
        "%blsprofile",
        "Runs one workload in two ways, N requests by exec one after the other and by async_exec all at "
        "once, and shows both on one time axis, with a sentence that says why async helped, or did not: "
        "too few instances, Python's lock, exec in a coroutine, a coroutine that blocks, batches, busy "
        "processors, or too little work; and what would help, with what that is predicted to bring. "
        "INPUT=EXPRESSION is an input by its name, as for %bls. Warmed up, repeated in random order; medians "
        "are compared. %%blsprofile profiles a cell. In scripts: bls.compare().",
        _EXAMPLES,
    )
    parser.usage = "%(prog)s MODEL [INPUT=EXPRESSION ...] [options]"
    add = parser.add_argument
    add("model", metavar="MODEL", help="the model's name")
    add(
        "-n",
        dest="count",
        type=whole_number(1),
        default=8,
        metavar="N",
        help="how many requests (default: 8)",
    )
    add(
        "--instances", type=_counts, metavar="1,2,4",
        help="measure these instance counts too, of the models that requests queue for, else of MODEL; "
        "afterwards the instances are the ones from before",
    )  # fmt: skip
    add(
        "--repeat", type=whole_number(1), metavar="R",
        help="runs of each way (default: 5, and up to 25 within a few seconds where they differ much)",
    )  # fmt: skip
    add(
        "--verify",
        action="store_true",
        help="run the change that is predicted to help most, if it is one of instance counts",
    )
    add("--into", type=identifier, metavar="NAME", help="a variable for the comparison")
    add(
        "--save",
        metavar="FILE",
        help="a file for it, for bls.load_comparison; compressed if it ends with .gz",
    )
    add("-q", "--quiet", action="store_true", help="show nothing")
    return parser


@cache
def cell_parser() -> Parser:
    """Return the parser of ``%%blsprofile``."""
    parser = Parser(
        "%%blsprofile",
        "Runs the cell, which may send requests in any way, await included, and shows what happened to them: "
        "a timeline with a lane for each instance, how long requests waited and for whom, and what the time "
        "was spent on. A cell that fails shows what was recorded until then. In scripts: with bls.profile().",
        _CELL_EXAMPLES,
    )
    add = parser.add_argument
    add("--into", type=identifier, metavar="NAME", help="a variable for the profile")
    add(
        "--save", metavar="FILE",
        help="a file for it: .json or .json.gz for bls.load_session, .pftrace, .trace.json, .csv",
    )  # fmt: skip
    add("--limit", type=whole_number(1), metavar="N", help="how many requests are kept")
    add("-q", "--quiet", action="store_true", help="show nothing")
    return parser


def _counts(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= 64 for word in words):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected counts from 1 to 64, such as 1,2,4")
    return tuple(int(word) for word in words)


def blsprofile_line(notebook: Notebook, line: str, cell: str, variables: Variables) -> bls.Comparison | None:
    """Compare exec with async_exec."""
    read = read_line(parser(), line, variables)
    arguments = parser().parse(read.words)
    check_file(parser(), arguments.save)
    inputs = {
        name: evaluate(expression, variables, f"%blsprofile: input {name}")
        for name, expression in read.inputs.items()
    }
    with reported(notebook):
        found = bls.compare(
            arguments.model, inputs, n=arguments.count, instances=arguments.instances,
            repeat=arguments.repeat, verify=arguments.verify,
        )  # fmt: skip
    notebook.assign(arguments.into, found)
    if arguments.verify and found.verification is None:
        why = "requests failed" if found.settings[0].problem else "no instance count is predicted to help"
        notebook.say(f"%blsprofile: --verify: nothing to run, as {why}", "info")
    save(notebook, "%blsprofile", found, arguments.save, "load_comparison")
    return None if arguments.quiet else found


def blsprofile_cell(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Run a cell, and show what happened to its requests."""
    __tracebackhide__ = True
    parser = cell_parser()
    arguments = parser.parse([expanded(word.plain, variables) for word in words_of(parser, line)])
    check_file(parser, arguments.save)
    body = cell_body(notebook, "%%blsprofile", cell)
    limit = {} if arguments.limit is None else {"limit": arguments.limit}
    profile = bls.profile(name=f"In [{notebook.cell_number}]", **limit)
    try:
        with profile:
            value = body()
    except BaseException:
        # Of the two, what went wrong in the cell is what matters: it is what is raised.
        _finish(notebook, profile, arguments)
        raise
    _finish(notebook, profile, arguments)
    return None if cell.rstrip().endswith(";") else value


def _finish(notebook: Notebook, profile: bls.Profile, arguments: argparse.Namespace) -> None:
    notebook.assign(arguments.into, profile)
    if not arguments.quiet:
        notebook.show(profile)
    save(notebook, "%%blsprofile", profile, arguments.save, "load_session")
