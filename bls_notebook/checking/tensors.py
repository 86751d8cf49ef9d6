"""Tensors: what the code makes and reads, beside what the configuration declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bls_notebook.records.advice.known import nearest

from .code import Code
from .material import Material
from .records import Finding


def tensor_findings(model: Material) -> Iterator[Finding]:
    """Yield where the code and the configuration of a Python model differ."""
    code = model.newest()
    if code is None or not model.known or code.mistake:
        return
    yield from _outputs(model, code)
    yield from _inputs(model, code)
    yield from _only_first_row(model, code)


def _outputs(model: Material, code: Code) -> Iterator[Finding]:
    made = code.made
    names = {name for name, _ in made.names}
    for name, line in sorted(made.names, key=lambda each: each[1]):
        if name not in model.outputs:
            yield model.in_code(
                "warning", "output-undeclared", code, line,
                f"output {name!r} is made, and config.pbtxt declares none of that "
                f"name{_meant(name, model.outputs.keys() - names)}",
                "A server drops it, and says nothing.",
                f"Declare it: `output [ {{ name: {_quoted(name)} ... }} ]`, or leave it out of the response.",
            )  # fmt: skip
    if not made.certain:
        return
    for name in model.outputs:
        if name not in names:
            yield model.in_config(
                "error", "output-never-made", "output.name",
                f"output {name!r} is declared, and no response of model.py has it"
                f"{_meant(name, names - model.outputs.keys())}",
                "A requester that asks for it gets a response without it; one that reads it fails.",
                "Make it in `execute`, or take it out of config.pbtxt.", value=name,
            )  # fmt: skip


def _inputs(model: Material, code: Code) -> Iterator[Finding]:
    declared = {*model.inputs, *model.controls}
    told: set[str] = set()
    for read in code.reads:
        if read.name in declared or read.guarded or read.name in told:
            continue
        told.add(read.name)
        if model.config.HasField("sequence_batching"):
            mend = f"Add it to `input`, or to `control_input [ {{ name: {_quoted(read.name)} ... }} ]`."
        else:
            mend = "Declare it in config.pbtxt, or correct the name."
        yield model.in_code(
            "error", "input-undeclared", code, read.line,
            f"input {read.name!r} is read, and config.pbtxt declares none of that "
            f"name{_meant(read.name, declared - {each.name for each in code.reads})}",
            "A request that brings it is refused, and without it `get_input_tensor_by_name` gives None, "
            "whose `as_numpy` does not exist.",
            mend,
        )  # fmt: skip


def _only_first_row(model: Material, code: Code) -> Iterator[Finding]:
    most = model.config.max_batch_size
    if most < 2:
        return
    for name, line in code.first_rows:
        if name in model.inputs:
            yield model.in_code(
                "warning", "batch-first-row", code, line,
                f"only row 0 of input {name!r} is used, though a request may have {most} rows",
                f"max_batch_size is {most}: the first dimension of every array is the batch. Of a request "
                "with more rows the others are dropped without a word.",
                "Work on all rows, or set `max_batch_size: 0` and give `dims` the whole shape.",
            )  # fmt: skip


def _meant(name: str, known: Iterable[str]) -> str:
    close = nearest(name, sorted(known))
    return f" (is {close!r} meant?)" if close else ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '\\"') + '"'
