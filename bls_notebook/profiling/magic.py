"""``%blsprofile`` compares sync with async calls of a model; ``%%blsprofile`` profiles a cell."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import Any

import bls_notebook as bls
from bls_notebook.magics import (
    Magic,
    Notebook,
    Parser,
    Variables,
    add_options,
    cell_body,
    fail_on,
    help_text,
    identifier,
    new_file,
    read_line,
    reported,
)
from bls_notebook.profiling.dependences.records import Overlap
from bls_notebook.progress import progress

PARSER = Parser("%blsprofile", *help_text(__file__, "%blsprofile"))
PARSER.usage = "%(prog)s MODEL [INPUT=EXPRESSION ...] [options]"
add_options(PARSER, __file__, "%blsprofile", identifier=identifier, new_file=new_file)
CELL_PARSER = Parser("%%blsprofile", *help_text(__file__, "%%blsprofile"))
add_options(CELL_PARSER, __file__, "%%blsprofile", identifier=identifier, new_file=new_file)


def blsprofile_line(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Compare exec with async_exec."""
    read = read_line(PARSER, line, variables)
    arguments = PARSER.parse(read.words)
    inputs = read.values(variables, "%blsprofile")
    if arguments.apply and not arguments.overlap:
        PARSER.error("--apply makes the change that --overlap finds: give both")
    if arguments.tune:
        return _tuned(notebook, arguments, inputs)
    if arguments.overlap:
        if arguments.instances or arguments.verify or arguments.save:
            PARSER.error("--overlap examines one model: leave --instances, --verify and --save out")
        with reported(notebook):
            overlap = bls.overlap(
                arguments.model, inputs, n=arguments.n or 1, repeat=arguments.repeat, apply=arguments.apply
            )
        notebook.assign(arguments.into, overlap)
        if arguments.apply:
            _make_cell(notebook, overlap, arguments.into or "")
        return None if arguments.quiet else overlap
    with reported(notebook):
        comparison = bls.compare(
            arguments.model, inputs, n=arguments.n, instances=arguments.instances,
            repeat=arguments.repeat, verify=arguments.verify,
        )  # fmt: skip
    notebook.assign(arguments.into, comparison)
    notebook.remember(comparison)
    if arguments.verify and comparison.verification is None:
        why = "requests failed" if comparison.settings[0].problem else "no instance count is predicted to help"
        notebook.say(f"%blsprofile: --verify: nothing to run, as {why}", "info")
    notebook.save("%blsprofile", comparison, arguments.save, readable=True)
    fail_on(notebook, [setting.problem for setting in comparison.settings if setting.problem], comparison)
    return None if arguments.quiet else comparison


def _make_cell(notebook: Notebook, overlap: Overlap, variable: str) -> None:
    """Put the proven change into a new cell, or report why there is none."""
    code = overlap.code
    if code is None:
        why = "it was not proven" if overlap.problem else "there is nothing to gain"
        notebook.say(f"%blsprofile: --apply: no change is made, as {why}", "info")
        return
    if not code.source or not code.proven:
        return  # the display of the overlap says why
    where = f"{variable}.code.source" if variable else "code.source of the result"
    if code.folder:
        notebook.say(
            f"%blsprofile: --apply: {overlap.model!r} is in {code.folder}, whose files are not changed", "info",
            f"the changed model.py is {where}",
        )  # fmt: skip
        return
    line = notebook.definition_lines.get(overlap.model, overlap.model)
    shell: Any = notebook.shell
    shell.set_next_input(f"%%tritonmodel {line.strip()}\n{code.source.rstrip()}\n", replace=False)
    notebook.say(
        f"the changed {overlap.model!r} is in the cell below: run that cell to put it into service",
        hint="the cell that defines it now is unchanged",
    )


def _tuned(notebook: Notebook, arguments: argparse.Namespace, inputs: dict[str, object]) -> object:
    if arguments.instances or arguments.overlap:
        PARSER.error("--tune searches instance counts itself: leave --instances and --overlap out")
    if arguments.save and not arguments.save.endswith(".pbtxt"):
        PARSER.error(f"--save: got {arguments.save!r}, expected a name that ends with .pbtxt (the changed lines)")
    options = {} if arguments.n is None else {"n": arguments.n}
    with reported(notebook):
        tuning = bls.tune(arguments.model, inputs, verify=arguments.verify, repeat=arguments.repeat, **options)
    notebook.assign(arguments.into, tuning)
    notebook.save("%blsprofile", tuning, arguments.save)
    return None if arguments.quiet else tuning


def blsprofile_cell(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Run a cell and show the profile of its requests."""
    __tracebackhide__ = True
    arguments = CELL_PARSER.parse_line(line, variables)
    body = cell_body(notebook, "%%blsprofile", cell)
    limit = {} if arguments.limit is None else {"limit": arguments.limit}
    name = f"In [{notebook.cell_number}]"
    profile = bls.profile(name=name, **limit)
    recorder: Any = nullcontext()
    if arguments.record is not None:
        with reported(notebook):
            recorder = bls.record(arguments.record, tensors="all")
    try:
        with recorder, profile:
            value = body()
    finally:
        notebook.assign(arguments.into, profile)
        notebook.remember(profile)
        with progress(f"analyzing {len(profile.record.spans):,} spans"):
            if not arguments.quiet:
                notebook.show(profile)
            notebook.save("%%blsprofile", profile, arguments.save, readable=True)
    return None if cell.rstrip().endswith(";") else value


LINE_MAGIC = Magic(PARSER, blsprofile_line, takes_inputs=True)
CELL_MAGIC = Magic(CELL_PARSER, blsprofile_cell)
