"""``%blsprofile``, ``%%blsprofile``, ``%blsoverlap`` and ``%blstune``."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import bls_notebook as bls
from bls_notebook.magics import MagicCall, cell_body, reported
from bls_notebook.operations import (
    INTO,
    MODEL,
    QUIET,
    SAVE,
    OperationSpec,
    counts,
    flag,
    new_file_with,
    option,
    whole_number,
)
from bls_notebook.progress import progress

from .analysis.before_after import before_after
from .compared_profiles import side_of
from .dependences.records import Overlap
from .records.comparison import Comparison

_N = option("-n", "N", "number of requests (default: 8)", whole_number(1))
_REPEAT = option("--repeat", "N", "runs of each kind (default: 5, and up to 25 if they differ much)", whole_number(1))


_AGAINST = option("--against", "NAME", "an earlier profile to compare with: its variable, or the file of a saved one")


def _earlier(call: MagicCall, against: str) -> Any:
    """Return the profile of a variable, or the path of a file."""
    return call.variables.get(against, against)


def _compare(call: MagicCall, against: str = "", **options: Any) -> Comparison:
    comparison = bls.compare(**options, against=_earlier(call, against) if against else None)
    call.notebook.remember(comparison)
    if options.get("verify") and comparison.verification is None:
        failed = any(setting.problem for setting in comparison.settings)
        why = "requests failed" if failed else "no instance count is predicted to help"
        call.notebook.say(f"%blsprofile: --verify: nothing to run, as {why}", "info")
    return comparison


COMPARE = OperationSpec(
    """Compare N requests by exec one after the other with N by async_exec all at once. The display has both on one
    time axis, with a verdict that names why async helped or did not: too few instances, the GIL, exec in a
    coroutine, a coroutine that blocks, batches, busy processors, or too little work. The advice names a change and
    its predicted speedup. The slowest lines of the models are on top. INPUT=EXPRESSION gives an input by name, as
    for %bls. The models are warmed up, the runs repeat in random order, and their
    medians are compared. %%blsprofile profiles a cell, %blstune searches for the smallest setting that is nearly
    the fastest. In scripts: bls.compare(). Guide: docs/guides/where_time_goes.md.""",
    "compare",
    (
        MODEL,
        _N,
        option("--instances", "N,...", "also measure these counts of the models with a queue, or of MODEL", counts),
        _REPEAT,
        flag("--verify", "run the instance count that is predicted to help most"),
        _AGAINST,
        SAVE,
        QUIET,
    ),
    """
    %blsprofile digit_reader IMAGE=image -n 8
    %blsprofile resize IN=x --instances 1,2,4 --verify
    before = %blsprofile add_sub INPUT0=a INPUT1=a + b --repeat 9
    %blsprofile add_sub INPUT0=a INPUT1=a + b --against before
    """,
    form="inputs",
    notebook=_compare,
    problems=lambda comparison: [setting.problem for setting in comparison.settings if setting.problem],
)


def _overlap(call: MagicCall, **options: Any) -> Overlap:
    overlap = bls.overlap(**options)
    if options.get("apply"):
        _make_cell(call, overlap)
    return overlap


def _make_cell(call: MagicCall, overlap: Overlap) -> None:
    """Put the proven change into a new cell, or report why there is none."""
    notebook, code = call.notebook, overlap.code
    if code is None:
        why = "which calls are independent is unknown" if overlap.outcome == "unknown" else "there is nothing to gain"
        why = "it was not proven" if overlap.problem else why
        notebook.say(f"%blsoverlap: --apply: no change is made, as {why}", "info")
        return
    if not code.source or not code.proven:
        return  # the display of the overlap says why
    if code.folder:
        notebook.say(
            f"%blsoverlap: --apply: {overlap.model!r} is in {code.folder}, whose files are not changed", "info",
            "the changed model.py is code.source of the result",
        )  # fmt: skip
        return
    line = notebook.definition_lines.get(overlap.model, overlap.model)
    shell: Any = notebook.shell
    shell.set_next_input(f"%%tritonmodel {line.strip()}\n{code.source.rstrip()}\n", replace=False)
    notebook.say(
        f"the changed {overlap.model!r} is in the cell below: run that cell to put it into service",
        hint="the cell that defines it now is unchanged",
    )


OVERLAP = OperationSpec(
    """Find the calls of a model that are independent, so that they could run together. MODEL runs again with changed
    answers of its callees, up to 50 times; these runs reach no callee. The display has the gain of running independent
    calls together, and the code to write. In scripts: bls.overlap(). Guide: docs/guides/where_time_goes.md.""",
    "overlap",
    (
        MODEL,
        option("-n", "N", "number of requests (default: 1)", whole_number(1)),
        _REPEAT,
        flag("--apply", "prove that the changed model gives equal answers and is faster; put it into a cell below"),
        QUIET,
    ),
    """
    %blsoverlap digit_reader IMAGE=image
    %blsoverlap digit_reader IMAGE=image --apply
    """,
    form="inputs",
    notebook=_overlap,
)


TUNE = OperationSpec(
    """Find the smallest setting with which N requests at once are nearly as fast as possible. A setting has the
    instances of every model that the requests reach, and batches. The display has the lines of config.pbtxt to
    change. The setting is run, and one with more instances, too. In scripts: bls.tune(). Guide:
    docs/guides/where_time_goes.md.""",
    "tune",
    (
        MODEL,
        _N,
        _REPEAT,
        flag("--no-verify", "predict only: do not run the setting that was found", dest="verify", action="store_false"),
        option("--save", "FILE", "write the changed lines to a .pbtxt file", new_file_with(".pbtxt")),
        QUIET,
    ),
    "%blstune digit_reader IMAGE=image -n 16 --save changes.pbtxt",
    form="inputs",
)


def _profile(
    call: MagicCall,
    into: str = "",
    save: str = "",
    record: str = "",
    against: str = "",
    quiet: bool = False,
    **options: Any,
) -> object:
    """Run a cell and show the profile of its requests."""
    __tracebackhide__ = True
    notebook = call.notebook
    body = cell_body(notebook, call.name, call.cell)
    with reported(notebook):
        earlier = [side_of(_earlier(call, against), "before")] if against else []
    profile = bls.profile(name=f"In [{notebook.cell_number}]", **options)
    recorder: Any = nullcontext()
    if record:
        with reported(notebook):
            recorder = bls.record(record, tensors="all")
    try:
        with recorder, profile:
            value = body()
    finally:
        notebook.assign(into, profile)
        notebook.remember(profile)
        with progress(f"analyzing {len(profile.record.spans):,} spans"):
            for side in earlier:
                change = before_after(side, side_of(profile, "after"))
                notebook.remember(change)
                if not quiet:
                    notebook.show(change)
            if not quiet:
                notebook.show(profile)
            notebook.save(call.name, profile, save)
    return None if call.cell.rstrip().endswith(";") else value


PROFILE = OperationSpec(
    """Run the cell and show the timeline of its requests. The cell may send them in any way, await included. The
    display has a lane for each instance, the waits of requests and their causes, and each model's share of the
    time. A click on a block shows the code that sent the request and the code that served it, with the time by
    line; bls.mark("loaded") names a moment, in the cell or in a model. If the cell fails, the requests until then
    are shown. In scripts: with bls.profile(). Guide: docs/guides/where_time_goes.md.""",
    options=(
        INTO,
        option(
            "--save",
            "FILE",
            ".json or .json.gz for bls.open_file, .trace.json for Perfetto, .html",
            new_file_with(".json", ".json.gz", ".html"),
        ),
        _AGAINST,
        option("--limit", "N", "the number of requests to keep", whole_number(1)),
        option("--record", "FILE", "a file for all requests with their tensors, for %blsreplay and bls.open_file"),
        QUIET,
    ),
    examples="""
    %%blsprofile
    answers = %bls digit_reader IMAGE=image -n 4 --async

    %%blsprofile --into run --save run.json
    for image in images:
        %bls digit_reader IMAGE=image -q
    """,
    notebook=_profile,
)
